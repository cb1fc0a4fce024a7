"""Writes a tree model of scikit-learn as JSON that detml_trees::TreeEnsemble::from_sklearn_json reads.

    import joblib
    from export_sklearn import export
    export(joblib.load("model.joblib"), "model.json")

or `python export_sklearn.py model.joblib model.json`. Tested with scikit-learn 1.9.1; 1.3 is the
oldest that keeps the sides of missing values.

Read: DecisionTree*, ExtraTree*, RandomForest*, ExtraTrees*, GradientBoosting* and
HistGradientBoosting*, of regressors and classifiers. Refused: categorical features, several
targets of a classifier, an initial model that is no constant.

The file is one object, every number in full precision (infinities as "inf" and "-inf"):

    format, version    "detml-sklearn-trees", 1
    sklearn            the version of scikit-learn, for readers
    estimator          the class of the model
    n_features         number of columns
    feature_names      names of the columns, or null
    classes            labels (numbers or texts) in the order of the outputs, or null
    link               what makes predictions of margins: identity, sigmoid, softmax or exp
    slope              the factor of margins before the link
    average            whether values are divided by the number of trees
    base               the margin that each output starts from
    trees              for each tree
        output         the output that it adds to, or null if leaves have a value for each
        left, right    the children of each node, -1 for a leaf; node 0 is the root
        feature        the column of each split
        threshold      the greatest value that goes to the left
        missing_left   whether NaN goes to the left
        value          a list of values for each node, those of splits without meaning

Forests and trees of classifiers have probabilities as values, and the identity as link.
"""
import json
import sys

import numpy as np
import sklearn


def number(x):
    x = float(x)
    if np.isnan(x):
        raise ValueError("a NaN in the model")
    return x if np.isfinite(x) else ("inf" if x > 0 else "-inf")


def plain_tree(tree, value, output=None):
    """A tree of sklearn.tree, with an array (nodes x values)."""
    count = tree.node_count
    missing = getattr(tree, "missing_go_to_left", np.zeros(count, dtype=bool))
    leaf = tree.children_left == -1
    return {
        "output": output,
        "left": tree.children_left.tolist(),
        "right": tree.children_right.tolist(),
        "feature": np.where(leaf, 0, tree.feature).tolist(),
        "threshold": [number(t) for t in np.where(leaf, 0.0, tree.threshold)],
        "missing_left": np.asarray(missing).astype(bool).tolist(),
        "value": [[float(v) for v in row] for row in value],
    }


def hist_tree(nodes, output):
    """A predictor of HistGradientBoosting*."""
    if nodes["is_categorical"].any():
        raise ValueError("categorical splits are not supported")
    leaf = nodes["is_leaf"].astype(bool)
    return {
        "output": output,
        "left": np.where(leaf, -1, nodes["left"].astype(np.int64)).tolist(),
        "right": np.where(leaf, -1, nodes["right"].astype(np.int64)).tolist(),
        "feature": np.where(leaf, 0, nodes["feature_idx"].astype(np.int64)).tolist(),
        "threshold": [number(t) for t in np.where(leaf, 0.0, nodes["num_threshold"])],
        "missing_left": nodes["missing_go_to_left"].astype(bool).tolist(),
        "value": [[float(v)] for v in nodes["value"]],
    }


def values(model, tree):
    """Values of a tree of its own or of a forest: targets, or probabilities of classes."""
    if not hasattr(model, "classes_"):
        return tree.value[:, :, 0]
    if model.n_outputs_ > 1:
        raise ValueError("several targets of a classifier are not supported")
    counts = tree.value[:, 0, :]
    return counts / counts.sum(axis=1, keepdims=True)


def to_dict(model):
    name = type(model).__name__
    out = {
        "format": "detml-sklearn-trees",
        "version": 1,
        "sklearn": sklearn.__version__,
        "estimator": name,
        "n_features": int(model.n_features_in_),
        "feature_names": [str(n) for n in model.feature_names_in_] if hasattr(model, "feature_names_in_") else None,
        "classes": None,
        "link": "identity",
        "slope": 1.0,
        "average": False,
    }
    if hasattr(model, "classes_"):
        if isinstance(model.classes_, list):
            raise ValueError("several targets of a classifier are not supported")
        out["classes"] = model.classes_.tolist()
    if name.startswith(("DecisionTree", "ExtraTreeC", "ExtraTreeR")):
        value = values(model, model.tree_)
        out["base"] = [0.0] * value.shape[1]
        out["trees"] = [plain_tree(model.tree_, value)]
    elif name.startswith(("RandomForest", "ExtraTrees")):
        out["average"] = True
        out["trees"] = [plain_tree(one.tree_, values(model, one.tree_)) for one in model.estimators_]
        out["base"] = [0.0] * len(out["trees"][0]["value"][0])
    elif name.startswith("HistGradientBoosting"):
        if model.is_categorical_ is not None and np.any(model.is_categorical_):
            raise ValueError("categorical features are not supported")
        out["base"] = [float(b) for b in np.ravel(model._baseline_prediction)]
        out["trees"] = [
            hist_tree(tree.nodes, output) for stage in model._predictors for output, tree in enumerate(stage)
        ]
        if out["classes"] is not None:
            out["link"] = "sigmoid" if len(out["base"]) == 1 else "softmax"
        elif model.loss in ("poisson", "gamma"):
            out["link"] = "exp"
    elif name.startswith("GradientBoosting"):
        start = model._raw_predict_init(np.zeros((2, model.n_features_in_), dtype=np.float32))
        known = ("zero", "DummyClassifier", "DummyRegressor")
        if (model.init_ if isinstance(model.init_, str) else type(model.init_).__name__) not in known:
            raise ValueError("an initial model that is no constant is not supported")
        out["base"] = [float(b) for b in start[0]]
        out["trees"] = [
            plain_tree(tree.tree_, model.learning_rate * tree.tree_.value[:, :, 0], output)
            for stage in model.estimators_
            for output, tree in enumerate(stage)
        ]
        if out["classes"] is not None:
            out["link"] = "sigmoid" if len(out["base"]) == 1 else "softmax"
            if model.loss == "exponential":
                out["slope"] = 2.0
    else:
        raise ValueError(f"{name} is not supported")
    return out


def export(model, path):
    with open(path, "w") as file:
        json.dump(to_dict(model), file, allow_nan=False)
        file.write("\n")


if __name__ == "__main__":
    import joblib

    export(joblib.load(sys.argv[1]), sys.argv[2])
