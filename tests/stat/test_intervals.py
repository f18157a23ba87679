"""95 % intervals hold what they are about in about 95 % of all draws.

Of 2,000 draws the share that hold it has a standard deviation of 0.5 %. A test fails below 93 % and above 97.5 %: for
an interval that holds exactly 95 % this has a probability below 1e-4 (4 standard deviations). Of 1,000 draws, for
calibration, the limits are 92.5 % and 98 %, with a probability of 3e-4. Seeds are fixed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import norm

from laconic.confidence import (
    auroc_interval,
    balanced_accuracy_interval,
    calibration_intercept,
    calibration_slope,
    delong,
    mae_interval,
    r2_interval,
    rmse_interval,
    wilson,
)

DRAWS = 2000
Draw = Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]]


def holds(draw: Draw, ends: Callable[..., tuple[float, float]], truth: float, draws: int = DRAWS) -> float:
    """In which share of all draws the interval holds the truth."""
    rng, held = np.random.default_rng(7), 0
    for _ in range(draws):
        low, high = ends(*draw(rng))
        held += low <= truth <= high
    return held / draws


def separated(distance: float, positives: int, negatives: int, digits: int | None = None) -> Draw:
    """Normal scores of two classes, rounded so that there are ties, or not."""

    def draw(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        targets = np.repeat([1, 0], [positives, negatives])
        scores = rng.normal(0, 1, len(targets)) + distance * targets
        return (scores if digits is None else scores.round(digits)), targets

    return draw


@pytest.mark.parametrize(("area", "positives"), [(0.5, 40), (0.75, 40), (0.75, 150), (0.92, 60)])
def test_the_auroc(area: float, positives: int) -> None:
    draw = separated(float(np.sqrt(2) * norm.ppf(area)), positives, 160)
    assert 0.93 <= holds(draw, auroc_interval, area) <= 0.975


def test_the_auroc_of_tied_scores() -> None:
    """Scores rounded to whole numbers; the truth is P(X > Y) + ½·P(X = Y) of the rounded ones."""
    steps = np.arange(-8, 9)
    positive, negative = (norm.cdf(steps + 0.5 - d) - norm.cdf(steps - 0.5 - d) for d in (1.0, 0.0))
    truth = float(positive @ (np.cumsum(negative) - negative / 2))
    assert 0.93 <= holds(separated(1.0, 60, 120, digits=0), auroc_interval, truth) <= 0.975


def test_an_interval_that_takes_ranks_for_independent_is_noticed() -> None:
    """The twin: half of DeLong's variance holds the truth too seldom."""

    def too_narrow(scores: np.ndarray, targets: np.ndarray) -> tuple[float, float]:
        area, variance = delong(scores, targets)
        return area - 1.96 * (variance / 2) ** 0.5, area + 1.96 * (variance / 2) ** 0.5

    draw = separated(float(np.sqrt(2) * norm.ppf(0.75)), 60, 160)
    assert holds(draw, too_narrow, 0.75) < 0.9


@pytest.mark.parametrize(("share", "count"), [(0.5, 50), (0.05, 200), (0.9, 100)])
def test_a_proportion(share: float, count: int) -> None:
    hits = np.random.default_rng(1).binomial(count, share, DRAWS)
    found = [wilson(float(h) / count, count) for h in hits]
    assert 0.93 <= np.mean([low <= share <= high for low, high in found]) <= 0.975


def test_balanced_accuracy() -> None:
    draw = separated(1.2, 40, 160)
    truth = (norm.cdf(1.2) + norm.cdf(0)) / 2
    assert 0.93 <= holds(draw, balanced_accuracy_interval, truth) <= 0.975


def values(count: int) -> Draw:
    """Errors with heavier tails than the normal distribution's (Student's t, 10 degrees, scaled to variance 1)."""

    def draw(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        targets = rng.normal(10, 2, count)
        return targets + rng.standard_t(10, count) * 0.8**0.5, targets

    return draw


def test_errors_of_quantities() -> None:
    """R² in the population is 1 − 1/4. The mean of |t| with 10 degrees is 2·√10·Γ(5.5)/(√π·9·Γ(5))."""
    from scipy.special import gamma

    mean = 2 * 10**0.5 * gamma(5.5) / (np.pi**0.5 * 9 * gamma(5)) * 0.8**0.5
    for ends, truth in ((rmse_interval, 1.0), (mae_interval, mean), (r2_interval, 0.75)):
        assert 0.93 <= holds(values(300), ends, truth) <= 0.975, ends.__name__


def test_calibration() -> None:
    """Log odds that were said 1.5 times as large, and 0.4 too high: the slope is 2/3."""

    def draw(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        true = rng.normal(-1, 1, 400)
        return 1.5 * true, (rng.random(400) < 1 / (1 + np.exp(-true))).astype(int)

    def too_high(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        true = rng.normal(-1, 1, 400)
        return true + 0.4, (rng.random(400) < 1 / (1 + np.exp(-true))).astype(int)

    slope = lambda *drawn: calibration_slope(*drawn)[1:]  # type: ignore[index]  # noqa: E731
    intercept = lambda *drawn: calibration_intercept(*drawn)[1:]  # type: ignore[index]  # noqa: E731
    assert 0.925 <= holds(draw, slope, 2 / 3, 1000) <= 0.98
    assert 0.925 <= holds(too_high, intercept, -0.4, 1000) <= 0.98
