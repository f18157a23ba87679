"""The parts of membership inference that need no federation: intervals, thresholds, likelihood ratios, bounds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from laconic.privacy.accounting.tight import gaussian_epsilon
from laconic_studies.inference.membership.likelihood_ratio import LikelihoodRatio
from laconic_studies.inference.membership.roc import Point, clopper_pearson, roc
from laconic_studies.inference.membership.trade_off import Claim


@pytest.mark.parametrize("trials", [1, 7, 40])
def test_an_exact_interval_holds_at_least_as_often_as_it_says(trials: int) -> None:
    """Over all outcomes, exactly: no sampling."""
    intervals = [clopper_pearson(hits, trials, 0.9) for hits in range(trials + 1)]
    for rate in np.linspace(0, 1, 41):
        holds = [low <= rate <= high for low, high in intervals]
        assert stats.binom.pmf(np.flatnonzero(holds), trials, rate).sum() >= 0.9 - 1e-12


def test_thresholds_come_from_calibration_alone() -> None:
    found = roc(np.array([3.0, 5.0]), np.array([5.0, 1.0, 9.0]), calibration=np.arange(100.0), rates=(0.1,))
    (point,) = found.points
    assert point.threshold == 90 and (point.hits, point.false) == (0, 0)
    (point,) = roc(np.array([3.0]), np.array([2.0]), calibration=np.array([2.0, 2.0]), rates=(0.1,)).points
    assert (point.hits, point.false) == (1, 0)  # a tie with the threshold is no alarm


def test_the_ratio_of_known_gaussians_is_found() -> None:
    rng = np.random.default_rng(0)
    ins, outs = rng.normal(1, 2, 200_000), rng.normal(0, 1, 200_000)
    places = np.linspace(-3, 3, 13)
    exact = stats.norm.logpdf(places, 1, 2) - stats.norm.logpdf(places, 0, 1)
    assert np.abs(LikelihoodRatio.fitted(ins, outs).scores(places) - exact).max() < 0.1


def test_a_statistic_without_spread_is_still_judged() -> None:
    test = LikelihoodRatio.fitted(np.full(5, 1.0), np.full(5, 0.0))
    inside, outside = test.scores(np.array([1.0, 0.0]))
    assert inside > 0 > outside
    assert np.all(LikelihoodRatio.fitted(np.zeros(5), np.zeros(5)).scores(np.zeros(3)) == 0)


@pytest.mark.parametrize("sigma", [0.5, 1.0, 3.0])
def test_the_gaussian_curve_is_below_every_line_of_epsilon_and_delta(sigma: float) -> None:
    for delta in (1e-5, 1e-2):
        claim = Claim(epsilon=gaussian_epsilon(sigma, delta), delta=delta, mu=1 / sigma)
        for fpr in (1e-4, 1e-3, 0.01, 0.1, 0.5, 0.9):
            gaussian = claim.gaussian_bound(fpr)
            assert gaussian is not None and fpr <= gaussian <= claim.tpr_bound(fpr) + 1e-9
    assert claim.gaussian_bound(0.0) == 0 and claim.gaussian_bound(1.0) == 1


def test_the_lines_are_those_of_the_definition() -> None:
    claim = Claim(epsilon=1.0, delta=0.01)
    assert claim.tpr_bound(0.01) == pytest.approx(math.e * 0.01 + 0.01)
    assert claim.tpr_bound(0.9) == pytest.approx(1 - (1 - 0.01 - 0.9) / math.e)
    assert claim.gaussian_bound(0.01) is None and claim.bound(0.01) == claim.tpr_bound(0.01)


def test_only_counts_beyond_doubt_disprove_a_claim() -> None:
    claim = Claim(epsilon=1.0, delta=1e-5, mu=0.5)

    def counted(hits: int, trials: int) -> Point:
        return Point(rate=0.01, threshold=0.0, false=trials // 100, outs=trials, hits=hits, ins=trials)

    assert not claim.exceeded(counted(10, 100), 1e-3)
    assert claim.exceeded(counted(1000, 10_000), 1e-3)
    assert not claim.exceeded(counted(300, 10_000), 1e-3)  # about what the curve allows
