"""How sure figures of a model are: 95 % intervals, and the calibration of probabilities.

Records are taken for independent draws. Where a person has several of them, intervals are too narrow.

proportions   Wilson's score interval (JASA 1927): of accuracy, sensitivity, specificity, PPV and NPV
balanced      Newcombe's hybrid of two Wilson intervals (Statistics in Medicine 1998, method 10), for the mean of two
AUROC         DeLong, DeLong and Clarke-Pearson (Biometrics 1988): the variance from the ranks, ties with midranks (Sun
              and Xu, IEEE SPL 2014), on the logit scale, so that it ends within [0, 1]
RMSE, R²      the delta method on log MSE and on log(1 − R²), with the variance of the squared errors
MAE, Brier    the mean of the errors and its standard error
calibration   logistic regression of the outcome on the logit that was said (Cox, Biometrika 1958): the slope, and the
              intercept with a slope of 1; Wald intervals
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

LEVEL = 0.95
Z = 1.959963984540054
"""The normal quantile of (1 + `LEVEL`)/2."""
_STEPS, _STEEP = 100, 1e3
"""Newton steps; a slope beyond this means that the classes are apart, and no slope is best."""


class Interval(NamedTuple):
    """Both ends."""

    low: float
    high: float


class Figure(NamedTuple):
    """A value and its interval."""

    value: float
    low: float
    high: float


def wilson(share: float, count: float) -> Interval:
    """Of a share of so many records."""
    if count <= 0:
        return Interval(0.0, 1.0)
    middle = (share + Z**2 / (2 * count)) / (1 + Z**2 / count)
    half = Z / (1 + Z**2 / count) * np.sqrt(share * (1 - share) / count + Z**2 / (4 * count**2))
    return Interval(max(0.0, float(middle - half)), min(1.0, float(middle + half)))


def proportion(hits: int, count: int) -> Figure | None:
    """A share with its interval; None of nothing."""
    return Figure(hits / count, *wilson(hits / count, count)) if count else None


def delong(scores: np.ndarray, targets: np.ndarray) -> tuple[float, float]:
    """(AUROC, its variance) of scores for classes 0 and 1; the variance is NaN where a class has one record."""
    from scipy.stats import rankdata

    positive, negative = scores[targets == 1], scores[targets == 0]
    m, n = len(positive), len(negative)
    ranks = rankdata(np.concatenate([positive, negative]))
    area = (ranks[:m].sum() - m * (m + 1) / 2) / (m * n)
    if min(m, n) < 2:
        return float(area), float("nan")
    above = (ranks[:m] - rankdata(positive)) / n  # of each positive record, the share of negative ones below it
    below = 1 - (ranks[m:] - rankdata(negative)) / m
    return float(area), float(above.var(ddof=1) / m + below.var(ddof=1) / n)


def auroc_interval(scores: np.ndarray, targets: np.ndarray) -> Interval:
    """Where the classes are apart, or one has a single record, the ranks tell no variance: then it is that of a share
    of as many records as the rarer class has (Wilson)."""
    area, variance = delong(scores, targets)
    if not variance > 0 or not 0 < area < 1:
        return wilson(area, min(int((targets == 1).sum()), int((targets == 0).sum())))
    return _logistic(np.log(area / (1 - area)), np.sqrt(variance) / (area * (1 - area)))


def _logistic(logit: float, error: float) -> Interval:
    low, high = (float(1 / (1 + np.exp(-(logit + sign * Z * error)))) for sign in (-1, 1))
    return Interval(low, high)


def balanced_accuracy_interval(scores: np.ndarray, targets: np.ndarray) -> Interval:
    """Of the mean of both classes' accuracies, at a score of 0."""
    shares = [np.mean((scores > 0)[targets == label] == label) for label in (0, 1)]
    ends = [wilson(float(share), int((targets == label).sum())) for label, share in enumerate(shares)]
    low = np.sqrt(sum((share - end.low) ** 2 for share, end in zip(shares, ends, strict=True))) / 2
    high = np.sqrt(sum((end.high - share) ** 2 for share, end in zip(shares, ends, strict=True))) / 2
    middle = float(np.mean(shares))
    return Interval(middle - float(low), middle + float(high))


def rmse_interval(predicted: np.ndarray, targets: np.ndarray) -> Interval:
    """√ of the interval of the mean squared error."""
    squares = (targets - predicted) ** 2
    low, high = _on_log_scale(float(squares.mean()), squares)
    return Interval(low**0.5, high**0.5)


def mae_interval(predicted: np.ndarray, targets: np.ndarray) -> Interval:
    """Of the mean absolute error."""
    return _mean(abs(targets - predicted), least=0.0)


def r2_interval(predicted: np.ndarray, targets: np.ndarray) -> Interval:
    """With A the mean squared error and B the variance of the targets, 1 − R² = A/B varies as (e² − A)/B −
    A·((y − ȳ)² − B)/B² does, to first order."""
    squares, spread = (targets - predicted) ** 2, (targets - targets.mean()) ** 2
    ratio = float(squares.mean() / spread.mean())
    low, high = _on_log_scale(ratio, squares / spread.mean() - ratio * spread / spread.mean())
    return Interval(1 - high, 1 - low)


def _on_log_scale(value: float, parts: np.ndarray) -> Interval:
    """Of a positive value that varies as the mean of the parts does."""
    if not value > 0:
        return Interval(value, value)
    factor = float(np.exp(Z * parts.std(ddof=1) / np.sqrt(len(parts)) / value)) if len(parts) > 1 else float("inf")
    return Interval(value / factor, value * factor)


def _mean(values: np.ndarray, *, least: float) -> Interval:
    error = Z * float(values.std(ddof=1)) / len(values) ** 0.5 if len(values) > 1 else float("inf")
    return Interval(max(least, float(values.mean()) - error), float(values.mean()) + error)


def brier(probabilities: np.ndarray, targets: np.ndarray) -> Figure:
    """The mean squared distance of the probability of class 1 from what came true (Brier 1950)."""
    squares = (probabilities - targets) ** 2
    low, high = _mean(squares, least=0.0)
    return Figure(float(squares.mean()), low, min(1.0, high))


def calibration_slope(log_odds: np.ndarray, targets: np.ndarray) -> Figure | None:
    """b in logit P(y = 1) = a + b·(log odds that were said). 1 is right, less is too sure of itself; None where the log
    odds are all alike, or tell the classes apart without an error."""
    if len(np.unique(targets)) < 2 or np.ptp(log_odds) == 0:
        return None
    found = _logistic_fit(np.stack([np.ones_like(log_odds), log_odds], 1), targets, np.zeros(len(targets)))
    return None if found is None else found[1]


def calibration_intercept(log_odds: np.ndarray, targets: np.ndarray) -> Figure | None:
    """a in logit P(y = 1) = a + (log odds that were said): above 0 where too small probabilities were said."""
    if len(np.unique(targets)) < 2:
        return None
    found = _logistic_fit(np.ones((len(targets), 1)), targets, log_odds)
    return None if found is None else found[0]


def _logistic_fit(columns: np.ndarray, targets: np.ndarray, offset: np.ndarray) -> list[Figure] | None:
    """The coefficients of a logistic regression, by Newton steps that are halved until the likelihood grows."""

    def loss(beta: np.ndarray) -> float:
        linear = columns @ beta + offset
        return float((np.logaddexp(0, linear) - targets * linear).sum())

    beta = np.zeros(columns.shape[1])
    scale = max(1.0, float(abs(columns).max()))
    for _ in range(_STEPS):
        chances = 1 / (1 + np.exp(-np.clip(columns @ beta + offset, -700, 700)))
        information = columns.T @ (columns * (chances * (1 - chances))[:, None])
        try:
            step = np.linalg.solve(information, columns.T @ (targets - chances))
        except np.linalg.LinAlgError:
            return None
        before, size = loss(beta), 1.0
        while loss(beta + size * step) > before + 1e-12 and size > 1e-6:
            size /= 2
        beta = beta + size * step
        if abs(beta).max() > _STEEP:
            return None
        if abs(size * step).max() * scale < 1e-10:
            errors = Z * np.sqrt(np.diag(np.linalg.inv(information)))
            return [Figure(float(b), float(b - e), float(b + e)) for b, e in zip(beta, errors, strict=True)]
    return None


def by_luck(better: int, worse: int) -> float:
    """The chance of so many of both, or more on the better side, if each were as likely: the sign test, exact."""
    from scipy.stats import binom

    return float(binom.sf(better - 1, better + worse, 0.5)) if better + worse else 1.0
