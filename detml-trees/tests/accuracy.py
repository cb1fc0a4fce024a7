"""Writes accuracy.json: what XGBoost reaches on the sets of fixtures/data.

pip install xgboost-cpu==3.2.0 scikit-learn==1.9.1 && python accuracy.py

Row i is tested in fold i % 5 and trained on in the others. A figure is the mean over the five
folds (for flights the first one, of 100 trees) of the area under the ROC curve, the log loss or the root mean squared error.

"discrete" are the columns of at most 255 distinct values: there both libraries have a bin for
each value, and must agree closely. Elsewhere they cut at other quantiles; the figures with one
bin fewer show how far that alone moves XGBoost.
"""
import csv, gzip, json, pathlib
import numpy as np, xgboost
from sklearn.metrics import log_loss, mean_squared_error, roc_auc_score

HERE = pathlib.Path(__file__).parent
DATA = HERE / "../../fixtures/data"

def load(name, target):
    opened = gzip.open if name.endswith("gz") else open
    with opened(DATA / name, "rt") as file:
        rows = list(csv.reader(file))
    at = rows[0].index(target)
    table = np.array([[np.nan if cell == "" else float(cell) for cell in row] for row in rows[1:]], dtype=np.float32)
    return np.delete(table, at, axis=1), table[:, at]

def folds(x, y, model, measure, count=5):
    scores = []
    for fold in range(count):
        test = np.arange(len(y)) % 5 == fold
        model.fit(x[~test], y[~test])
        scores.append(measure(model, x[test], y[test]))
    return float(np.mean(scores))

SETTINGS = dict(n_estimators=200, max_depth=6, learning_rate=0.1, max_bin=255, tree_method="hist", n_jobs=1)
auc = lambda m, x, y: roc_auc_score(y, m.predict_proba(x)[:, 1].astype(np.float64))
loss = lambda m, x, y: log_loss(y, m.predict_proba(x).astype(np.float64))
rmse = lambda m, x, y: mean_squared_error(y, m.predict(x)) ** 0.5

def discrete(x, y):
    few = [len(np.unique(column[~np.isnan(column)])) <= 255 for column in x.T]
    return x[:, few], y

classifier, regressor = xgboost.XGBClassifier(**SETTINGS), xgboost.XGBRegressor(**SETTINGS)
short = xgboost.XGBClassifier(**SETTINGS | dict(n_estimators=100))
fewer = xgboost.XGBClassifier(**SETTINGS | dict(max_bin=254))
short_fewer = xgboost.XGBClassifier(**SETTINGS | dict(n_estimators=100, max_bin=254))
cancer, flights = load("breast_cancer.csv", "benign"), load("flights.csv.gz", "late")
figures = {
    "breast_cancer auc": folds(*cancer, classifier, auc),
    "breast_cancer auc, 254 bins": folds(*cancer, fewer, auc),
    "flights auc": folds(*flights, short, auc, 1),
    "flights auc, 254 bins": folds(*flights, short_fewer, auc, 1),
    "flights discrete auc": folds(*discrete(*flights), short, auc, 1),
    "wine log_loss": folds(*load("wine.csv", "cultivar"), classifier, loss),
    "diabetes rmse": folds(*load("diabetes.csv", "progression"), regressor, rmse),
}
figures = {"xgboost": xgboost.__version__} | figures
(HERE / "accuracy.json").write_text(json.dumps(figures, indent=1) + "\n")
print(figures)
