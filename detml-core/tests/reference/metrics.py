"""Reference values of `tests/metrics.rs`, by scikit-learn.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install scikit-learn==1.9.1
    /tmp/venv/bin/python metrics.py    # writes metrics.json
"""

import json
from pathlib import Path

import numpy as np
from sklearn import metrics as m

draw = np.random.default_rng(5)
n = 200
eighths = lambda a: np.round(np.asarray(a) * 8) / 8
label = (draw.random(n) < 0.3).astype(float)
guess = np.where(draw.random(n) < 0.7, label, 1 - label)
# Multiples of 1/64 strictly between 0 and 1: exact in f32, with many ties.
score = np.clip(np.round((0.3 * label + 0.7 * draw.random(n)) * 64), 1, 63) / 64
classes = draw.integers(0, 4, n).astype(float)
class_guess = np.where(draw.random(n) < 0.6, classes, draw.integers(0, 4, n)).astype(float)
parts = draw.integers(1, 16, (n, 4))
# Rows of multiples of 1/64 that sum to 1.
for row in parts:
    row[3] = 64 - row[:3].sum()
proba = parts / 64
value = eighths(draw.normal(2, 3, n))
estimate = value + eighths(draw.normal(0, 1, n))
count = draw.poisson(2, n).astype(float)
rate = np.maximum(eighths(count + draw.normal(0, 1, n)), 0.125)
weight = eighths(draw.random(n) * 2)

out = {"n": n}
for name in ["label", "guess", "score", "classes", "class_guess", "value", "estimate", "count",
             "rate", "weight"]:
    out[name] = locals()[name].tolist()
out["proba"] = proba.ravel().tolist()


def values(w):
    macro = dict(average=None, zero_division=0, sample_weight=w)
    return {
        "accuracy": m.accuracy_score(label, guess, sample_weight=w),
        "balanced_accuracy": m.balanced_accuracy_score(classes, class_guess, sample_weight=w),
        "confusion": m.confusion_matrix(classes, class_guess, sample_weight=w).ravel().tolist(),
        "precision": m.precision_score(label, guess, sample_weight=w),
        "recall": m.recall_score(label, guess, sample_weight=w),
        "f1": m.f1_score(label, guess, sample_weight=w),
        "class_precision": m.precision_score(classes, class_guess, **macro).tolist(),
        "class_recall": m.recall_score(classes, class_guess, **macro).tolist(),
        "class_f1": m.f1_score(classes, class_guess, **macro).tolist(),
        "roc_auc": m.roc_auc_score(label, score, sample_weight=w),
        "average_precision": m.average_precision_score(label, score, sample_weight=w),
        "log_loss": m.log_loss(label, score, sample_weight=w),
        "log_loss_classes": m.log_loss(classes, proba, sample_weight=w),
        "brier": m.brier_score_loss(label, score, sample_weight=w),
        "mean_squared_error": m.mean_squared_error(value, estimate, sample_weight=w),
        "root_mean_squared_error": m.root_mean_squared_error(value, estimate, sample_weight=w),
        "mean_absolute_error": m.mean_absolute_error(value, estimate, sample_weight=w),
        "r2": m.r2_score(value, estimate, sample_weight=w),
        "mean_absolute_percentage_error":
            m.mean_absolute_percentage_error(rate, count, sample_weight=w),
        "pinball": m.mean_pinball_loss(value, estimate, alpha=0.1, sample_weight=w),
        "poisson_deviance": m.mean_poisson_deviance(count, rate, sample_weight=w),
        "gamma_deviance": m.mean_gamma_deviance(rate, rate[::-1], sample_weight=w),
        "tweedie_deviance":
            m.mean_tweedie_deviance(count, rate, power=1.25, sample_weight=w),
        "root_mean_squared_log_error":
            m.root_mean_squared_log_error(count, rate, sample_weight=w),
        # By their formulas: scikit-learn has no such metrics.
        "expectile": np.average(
            np.where(value > estimate, 0.3, 0.7) * (value - estimate) ** 2, weights=w),
        "huber": np.average(np.where(
            np.abs(value - estimate) <= 0.9, (value - estimate) ** 2 / 2,
            0.9 * (np.abs(value - estimate) - 0.45)), weights=w),
        "pseudo_huber": np.average(
            0.25 * (np.sqrt(1 + ((value - estimate) / 0.5) ** 2) - 1), weights=w),
    }


out["plain"] = values(None)
out["plain"]["median_absolute_error"] = m.median_absolute_error(value, estimate)
out["weighted"] = values(weight)
Path(__file__).with_name("metrics.json").write_text(json.dumps(out) + "\n")
