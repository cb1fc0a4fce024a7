"""Writes the models of data/interop and what their libraries predict with them.

    pip install xgboost==3.2.0 lightgbm==4.7.0 catboost==1.2.10 scikit-learn==1.9.1
    python interop.py write
    pip install xgboost==1.7.6 "numpy<2" (and in another environment xgboost==2.1.4)
    python interop.py write xgboost

and checks that XGBoost and LightGBM read detml's exports, in each environment:

    DETML_EXPORTS=/tmp/exports cargo test -p detml-trees --lib exports
    python interop.py check /tmp/exports

Each case of expected-*.json holds: x, rows of f32 as their bits in hex (random ones, missing
values, infinities where the library takes them, thresholds and their neighbours); margin and
response as the library predicts them with 9 digits, row by row (a response is null where it is the
margin or isn't compared); the places of labels for scikit-learn's classifiers. Some are refused:
those have the name of what is refused instead.
"""
import json
import pathlib
import sys

import numpy as np

HERE = pathlib.Path(__file__).parent
DATA = HERE / "data" / "interop"
sys.path.insert(0, str(HERE / "../scripts"))


class Data:
    """Four features: numbers, few distinct values with zeros, missing values, numbers above 0."""

    def __init__(self, seed, rows=160, missing=True):
        r = np.random.default_rng(seed)
        x = r.normal(size=(rows, 4)).astype(np.float32)
        x[:, 1] = r.integers(-2, 3, rows)
        x[:, 3] = np.exp(x[:, 3])
        signal = x[:, 0] + 0.7 * x[:, 1] * (x[:, 2] > 0) - np.log(x[:, 3])
        if missing:
            x[r.random(x.shape) < 0.12] = np.nan
        self.r, self.x, self.missing = r, x, missing
        self.y = signal + 0.1 * r.normal(size=rows)
        self.two = (self.y > 0).astype(int)
        self.three = np.digitize(self.y, [-0.8, 0.8])
        self.positive = np.exp(self.y / 2)
        self.count = r.poisson(self.positive)
        self.share = 1 / (1 + np.exp(-self.y))

    def queries(self, thresholds, infinite):
        """Rows to predict; thresholds are pairs of a feature and a value."""
        rows = [self.x[i].copy() for i in range(8)]
        # Inside data that knows missing values, rows of them.
        if self.missing:
            rows.append(np.full(4, np.nan, dtype=np.float32))
        thresholds = [(f, np.float32(t)) for f, t in thresholds if np.isfinite(t)]
        for feature, t in thresholds[:: max(1, len(thresholds) // 4)][:4]:
            for value in (t, np.nextafter(t, np.float32(np.inf)), np.nextafter(t, np.float32(-np.inf))):
                row = self.x[self.r.integers(len(self.x))].copy()
                row[feature] = value
                rows.append(row)
        for value in (0.0, -0.0, 1e-40, -1e-40, 3e38, -3e38):
            rows.append(np.full(4, value, dtype=np.float32))
        if infinite:
            for feature in range(4):
                for value in (np.inf, -np.inf):
                    row = self.x[feature].copy()
                    row[feature] = value
                    rows.append(row)
        return np.array(rows, dtype=np.float32)


def table(values):
    return None if values is None else [float(f"{v:.9g}") for v in np.asarray(values, dtype=np.float64).ravel()]


class Cases:
    def __init__(self, tag):
        self.tag, self.cases = tag, []

    def add(self, file, format, x, margin, response, label=None, **more):
        print(f"{file}: {(DATA / file).stat().st_size} bytes, {len(x)} rows")
        assert all(v is None or np.isfinite(v).all() for v in (margin, response))
        self.cases.append(dict(
            file=file, format=format, columns=int(x.shape[1]), x=x.astype(">f4").tobytes().hex(),
            margin=table(margin), response=None if table(response) == table(margin) else table(response),
            label=None if label is None else [int(i) for i in label], **more))

    def refused(self, file, format, what):
        self.cases.append(dict(file=file, format=format, refused=what))

    def write(self):
        lines = ",\n".join(json.dumps(case, allow_nan=False) for case in self.cases)
        (DATA / f"expected-{self.tag}.json").write_text(f"[\n{lines}\n]\n")


NAMES = ["a b", "gr\u00f6\u00dfe \u2603", 'quo"te\\', "f,:{}\t0"]


def write_xgboost():
    import xgboost as xgb

    major = int(xgb.__version__.split(".")[0])
    cases = Cases(f"xgboost{major}")
    d = Data(1)

    def save(booster, name, ending):
        file = f"xgb{major}-{name}.{ending}"
        booster.save_model(DATA / file)
        return file, "xgboost-json" if ending == "json" else "xgboost-ubjson"

    def thresholds(booster):
        booster.save_model("/tmp/interop-model.json")
        gb = json.load(open("/tmp/interop-model.json"))["learner"]["gradient_booster"]
        trees = gb.get("model", gb.get("gbtree", {}).get("model"))["trees"]
        return [(f, t) for tree in trees
                for left, f, t in zip(tree["left_children"], tree["split_indices"], tree["split_conditions"]) if left >= 0]

    # Of older versions, what they write in another way and one of each kind of base score.
    older = {
        1: ["squared", "early", "pruned", "logistic", "logitraw", "softprob", "dart", "forest", "poisson", "targets"],
        2: ["early", "logistic", "softprob", "targets"],
    }

    def case(name, ending, y, rounds=3, names=None, respond=True, **params):
        if major < 3 and name not in older[major]:
            return
        early = params.pop("early", None)
        params = dict(max_depth=2, nthread=1, seed=3, **params)
        data = xgb.DMatrix(d.x, label=y, feature_names=names)
        if "bounds" in params:
            data = xgb.DMatrix(d.x)
            low, high = params.pop("bounds")
            data.set_float_info("label_lower_bound", low)
            data.set_float_info("label_upper_bound", high)
        if params["objective"].startswith("rank:"):
            data.set_group([20] * 8)
        kept = {}
        if early is not None:
            other = xgb.DMatrix(Data(2).x, label=-Data(2).y, feature_names=names)
            booster = xgb.train(params, data, rounds, evals=[(other, "other")], early_stopping_rounds=early, verbose_eval=False)
            kept["rounds"] = int(booster.best_iteration) + 1
            assert kept["rounds"] < rounds
        else:
            booster = xgb.train(params, data, rounds)
        file, format = save(booster, name, ending)
        x = d.queries(thresholds(booster), False)
        q = xgb.DMatrix(x, feature_names=names)
        taken = dict(iteration_range=(0, kept["rounds"])) if kept else {}
        margin = booster.predict(q, output_margin=True, **taken)
        response = booster.predict(q, **taken) if respond else None
        cases.add(file, format, x, margin, response, **kept)

    case("squared", "json", d.y, names=NAMES, objective="reg:squarederror")
    case("squared", "ubj", d.y, names=NAMES, objective="reg:squarederror", max_leaves=5)
    case("early", "ubj", d.y, rounds=12, early=2, eta=0.9, objective="reg:squarederror", num_parallel_tree=2, subsample=0.7)
    case("pruned", "json", d.y, rounds=3, objective="reg:squarederror", tree_method="exact", gamma=6.0)
    case("absolute", "json", d.y, objective="reg:absoluteerror")
    case("huber", "ubj", d.y, objective="reg:pseudohubererror")
    case("squaredlog", "ubj", d.positive, objective="reg:squaredlogerror")
    case("logistic", "json", d.two, objective="binary:logistic", base_score=0.3)
    case("share", "ubj", d.share, objective="reg:logistic")
    case("logitraw", "ubj", d.two, objective="binary:logitraw", base_score=0.2)
    case("hinge", "ubj", d.two, objective="binary:hinge")
    case("softprob", "ubj", d.three, rounds=2, objective="multi:softprob", num_class=3)
    case("softmax", "json", d.three, rounds=1, objective="multi:softmax", num_class=3, respond=False)
    case("dart", "json", d.two, objective="binary:logistic", booster="dart", rate_drop=0.5, one_drop=1)
    case("dart", "ubj", d.three, rounds=3, objective="multi:softprob", num_class=3, booster="dart", rate_drop=0.6, one_drop=1)
    case("forest", "ubj", d.three, rounds=1, objective="multi:softprob", num_class=3, num_parallel_tree=3, subsample=0.6, eta=1.0)
    case("poisson", "json", d.count, objective="count:poisson", base_score=1.7)
    case("gamma", "ubj", d.positive, objective="reg:gamma")
    case("tweedie", "ubj", d.positive, objective="reg:tweedie", base_score=0.4)
    case("cox", "ubj", d.positive, objective="survival:cox")
    case("aft", "ubj", d.positive, objective="survival:aft", bounds=(d.positive, d.positive * 1.5))
    case("ndcg", "ubj", d.three, objective="rank:ndcg")
    case("pairwise", "ubj", d.three, objective="rank:pairwise")
    case("targets", "ubj", np.c_[d.y, d.positive], rounds=2, objective="reg:squarederror", tree_method="hist")
    if major >= 3:
        case("quantiles", "json", d.y, rounds=2, objective="reg:quantileerror", quantile_alpha=[0.1, 0.5, 0.9])
        case("vectors", "json", np.c_[d.y, d.positive], rounds=2, objective="reg:squarederror", multi_strategy="multi_output_tree")
        case("vectors", "ubj", np.c_[d.y, d.positive, -d.y], rounds=2, objective="reg:squarederror", multi_strategy="multi_output_tree")

    linear = xgb.train(dict(booster="gblinear", objective="reg:squarederror", nthread=1), xgb.DMatrix(np.nan_to_num(d.x), label=d.y), 1)
    cases.refused(*save(linear, "linear", "json"), "gblinear")
    if major >= 3:
        # Codes of 12 and 5 categories in columns 0 and 2, missing ones too.
        c = Data(1)
        codes = np.array([np.floor(np.abs(c.x[:, 0]) * 9) % 12, c.x[:, 1], np.floor(np.abs(c.x[:, 2]) * 7) % 5, c.x[:, 3]]).T
        y = np.nan_to_num(np.sin(codes[:, 0] * 5) + np.cos(codes[:, 2] * 3) + codes[:, 1] * 0.3)
        for name, onehot in (("onehot", 100), ("sets", 1)):
            data = xgb.DMatrix(codes, label=y, feature_types=["c", "q", "c", "q"], enable_categorical=True)
            booster = xgb.train(dict(objective="reg:squarederror", nthread=1, tree_method="hist", max_depth=4, max_cat_to_onehot=onehot), data, 3)
            file, format = save(booster, f"categories-{name}", "json" if onehot > 1 else "ubj")
            x = codes[:40].astype(np.float32)
            x[:15, 0] = np.arange(15)
            x[20:28, 2] = np.arange(8)
            q = xgb.DMatrix(x, feature_types=["c", "q", "c", "q"], enable_categorical=True)
            cases.add(file, format, x, booster.predict(q, output_margin=True), booster.predict(q))
    cases.write()


def write_lightgbm():
    import lightgbm as lgb

    cases = Cases("lightgbm")

    def case(name, y, d=None, rounds=3, names=None, **params):
        d = d or Data(1)
        early = params.pop("early", None)
        base = dict(num_leaves=4, min_data_in_leaf=5, verbose=-1, num_threads=1, seed=3, deterministic=True)
        params = {**base, **params}
        group = [20] * 8 if params["objective"] == "lambdarank" else None
        data = lgb.Dataset(d.x, y(d), feature_name=names or "auto", group=group)
        kept = {}
        if early is not None:
            e = Data(2)
            booster = lgb.train(params, data, rounds, valid_sets=[lgb.Dataset(e.x, -e.y, reference=data)],
                                callbacks=[lgb.early_stopping(early, verbose=False)])
            assert booster.best_iteration < rounds
        else:
            booster = lgb.train(params, data, rounds)
        file = f"lgb-{name}.txt"
        booster.save_model(DATA / file)
        # Parameters of the training, which have no say.
        text = (DATA / file).read_text()
        (DATA / file).write_text(text[: text.index("\nparameters:")] + "\nparameters:\n\nend of parameters\n")
        booster = lgb.Booster(model_file=str(DATA / file))
        dump = booster.trees_to_dataframe() if not params.get("skip_dump") else None
        thresholds = [(int(booster.feature_name().index(f)), float(t)) for f, t in zip(dump.split_feature, dump.threshold) if f is not None and f == f]
        x = d.queries(thresholds, True)
        response = booster.predict(x)
        margin = response if params.get("boosting") == "rf" and params["objective"] == "regression" else None
        if params.get("boosting") != "rf":
            margin = booster.predict(x, raw_score=True)
        cases.add(file, "lightgbm-text", x, margin, response, **kept)

    plain = lambda d: d.y
    case("regression", plain, names=["a_b", "gr\u00f6\u00dfe", "x=1", "Column_0"], objective="regression")
    case("sqrt", lambda d: d.positive * np.sign(d.y), objective="regression", reg_sqrt=True)
    case("l1", plain, objective="regression_l1")
    case("huber", plain, objective="huber", boosting="dart", drop_rate=0.5, skip_drop=0.0)
    case("fair", plain, objective="fair", data_sample_strategy="goss")
    case("quantile", plain, objective="quantile", alpha=0.8)
    case("mape", lambda d: d.positive, objective="mape")
    case("poisson", lambda d: d.count, objective="poisson")
    case("gamma", lambda d: d.positive, objective="gamma")
    case("tweedie", lambda d: d.positive, objective="tweedie")
    case("binary", lambda d: d.two, objective="binary", sigmoid=0.7)
    case("multiclass", lambda d: d.three, rounds=2, objective="multiclass", num_class=3)
    case("ova", lambda d: d.three, rounds=2, objective="multiclassova", num_class=3, sigmoid=1.5)
    case("xentropy", lambda d: d.share, objective="cross_entropy")
    case("xentlambda", lambda d: d.share, objective="cross_entropy_lambda")
    case("lambdarank", lambda d: d.three, objective="lambdarank")
    case("forest", plain, objective="regression", boosting="rf", bagging_freq=1, bagging_fraction=0.6)
    case("forest-binary", lambda d: d.two, objective="binary", boosting="rf", bagging_freq=1, bagging_fraction=0.6)
    case("early", plain, rounds=20, early=2, learning_rate=0.9, objective="regression")
    case("no-missing", plain, d=Data(4, missing=False), objective="regression")
    case("unused-missing", plain, objective="regression", use_missing=False)
    case("constant", plain, objective="regression", min_data_in_leaf=1000)
    zeros = Data(5, missing=False)
    zeros.x = np.where(zeros.r.random(zeros.x.shape) < 0.3, 0, np.abs(zeros.x)).astype(np.float32)
    case("zero-left", lambda d: np.abs(d.x).sum(axis=1), d=zeros, rounds=2, objective="regression", zero_as_missing=True)
    signed = Data(1)
    signed.x = np.nan_to_num(signed.x)
    case("zero", plain, d=signed, rounds=2, num_leaves=3, objective="regression", zero_as_missing=True)
    custom = lambda preds, data: (preds - data.get_label(), np.ones_like(preds))
    case("custom", plain, objective=custom)

    def refused(name, what, x, **params):
        d = Data(1)
        base = dict(num_leaves=3, min_data_in_leaf=5, verbose=-1, num_threads=1, objective="regression")
        coded = params.pop("categorical_feature", "auto")
        booster = lgb.train({**base, **params}, lgb.Dataset(x, d.y, categorical_feature=coded), 2)
        booster.save_model(DATA / f"lgb-{name}.txt")
        text = (DATA / f"lgb-{name}.txt").read_text()
        (DATA / f"lgb-{name}.txt").write_text(text[: text.index("\nparameters:")] + "\n")
        cases.refused(f"lgb-{name}.txt", "lightgbm-text", what)

    refused("linear", "linear tree", np.nan_to_num(Data(1).x), linear_tree=True)
    c = Data(1)
    codes = np.array([np.floor(np.abs(c.x[:, 0]) * 9) % 12, c.x[:, 1], np.floor(np.abs(c.x[:, 2]) * 20) % 40, c.x[:, 3]]).T
    y = np.nan_to_num(np.sin(codes[:, 0] * 5) + np.cos(codes[:, 2] * 3) + codes[:, 1] * 0.3)
    for name, most in (("onehot", 100), ("sets", 1)):
        params = dict(objective="regression", num_leaves=8, min_data_in_leaf=2, min_data_per_group=1, cat_smooth=0.1, cat_l2=0.1, max_cat_to_onehot=most)
        booster = lgb.train(dict(verbose=-1, num_threads=1, **params), lgb.Dataset(codes, y, categorical_feature=[0, 2]), 3)
        file = f"lgb-categories-{name}.txt"
        booster.save_model(DATA / file)
        text = (DATA / file).read_text()
        (DATA / file).write_text(text[: text.index("\nparameters:")] + "\nparameters:\n\nend of parameters\n")
        booster = lgb.Booster(model_file=str(DATA / file))
        x = codes[:60].astype(np.float32)
        x[:20, 0] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 40, -1, -0.5, 0.5, 3.99, 1e6, -np.inf]
        x[20:, 2] = np.arange(40)
        cases.add(file, "lightgbm-text", x, booster.predict(x, raw_score=True), booster.predict(x))
    cases.write()


def write_catboost():
    import catboost as cb

    cases = Cases("catboost")

    def shrink(file):
        """Leaves out what training was told; predictions don't depend on it."""
        model = json.load(open(DATA / file))
        info = model["model_info"]
        kept = {"params": {"loss_function": info["params"]["loss_function"]}}
        if "class_params" in info:
            kept["class_params"] = info["class_params"]
        model["model_info"] = kept
        json.dump(model, open(DATA / file, "w"))

    def case(name, y, loss, d=None, names=None, rounds=3, kind=None, label=False, **params):
        d = d or Data(1)
        model = cb.CatBoost(dict(iterations=rounds, depth=3, verbose=False, allow_writing_files=False,
                                 random_seed=3, thread_count=1, loss_function=loss, **params))
        model.fit(cb.Pool(d.x, y(d), feature_names=names, group_id=np.arange(160) // 20 if loss == "YetiRank" else None))
        file = f"cat-{name}.json"
        model.save_model(str(DATA / file), format="json")
        # What the file says is what counts: read it back before predicting.
        model = cb.CatBoost().load_model(str(DATA / file), format="json") if "trees" not in json.load(open(DATA / file)) else model
        content = json.load(open(DATA / file))
        thresholds = [(f["flat_feature_index"], b) for f in content["features_info"]["float_features"] for b in f["borders"]]
        x = d.queries(thresholds, True)
        margin = model.predict(x, prediction_type="RawFormulaVal")
        response = model.predict(x, prediction_type=kind) if kind else margin
        if kind == "Probability" and loss in ("Logloss", "CrossEntropy"):
            response = response[:, 1]
        shrink(file)
        cases.add(file, "catboost-json", x, margin, response, names=names)

    case("rmse", lambda d: d.y, "RMSE", names=NAMES)
    case("max", lambda d: d.y, "MAE", nan_mode="Max")
    case("no-missing", lambda d: d.y, "Quantile:alpha=0.7", d=Data(4, missing=False))
    case("lossguide", lambda d: d.y, "RMSE", grow_policy="Lossguide", max_leaves=6, nan_mode="Max")
    case("depthwise", lambda d: d.three, "MultiClass", grow_policy="Depthwise", kind="Probability")
    case("logloss", lambda d: np.where(d.two, "yes", "no"), "Logloss", kind="Probability")
    case("share", lambda d: d.share, "CrossEntropy", kind="Probability")
    case("poisson", lambda d: d.count, "Poisson", kind="Exponent")
    case("multiclass", lambda d: d.three * 10, "MultiClass", kind="Probability")
    case("ova", lambda d: d.three, "MultiClassOneVsAll", kind="Probability")
    case("targets", lambda d: np.c_[d.y, d.positive], "MultiRMSE")
    case("labels", lambda d: np.c_[d.two, d.three > 0].astype(int), "MultiLogloss", kind="Probability")
    case("rank", lambda d: d.three, "YetiRank")

    d = Data(1)
    model = cb.CatBoost(dict(iterations=2, depth=2, verbose=False, allow_writing_files=False, random_seed=3, loss_function="RMSE"))
    model.fit(cb.Pool([[str(int(a)), float(b)] for a, b in np.nan_to_num(d.x[:, 1:3])], d.y, cat_features=[0]))
    model.save_model(str(DATA / "cat-categorical.json"), format="json")
    shrink("cat-categorical.json")
    cases.refused("cat-categorical.json", "catboost-json", "categorical")
    cases.write()


def write_sklearn():
    import sklearn.ensemble as e
    import sklearn.tree as t
    from export_sklearn import export, to_dict

    cases = Cases("sklearn")

    def case(name, model, y, d=None, raw=None):
        d = d or Data(1)
        target = y(d)
        model.fit(d.x, target)
        file = f"skl-{name}.json"
        export(model, DATA / file)
        content = to_dict(model)
        thresholds = [(f, float(v)) for tree in content["trees"] for left, f, v in zip(tree["left"], tree["feature"], tree["threshold"]) if left >= 0]
        x = d.queries(thresholds, "Hist" in type(model).__name__)
        if "Hist" not in type(model).__name__:
            x = x[np.abs(np.nan_to_num(x)).max(axis=1) < 1e30]
        label = None
        if hasattr(model, "classes_"):
            response = model.predict_proba(x)
            label = np.searchsorted(model.classes_, model.predict(x))
            forest = not hasattr(model, "decision_function")
            if not forest and response.shape[1] == 2:
                response = response[:, 1]
            margin = response if forest else model.decision_function(x)
        else:
            response = model.predict(x)
            margin = np.log(response) if content["link"] == "exp" else response
        cases.add(file, "sklearn-json", x, margin, response, label)

    whole = Data(4, missing=False)
    case("tree", t.DecisionTreeRegressor(max_depth=4, random_state=0), lambda d: d.y)
    case("tree-classes", t.DecisionTreeClassifier(max_depth=4, random_state=0), lambda d: d.three)
    case("extra-tree", t.ExtraTreeRegressor(max_depth=4, random_state=0), lambda d: d.y, d=whole)
    case("forest", e.RandomForestRegressor(5, max_depth=3, random_state=0), lambda d: np.c_[d.y, d.positive])
    case("forest-classes", e.RandomForestClassifier(7, max_depth=3, random_state=0), lambda d: np.array(["low", "mid", "top"])[d.three])
    case("extra-trees", e.ExtraTreesClassifier(5, max_depth=3, random_state=0), lambda d: d.two * 3 - 1, d=whole)
    case("boosting", e.GradientBoostingRegressor(n_estimators=5, max_depth=2, random_state=0), lambda d: d.y, d=whole)
    case("boosting-quantile", e.GradientBoostingRegressor(n_estimators=4, loss="quantile", alpha=0.8, max_depth=2, random_state=0), lambda d: d.y, d=whole)
    case("boosting-zero", e.GradientBoostingRegressor(n_estimators=4, init="zero", max_depth=2, random_state=0), lambda d: d.y, d=whole)
    case("boosting-two", e.GradientBoostingClassifier(n_estimators=5, max_depth=2, random_state=0), lambda d: d.two, d=whole)
    case("boosting-exponential", e.GradientBoostingClassifier(n_estimators=5, loss="exponential", max_depth=2, random_state=0), lambda d: d.two, d=whole)
    case("boosting-three", e.GradientBoostingClassifier(n_estimators=3, max_depth=2, random_state=0), lambda d: d.three, d=whole)
    hist = dict(max_iter=4, max_depth=3, min_samples_leaf=5, random_state=0)
    case("hist", e.HistGradientBoostingRegressor(**hist), lambda d: d.y)
    case("hist-no-missing", e.HistGradientBoostingRegressor(**hist), lambda d: d.y, d=whole)
    case("hist-poisson", e.HistGradientBoostingRegressor(loss="poisson", **hist), lambda d: d.count)
    case("hist-gamma", e.HistGradientBoostingRegressor(loss="gamma", **hist), lambda d: d.positive)
    case("hist-quantile", e.HistGradientBoostingRegressor(loss="quantile", quantile=0.2, **hist), lambda d: d.y)
    case("hist-two", e.HistGradientBoostingClassifier(**hist), lambda d: d.two)
    case("hist-three", e.HistGradientBoostingClassifier(**{**hist, "max_iter": 2}), lambda d: d.three + 5)
    cases.write()


def check(folder):
    """Compares the margins that detml wrote with those of the packages for its exports."""
    folder = pathlib.Path(folder)
    try:
        import lightgbm as lgb
    except ImportError:
        lgb = None
    import xgboost as xgb

    worst = {}
    for case in json.load(open(folder / "cases.json")):
        x = np.frombuffer(bytes.fromhex(case["x"]), dtype=">f4").astype(np.float32).reshape(-1, case["columns"])
        margin = np.frombuffer(bytes.fromhex(case["margin"]), dtype=">f4").astype(np.float64)
        scale = max(1.0, np.abs(margin).max())
        for file in case["files"]:
            path = str(folder / file)
            if file.endswith(".txt"):
                if lgb is None:
                    continue
                booster = lgb.Booster(model_file=path)
                keep = np.full(len(x), True)
                got = booster.predict(x, raw_score=True)
            else:
                booster = xgb.Booster(model_file=path)
                keep = ~np.isinf(x).any(axis=1)
                got = booster.predict(xgb.DMatrix(x[keep], feature_names=booster.feature_names), output_margin=True)
            wanted = margin.reshape(len(x), -1)[keep]
            error = np.abs(np.asarray(got, dtype=np.float64).reshape(wanted.shape) - wanted).max() / scale
            assert error <= 1e-6, (file, error)
            worst[file] = error
    for file, error in worst.items():
        print(f"{file}: {error:.2e}")


if __name__ == "__main__":
    if sys.argv[1] == "check":
        check(sys.argv[2])
    else:
        for library in sys.argv[2:] or ["xgboost", "lightgbm", "catboost", "sklearn"]:
            globals()[f"write_{library}"]()
