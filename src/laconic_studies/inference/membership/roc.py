"""How well a score tells two worlds apart: AUC, and true positives at few false ones, with confidence intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from laconic_studies.inference.scores import Figure, auc

RATES = (0.001, 0.01)
"""The false-positive rates at which attacks are compared: an average over all of them hides who is really found."""


def clopper_pearson(hits: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """The exact two-sided interval of a rate: each end is wrong with probability (1 − confidence)/2 at most."""
    from scipy.stats import beta

    tail = (1 - confidence) / 2
    low = float(beta.ppf(tail, hits, trials - hits + 1)) if hits else 0.0
    high = float(beta.ppf(1 - tail, hits + 1, trials - hits)) if hits < trials else 1.0
    return low, high


@dataclass(frozen=True, kw_only=True)
class Point:
    """One threshold on the curve. It was set before the counted trials were looked at, so both rates are binomial."""

    rate: float
    """The false-positive rate for which the threshold was set."""
    threshold: float
    false: int
    outs: int
    hits: int
    ins: int
    confidence: float = 0.95

    @property
    def fpr(self) -> float:
        return self.false / self.outs

    @property
    def tpr(self) -> float:
        return self.hits / self.ins

    @property
    def fpr_interval(self) -> tuple[float, float]:
        return clopper_pearson(self.false, self.outs, self.confidence)

    @property
    def tpr_interval(self) -> tuple[float, float]:
        return clopper_pearson(self.hits, self.ins, self.confidence)

    def to_dict(self) -> dict[str, Any]:
        (fpr_low, fpr_high), (tpr_low, tpr_high) = self.fpr_interval, self.tpr_interval
        return {
            "rate": self.rate,
            "fpr": self.fpr,
            "fpr_low": fpr_low,
            "fpr_high": fpr_high,
            "tpr": self.tpr,
            "tpr_low": tpr_low,
            "tpr_high": tpr_high,
        }


@dataclass(frozen=True, kw_only=True)
class Roc:
    """What the scores of a test are worth."""

    auc: Figure
    points: tuple[Point, ...]

    def at(self, rate: float) -> Point:
        return next(point for point in self.points if point.rate == rate)


def roc(
    ins: np.ndarray,
    outs: np.ndarray,
    *,
    calibration: np.ndarray,
    rates: Sequence[float] = RATES,
    confidence: float = 0.95,
) -> Roc:
    """The curve of test scores. Thresholds come from `calibration`: scores of other trials without the target.

    A trial is positive if its score is above the threshold. A tie with it counts as negative.
    """
    points = []
    for rate in rates:
        threshold = float(np.quantile(calibration, 1 - rate, method="higher"))
        points.append(
            Point(
                rate=rate,
                threshold=threshold,
                false=int((outs > threshold).sum()),
                outs=len(outs),
                hits=int((ins > threshold).sum()),
                ins=len(ins),
                confidence=confidence,
            )
        )
    return Roc(auc=auc(ins, outs), points=tuple(points))
