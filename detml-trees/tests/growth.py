"""Writes growth.json: what XGBoost reaches with other growth, and under constraints.

pip install xgboost-cpu==3.2.0 scikit-learn==1.9.1 && python growth.py

The set, its fold and its "discrete" columns are those of accuracy.py: both libraries have a bin for
each value there, and must agree closely. Every figure is the area under the ROC curve.
"""
import json, pathlib
import numpy as np, xgboost
from sklearn.metrics import roc_auc_score
import csv, gzip

HERE = pathlib.Path(__file__).parent
with gzip.open(HERE / "../../fixtures/data/flights.csv.gz", "rt") as file:
    rows = list(csv.reader(file))
at = rows[0].index("late")
table = np.array([[np.nan if cell == "" else float(cell) for cell in row] for row in rows[1:]], dtype=np.float32)
x, y = np.delete(table, at, axis=1), table[:, at]
few = [len(np.unique(column[~np.isnan(column)])) <= 255 for column in x.T]
x = x[:, few]
names = [name for i, name in enumerate(rows[0]) if i != at]
names = [name for name, is_few in zip(names, few) if is_few]
test = np.arange(len(y)) % 5 == 0

SETTINGS = dict(n_estimators=100, max_depth=6, learning_rate=0.1, max_bin=255, tree_method="hist", n_jobs=1)
LEAFWISE = dict(grow_policy="lossguide", max_leaves=31, max_depth=0)
ways = [(-1, 0, 1)[i % 3] for i in range(x.shape[1])]
groups = [[i for i in range(x.shape[1]) if i % 3 == k] for k in range(2)]

def auc(**settings):
    model = xgboost.XGBClassifier(**SETTINGS | settings)
    model.fit(x[~test], y[~test])
    return float(roc_auc_score(y[test], model.predict_proba(x[test])[:, 1].astype(np.float64)))

figures = {
    "xgboost": xgboost.__version__,
    "columns": names,
    "lossguide": auc(**LEAFWISE),
    "lossguide, 200 leaves": auc(**LEAFWISE | dict(max_leaves=200)),
    "depthwise, 20 leaves": auc(max_leaves=20),
    "monotone": auc(monotone_constraints=tuple(ways)),
    "monotone, lossguide": auc(monotone_constraints=tuple(ways), **LEAFWISE),
    "interaction": auc(interaction_constraints=str(groups)),
    "free": auc(),
}
(HERE / "growth.json").write_text(json.dumps(figures, indent=1) + "\n")
print(figures)
