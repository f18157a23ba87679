"""How good outputs are: for two classes, also the metrics that a rare class needs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)


def two_class_scores(outputs: Sequence[Tensor], targets: Tensor) -> np.ndarray | None:
    """How much each record's output speaks for class 1 (0: undecided); None where there are not two classes."""
    if targets.is_floating_point() or targets.ndim != 1 or not outputs:
        return None
    if outputs[0].ndim == 1:
        parts = list(outputs)
    elif outputs[0].ndim == 2 and outputs[0].shape[1] == 2:
        parts = [o[:, 1] - o[:, 0] for o in outputs]
    else:
        return None
    return np.concatenate([part.double().cpu().numpy() for part in parts])


def two_class_metrics(scores: np.ndarray, targets: np.ndarray) -> dict[str, float]:
    """Balanced accuracy, (TPR + TNR) / 2, and the area under the ROC curve; nothing where one class is missing."""
    if len(np.unique(targets)) != 2 or not np.isfinite(scores).all():
        return {}
    from sklearn.metrics import balanced_accuracy_score, roc_auc_score

    return {
        "balanced_accuracy": float(balanced_accuracy_score(targets, scores > 0)),
        "auroc": float(roc_auc_score(targets, scores)),
    }


def by_client(scores: np.ndarray, targets: np.ndarray, clients: np.ndarray) -> dict[str, list[float]]:
    """The `QUANTILES` of the metrics over clients that have records of both classes; nothing where none has."""
    order = np.argsort(clients, kind="stable")
    borders = np.flatnonzero(np.diff(clients[order])) + 1
    found = [two_class_metrics(scores[rows], targets[rows]) for rows in np.split(order, borders)]
    both = [metrics for metrics in found if metrics]
    if not both:
        return {}
    return {f"{name}_by_client": np.quantile([m[name] for m in both], QUANTILES).tolist() for name in both[0]}
