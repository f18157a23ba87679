"""How well a score tells two worlds apart, with confidence intervals; and what a promise of privacy allows it.

(ε, δ) means TPR ≤ e^ε·FPR + δ, and by the same rule for the other answer TPR ≤ 1 − e^(−ε)·(1 − δ − FPR), for every
test of whether the target was there. A Gaussian mechanism says more: TPR ≤ Φ(Φ⁻¹(FPR) + μ), where μ is the distance
of the two worlds in standard deviations of the noise, √T/σ after T rounds (Dong, Roth and Su 2022).

Both bounds are concave in FPR. So they hold for averages as well: over the rest of a cohort, and over targets that
have thresholds of their own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from laconic.experiment.experiment import Experiment
from laconic.privacy.accounting.tight import gaussian_epsilon
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


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What is promised to the target. Without `mu` nothing is known but ε and δ."""

    epsilon: float
    delta: float
    mu: float | None = None

    def tpr_bound(self, fpr: float) -> float:
        """By ε and δ."""
        either = math.exp(min(self.epsilon, 700.0)) * fpr + self.delta
        other = 1 - math.exp(-self.epsilon) * (1 - self.delta - fpr)
        return float(np.clip(min(either, other), 0.0, 1.0))

    def gaussian_bound(self, fpr: float) -> float | None:
        """By the Gaussian trade-off curve; None where there is none."""
        if self.mu is None:
            return None
        from scipy.stats import norm

        return float(norm.cdf(norm.ppf(fpr) + self.mu)) if 0 < fpr < 1 else float(fpr >= 1)

    def bound(self, fpr: float) -> float:
        """The tighter of the two."""
        gaussian = self.gaussian_bound(fpr)
        # δ has a part for what finite precision of the noise may cost, which the Gaussian curve does not know of.
        return self.tpr_bound(fpr) if gaussian is None else min(self.tpr_bound(fpr), gaussian + self.delta)

    def exceeded(self, point: Point, false_alarm: float) -> bool:
        """Whether the counts disprove the claim. A true claim is disproved with probability `false_alarm` at most.

        The lower end for TPR is compared with the bound at the upper end for FPR: each is wrong half as often.
        """
        confidence = 1 - false_alarm  # an end is wrong with half of what is left
        low, _ = clopper_pearson(point.hits, point.ins, confidence)
        _, high = clopper_pearson(point.false, point.outs, confidence)
        return low > self.bound(high)


def claim_of(experiment: Experiment, rounds: int, *, record: bool = False) -> Claim | None:
    """What the server is not supposed to learn of a client that takes part in so many rounds; None without privacy.

    With `record` the question is of one record of the client. Where clients are protected as a whole, another record is
    another code of the client. Both are within S of nothing, so they are 2·S apart at most, and μ is twice as large.
    Where single records are protected, the accountant answers for them.
    """
    accountant, scheme = experiment.accountant, experiment.scheme
    if accountant is None or experiment.budget is None:
        return None
    delta = experiment.budget.delta
    if scheme.record_level:
        return Claim(epsilon=accountant.participant_epsilon(rounds), delta=delta) if record else None
    release = replace(accountant.main, sensitivity_scale=2.0) if record else accountant.main
    sigma = release.multiplier / math.sqrt(rounds)
    if not record:
        return Claim(epsilon=accountant.participant_epsilon(rounds), delta=delta, mu=1 / sigma)
    epsilon = gaussian_epsilon(sigma, delta - experiment.delta_slack())
    return Claim(epsilon=epsilon, delta=delta, mu=1 / sigma)
