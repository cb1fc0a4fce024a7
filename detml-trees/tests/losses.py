"""Writes losses.json: what XGBoost and LightGBM reach with each loss on the sets of fixtures/data.

pip install xgboost-cpu==3.2.0 lightgbm==4.6.0 scikit-learn==1.9.1 && python losses.py

Row i is tested in fold i % 5 and trained on in the others. A figure is the mean over the five
folds of the metric named after the loss. Both libraries grow 100 trees of depth 4 at a learning
rate of 0.1 with an L2 penalty of 1 and a least Hessian of 1. Targets of the squared logarithmic error are
divided by 100: far from 0 its Hessians are next to nothing.
"""
import csv, json, pathlib
import numpy as np, xgboost, lightgbm
from sklearn import metrics as m
from sklearn.utils.class_weight import compute_sample_weight

HERE = pathlib.Path(__file__).parent
DATA = HERE / "../../fixtures/data"

def load(name, target):
    with open(DATA / name) as file:
        rows = list(csv.reader(file))
    at = rows[0].index(target)
    table = np.array([[float(cell) for cell in row] for row in rows[1:]], dtype=np.float32)
    return np.delete(table, at, axis=1), table[:, at]

def xgb(objective, **more):
    return lambda kind="Regressor": getattr(xgboost, f"XGB{kind}")(
        objective=objective, n_estimators=100, max_depth=4, learning_rate=0.1, max_bin=255,
        tree_method="hist", n_jobs=1, **more)

def lgb(objective, **more):
    return lambda kind="Regressor": getattr(lightgbm, f"LGBM{kind}")(
        objective=objective, n_estimators=100, max_depth=4, num_leaves=16, learning_rate=0.1,
        max_bin=255, reg_lambda=1.0, min_child_weight=1.0, min_child_samples=1, min_split_gain=0.0,
        n_jobs=1, verbose=-1, **more)

def folds(x, y, model, measure, weigh=None):
    scores = []
    for fold in range(5):
        test = np.arange(len(y)) % 5 == fold
        weight = None if weigh is None else weigh(y[~test])
        model.fit(x[~test], y[~test], sample_weight=weight)
        scores.append(measure(model, x[test], y[test]))
    return float(np.mean(scores))

by = lambda metric, **more: lambda model, x, y: metric(y, model.predict(x).astype(np.float64), **more)

def huber(y, p, delta):
    d = np.abs(y - p)
    return np.where(d <= delta, d * d / 2, delta * (d - delta / 2)).mean()

def pseudo_huber(y, p, delta):
    return (delta ** 2 * (np.sqrt(1 + ((y - p) / delta) ** 2) - 1)).mean()

def expectile(y, p, alpha):
    return (np.where(y > p, alpha, 1 - alpha) * (y - p) ** 2).mean()

def expectile_objective(y, p):
    a = np.where(p < y, 0.8, 0.2)
    return a * (p - y), a

def one_vs_all(model, x, y):
    p = model.predict_proba(x)
    p = p / p.sum(axis=1, keepdims=True)
    return -np.log(p[np.arange(len(y)), y.astype(int)]).mean()

probability = lambda model, x, y: m.log_loss(y, model.predict_proba(x).astype(np.float64))
diabetes, wine, cancer = load("diabetes.csv", "progression"), load("wine.csv", "cultivar"), load("breast_cancer.csv", "benign")
mean = float(diabetes[1].mean())
hundredth = diabetes[1] / np.float32(100)
geometric = float(np.expm1(np.log1p(hundredth).mean()))
figures = {
    "xgboost": xgboost.__version__,
    "lightgbm": lightgbm.__version__,
    "absolute xgboost": folds(*diabetes, xgb("reg:absoluteerror")(), by(m.mean_absolute_error)),
    "absolute lightgbm": folds(*diabetes, lgb("regression_l1")(), by(m.mean_absolute_error)),
    "quantile xgboost": folds(*diabetes, xgb("reg:quantileerror", quantile_alpha=0.8)(), by(m.mean_pinball_loss, alpha=0.8)),
    "quantile lightgbm": folds(*diabetes, lgb("quantile", alpha=0.8)(), by(m.mean_pinball_loss, alpha=0.8)),
    "huber lightgbm": folds(*diabetes, lgb("huber", alpha=20.0)(), by(huber, delta=20.0)),
    "pseudo_huber xgboost": folds(*diabetes, xgb("reg:pseudohubererror", huber_slope=100.0, base_score=mean)(), by(pseudo_huber, delta=100.0)),
    "expectile xgboost": folds(*diabetes, xgb(expectile_objective, base_score=mean)(), by(expectile, alpha=0.8)),
    "mape lightgbm": folds(*diabetes, lgb("mape")(), by(m.mean_absolute_percentage_error)),
    "poisson lightgbm": folds(*diabetes, lgb("poisson")(), by(m.mean_poisson_deviance)),
    "gamma xgboost": folds(*diabetes, xgb("reg:gamma")(), by(m.mean_gamma_deviance)),
    "gamma lightgbm": folds(*diabetes, lgb("gamma")(), by(m.mean_gamma_deviance)),
    "tweedie xgboost": folds(*diabetes, xgb("reg:tweedie")(), by(m.mean_tweedie_deviance, power=1.5)),
    "tweedie lightgbm": folds(*diabetes, lgb("tweedie")(), by(m.mean_tweedie_deviance, power=1.5)),
    "squared_log xgboost": folds(diabetes[0], hundredth, xgb("reg:squaredlogerror", base_score=geometric)(), by(m.root_mean_squared_log_error)),
    "one_vs_all lightgbm": folds(*wine, lgb("multiclassova")("Classifier"), one_vs_all),
    "scale_pos_weight xgboost": folds(*cancer, xgb("binary:logistic", scale_pos_weight=3.0)("Classifier"), probability),
    "balanced xgboost": folds(*cancer, xgb("binary:logistic")("Classifier"), probability, lambda y: compute_sample_weight("balanced", y)),
}
(HERE / "losses.json").write_text(json.dumps(figures, indent=1) + "\n")
print(json.dumps(figures, indent=1))
