"""Writes explain.json: what XGBoost, shap and scikit-learn say of a few models.

pip install xgboost-cpu==3.2.0 shap==0.51.0 scikit-learn==1.9.1 && python explain.py

Each case holds a model's trees, level by level, with `x <= threshold` to the left (XGBoost's
`x < t` is `x <= the number below t`), rows, a background, and:

- `values`, `interactions`: shap's, path-dependent, by its C code in binary64;
- `interventional`: shap's against the background;
- `contribs`, `pair_contribs`: XGBoost's `pred_contribs` and `pred_interactions`, in binary32;
- `dependence`: scikit-learn's partial dependence on a feature, by brute force.

Each output's expected value is the last of its values. `binary32` columns are numbers' bits.
"""
import json, pathlib
import numpy as np, shap, sklearn, xgboost
from sklearn.ensemble import RandomForestRegressor
from sklearn.inspection import partial_dependence

HERE = pathlib.Path(__file__).parent
bits = lambda values: [int(v) for v in np.asarray(values, np.float32).ravel().view(np.uint32)]
digits = lambda values: [float(f"{v:.9g}") for v in np.asarray(values, np.float64).ravel()]

def table(seed, rows, features, missing):
    draw = np.random.RandomState(seed)
    x = draw.normal(size=(rows, features)).round(2).astype(np.float32)
    signal = x[:, 0] * x[:, 1] + np.abs(x[:, 2]) - (x[:, 0] > 0.5) * x[:, 3 % features]
    x[draw.uniform(size=x.shape) < missing] = np.nan
    return x, (signal + 0.1 * draw.normal(size=rows)).astype(np.float32)

def by_level(tree):
    """The tree's nodes renumbered, so that children follow in the order of their parents."""
    order = [0]
    for node in order:
        if tree["left"][node] >= 0:
            order += [tree["left"][node], tree["right"][node]]
    place = {node: i for i, node in enumerate(order)}
    pick = lambda name: [tree[name][node] for node in order]
    children = lambda side: [place.get(child, -1) for child in pick(side)]
    return {name: pick(name) for name in tree} | {"left": children("left"), "right": children("right")}

def of_xgboost(booster):
    trees = []
    for tree in json.loads(booster.save_raw("json"))["learner"]["gradient_booster"]["model"]["trees"]:
        leaf = np.array(tree["left_children"]) < 0
        condition = np.array(tree["split_conditions"], np.float32)
        trees.append(by_level({
            "left": tree["left_children"],
            "right": tree["right_children"],
            "feature": tree["split_indices"],
            "threshold": np.where(leaf, np.float32(0), np.nextafter(condition, np.float32(-np.inf))),
            "missing_left": tree["default_left"],
            "value": np.where(leaf, condition, np.float32(0)),
            "cover": np.array(tree["sum_hessian"], np.float32),
        }))
    return trees

def of_forest(forest):
    trees = []
    for tree in (estimator.tree_ for estimator in forest.estimators_):
        leaf = tree.children_left < 0
        # Rows are binary32: the threshold's next lower binary32 parts them as it does.
        threshold = tree.threshold.astype(np.float32)
        threshold = np.where(threshold > tree.threshold, np.nextafter(threshold, np.float32(-np.inf)), threshold)
        trees.append(by_level({
            "left": tree.children_left,
            "right": tree.children_right,
            "feature": np.where(leaf, 0, tree.feature),
            "threshold": np.where(leaf, np.float32(0), threshold),
            "missing_left": np.ones(len(leaf), int),
            "value": np.where(leaf, tree.value[:, 0, 0] / len(forest.estimators_), 0).astype(np.float32),
            "cover": tree.weighted_n_node_samples.astype(np.float32),
        }))
    return trees

def of_shap(trees, base):
    """The trees as shap's own; a plain dictionary takes its C code."""
    def one(tree):
        as_int = lambda name: np.array(tree[name], np.int32)
        default = np.where(as_int("missing_left") == 1, as_int("left"), as_int("right"))
        return {
            "children_left": as_int("left"),
            "children_right": as_int("right"),
            "children_default": default,
            "features": as_int("feature"),
            "thresholds": np.array(tree["threshold"], np.float64),
            "values": np.array(tree["value"], np.float64)[:, None],
            "node_sample_weight": np.array(tree["cover"], np.float64),
        }
    return {"trees": [one(tree) for tree in trees], "base_offset": base}

def case(trees, outputs, base, rows, background, contribs=None, pairs=None, dependence=None):
    features = rows.shape[1]
    values, interactions, interventional = [], [], []
    for output in range(outputs):
        model = of_shap(trees[output::outputs], base)
        explainer = shap.TreeExplainer(model, feature_perturbation="tree_path_dependent")
        bias = np.full((len(rows), 1), explainer.expected_value)
        values.append(np.hstack([explainer.shap_values(rows, check_additivity=False), bias]))
        matrix = np.zeros((len(rows), features + 1, features + 1))
        matrix[:, :features, :features] = explainer.shap_interaction_values(rows)
        matrix[:, features, features] = bias[:, 0]
        interactions.append(matrix)
        explainer = shap.TreeExplainer(model, background, feature_perturbation="interventional")
        bias = np.full((len(rows), 1), explainer.expected_value)
        interventional.append(np.hstack([explainer.shap_values(rows, check_additivity=False), bias]))
    every = lambda name: [v for tree in trees for v in tree[name]]
    stacked = lambda parts: digits(np.stack(parts, axis=1))
    return {
        "features": features,
        "outputs": outputs,
        "base": base,
        "sizes": [len(tree["left"]) for tree in trees],
        "left": [max(int(v), 0) for v in every("left")],
        "feature": [int(v) for v in every("feature")],
        "threshold": bits(every("threshold")),
        "missing_left": [int(v) for v in every("missing_left")],
        "value": bits(every("value")),
        "cover": bits(every("cover")),
        "x": bits(rows),
        "background": bits(background),
        "values": stacked(values),
        "interactions": stacked(interactions),
        "interventional": stacked(interventional),
        "contribs": None if contribs is None else digits(contribs),
        "pair_contribs": None if pairs is None else digits(pairs),
        "dependence": dependence,
    }

def xgboost_case(seed, rounds, depth, features, missing, classes):
    x, y = table(seed, 300, features, missing)
    settings = dict(max_depth=depth, eta=0.3, base_score=0.5, nthread=1, seed=0)
    if classes:
        y = np.digitize(y, np.quantile(y, np.arange(1, classes) / classes))
        settings |= dict(objective="multi:softprob", num_class=classes)
    booster = xgboost.train(settings, xgboost.DMatrix(x, y), rounds)
    rows = xgboost.DMatrix(x[:8])
    contribs = booster.predict(rows, pred_contribs=True)
    pairs = booster.predict(rows, pred_interactions=True)
    return case(of_xgboost(booster), max(classes, 1), 0.5, x[:8], x[20:35], contribs, pairs)

def forest_case(seed, trees, depth, features):
    x, y = table(seed, 400, features, 0)
    model = RandomForestRegressor(trees, max_depth=depth, random_state=0).fit(x, y)
    grid = partial_dependence(model, x[:30], [1], grid_resolution=9, method="brute", kind="both")
    dependence = {
        "feature": 1,
        "x": bits(x[:30]),
        "grid": digits(grid["grid_values"][0]),
        "average": digits(grid["average"]),
        "individual": digits(grid["individual"]),
    }
    return case(of_forest(model), 1, 0.0, x[:8], x[20:35], dependence=dependence)

cases = {
    "xgboost": xgboost.__version__,
    "shap": shap.__version__,
    "scikit-learn": sklearn.__version__,
    "cases": {
        "xgboost regression, missing values": xgboost_case(1, 10, 4, 6, 0.2, 0),
        "xgboost regression, one split": xgboost_case(2, 20, 1, 4, 0.1, 0),
        "xgboost regression, long paths": xgboost_case(3, 3, 10, 12, 0.1, 0),
        "xgboost, three classes": xgboost_case(4, 4, 3, 5, 0.1, 3),
        "random forest, few features": forest_case(5, 4, 9, 3),
    },
}
text = json.dumps(cases, separators=(",", ":")).replace("},\"", "},\n\"")
(HERE / "explain.json").write_text(text + "\n")
for name, c in cases["cases"].items():
    shaped = lambda key: np.array(c[key])
    off = lambda a, b: float(np.abs(shaped(a) - shaped(b)).max()) if c[b] is not None else None
    print(name, "nodes", len(c["left"]), "xgboost off shap by", off("values", "contribs"), off("interactions", "pair_contribs"))
