"""What the last model does on the test records, as small counts: who is taken for whom, ROC, calibration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

MOST_CLASSES = 100
"""A confusion matrix of more classes is not kept: it could not be read."""
_ROC_POINTS = 101
_BINS = 10


def classified_figures(
    outputs: np.ndarray, targets: np.ndarray, *, names: Sequence[str] = (), logits: bool = True
) -> dict[str, Any] | None:
    """Counts and curves of outputs (records, classes), or (records,) for two classes; None where there is nothing.

    `logits` says that the outputs are those of a cross-entropy, so that they stand for probabilities.
    """
    if targets.dtype.kind not in "iu" or targets.ndim != 1 or outputs.ndim > 2 or not np.isfinite(outputs).all():
        return None
    if outputs.ndim == 1:
        outputs = np.stack([np.zeros_like(outputs), outputs], axis=1)
    classes = outputs.shape[1]
    if not len(targets) or targets.min() < 0 or targets.max() >= classes:
        return None
    predicted = outputs.argmax(1)
    found: dict[str, Any] = {
        "records": len(targets),
        "classes": [names[c] if c < len(names) else str(c) for c in range(classes)],
    }
    if classes <= MOST_CLASSES:
        pairs = np.bincount(targets * classes + predicted, minlength=classes**2)
        found["confusion"] = pairs.reshape(classes, classes).tolist()
    if classes == 2 and len(np.unique(targets)) == 2:
        found["roc"] = _roc(outputs[:, 1] - outputs[:, 0], targets)
    if logits:
        found["calibration"] = _calibration(outputs, targets, predicted)
    return found


def _roc(scores: np.ndarray, targets: np.ndarray) -> dict[str, list[float]]:
    """(false positive rate, true positive rate) for falling thresholds; records of one score go together."""
    order = np.argsort(-scores, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(scores[order])), len(scores) - 1)
    hits = np.cumsum(targets[order])[ends]
    true = np.append(0.0, hits / hits[-1])
    false = np.append(0.0, (ends + 1 - hits) / (ends[-1] + 1 - hits[-1]))
    if len(true) > _ROC_POINTS:
        wanted = np.linspace(0, 2, _ROC_POINTS)
        at = np.unique(np.minimum(np.searchsorted(true + false, wanted), len(true) - 1))
        true, false = true[at], false[at]
    return {"false_positive_rate": _rounded(false), "true_positive_rate": _rounded(true)}


def _calibration(outputs: np.ndarray, targets: np.ndarray, predicted: np.ndarray) -> dict[str, Any]:
    """Of records with about the same probability, the mean of it and how often it came true.

    Of two classes it is that of the second one, otherwise that of the predicted class. The error is the mean distance
    of the two over all records (expected calibration error, ten bins of equal width).
    """
    shifted = np.exp(outputs - outputs.max(1, keepdims=True))
    probabilities = shifted / shifted.sum(1, keepdims=True)
    if outputs.shape[1] == 2:
        stated, true, of = probabilities[:, 1], targets == 1, "second class"
    else:
        stated, true, of = probabilities.max(1), predicted == targets, "predicted class"
    bins = np.minimum((stated * _BINS).astype(int), _BINS - 1)
    rows = []
    for number in np.unique(bins).tolist():
        inside = bins == number
        mean, share = float(stated[inside].mean()), float(true[inside].mean())
        rows.append({"records": int(inside.sum()), "stated": round(mean, 4), "true": round(share, 4)})
    error = sum(row["records"] * abs(row["stated"] - row["true"]) for row in rows) / len(targets)
    return {"of": of, "bins": rows, "error": round(error, 4)}


def _rounded(values: np.ndarray) -> list[float]:
    return [round(value, 4) for value in values.tolist()]
