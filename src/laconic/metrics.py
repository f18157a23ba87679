"""Metrics: every figure by which a model is judged, and who may see it. One registry, which all else asks.

A metric of the released model is measured on test records and on held-out ones, and clients may measure it on records
of their own. A row of a round has each under its name with the place in front: `auroc`, `holdout_auroc`,
`clients_auroc`. To add one, register it: rows, tables, pages, logs, gauges and trackers follow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from laconic.registry import Registry

if TYPE_CHECKING:
    import numpy as np

TEST, HELD_OUT, CLIENTS = PLACES = ("", "holdout_", "clients_")
"""Where a metric was measured, as it stands before its name."""
_WHERE = {TEST: "", HELD_OUT: ", held-out records", CLIENTS: ", clients' own records"}


@dataclass(frozen=True)
class Metric:
    """A figure in the rows of a run.

    Args:
        name: as rows call it.
        title: as pages call it.
        smaller_is_better: whether it is a loss.
        released: whether an outsider may see it: it follows from the released model and from records that are no
            client's, or from released sums. Otherwise only the server may.
        places: where it is measured.
        of_scores: for two classes, the figure from scores (positive for class 1) and targets; None where it is computed
            elsewhere.
        of_values: for quantities, the figure from predictions and targets.
        in_units: whether it is in the unit of the targets.
        interval: both ends of its 95 % interval, from what the figure itself is from (see `confidence.py`).
    """

    name: str
    title: str
    smaller_is_better: bool = False
    released: bool = True
    places: tuple[str, ...] = PLACES
    of_scores: Callable[[np.ndarray, np.ndarray], float] | None = None
    of_values: Callable[[np.ndarray, np.ndarray], float] | None = None
    in_units: bool = False
    interval: Callable[[np.ndarray, np.ndarray], tuple[float, float]] | None = None


def _interval(name: str) -> Callable[[np.ndarray, np.ndarray], tuple[float, float]]:
    """The function of that name in `confidence.py`, which is imported when it is needed."""

    def ends(predicted: np.ndarray, targets: np.ndarray) -> tuple[float, float]:
        from laconic import confidence

        found: tuple[float, float] = getattr(confidence, name)(predicted, targets)
        return found

    return ends


def _balanced_accuracy(scores: np.ndarray, targets: np.ndarray) -> float:
    """The mean of both classes' recall. The larger target is class 1."""
    right, positive = (scores > 0) == (targets > targets.min()), targets > targets.min()
    return float((right[positive].mean() + right[~positive].mean()) / 2)


def _auroc(scores: np.ndarray, targets: np.ndarray) -> float:
    """The probability that a record of class 1 has the higher score, ties counted half (Mann and Whitney 1947)."""
    import numpy as np

    positive = targets > targets.min()
    _, value, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[value]
    ones, zeros = int(positive.sum()), int((~positive).sum())
    return float((ranks[positive].sum() - ones * (ones + 1) / 2) / (ones * zeros))


def _rmse(predicted: np.ndarray, targets: np.ndarray) -> float:
    return float(((predicted - targets) ** 2).mean() ** 0.5)


def _mae(predicted: np.ndarray, targets: np.ndarray) -> float:
    return float(abs(predicted - targets).mean())


def _r2(predicted: np.ndarray, targets: np.ndarray) -> float:
    """1 − Σ(y − ŷ)²/Σ(y − ȳ)²: 0 for always saying the mean of these very targets. NaN where they are all the same."""
    spread = float(((targets - targets.mean()) ** 2).sum())
    return 1 - float(((targets - predicted) ** 2).sum()) / spread if spread > 0 else float("nan")


_KNOWN = (
    Metric("accuracy", "accuracy"),
    Metric("class_accuracy", "accuracy of the attacked class", released=False, places=(TEST,)),
    Metric("attack_accuracy", "success of the attack", released=False, places=(TEST,)),
    Metric(
        "balanced_accuracy",
        "balanced accuracy",
        of_scores=_balanced_accuracy,
        interval=_interval("balanced_accuracy_interval"),
    ),
    Metric("auroc", "AUROC", of_scores=_auroc, interval=_interval("auroc_interval")),
    Metric("r2", "R²", of_values=_r2, interval=_interval("r2_interval")),
    Metric(
        "rmse",
        "root mean squared error",
        smaller_is_better=True,
        of_values=_rmse,
        in_units=True,
        interval=_interval("rmse_interval"),
    ),
    Metric(
        "mae",
        "mean absolute error",
        smaller_is_better=True,
        of_values=_mae,
        in_units=True,
        interval=_interval("mae_interval"),
    ),
    Metric("loss", "loss", smaller_is_better=True),
)
METRICS = Registry[Metric]("metric", {metric.name: metric for metric in _KNOWN})
MAIN = ("auroc", "accuracy", "r2", "loss")
"""Which one stands for a run that is judged by none in particular: the first that there is."""


def columns(*places: str, released: bool = False) -> dict[str, Metric]:
    """The metrics as rows name them, place by place; only those that an outsider may see, if `released`."""
    return {
        place + metric.name: metric
        for place in places or PLACES
        for metric in METRICS.values()
        if place in metric.places and (metric.released or not released)
    }


def judging() -> Iterator[str]:
    """The names of the metrics by which the best round may be chosen."""
    return (metric.name for metric in METRICS.values() if HELD_OUT in metric.places)


def titles() -> dict[str, str]:
    """What a row of the server's own records may have, and what it is called; in the order in which pages choose."""

    def order(column: tuple[str, Metric]) -> tuple[bool, bool, int, int]:
        name, metric = column
        rank = MAIN.index(metric.name) if metric.name in MAIN else len(MAIN)
        return metric.smaller_is_better, HELD_OUT not in metric.places, int(name != metric.name), rank

    found = sorted(columns(TEST, HELD_OUT).items(), key=order)
    return {name: metric.title + _WHERE[name.removesuffix(metric.name)] for name, metric in found}
