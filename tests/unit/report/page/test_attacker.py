"""What ε and δ mean to an attacker: checked against tests whose error rates are known."""

from __future__ import annotations

import math

import pytest
from scipy.stats import norm

from laconic.report.page.verdict import most_certain, most_true_positives, trade_off


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 8.0])
def test_randomised_response_is_the_best_test_of_pure_privacy(epsilon: float) -> None:
    """It tells the truth with probability e^ε / (1 + e^ε), and lies on the bound."""
    truth = math.exp(epsilon) / (1 + math.exp(epsilon))
    assert most_true_positives(1 - truth, [(epsilon, 0.0)]) == pytest.approx(truth)
    assert most_certain([(epsilon, 0.0)]) == pytest.approx(truth)


def delta_of(epsilon: float, mu: float) -> float:
    """δ(ε) of Gaussian noise at distance μ, by Balle and Wang 2018."""
    return float(norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu))


ALPHAS = (1e-5, 1e-4, 1e-3, 0.01, 0.1, 0.5, 0.9)


@pytest.mark.parametrize(("mu", "epsilon"), [(1.0, 1.0), (1.0, 3.0), (2.0, 4.0)])
def test_no_test_of_gaussian_noise_exceeds_the_bound_at_its_delta(mu: float, epsilon: float) -> None:
    """The likelihood ratio test of N(μ, 1) against N(0, 1)."""
    pairs = [(epsilon, delta_of(epsilon, mu))]
    assert all(norm.sf(norm.isf(alpha) - mu) <= most_true_positives(alpha, pairs) + 1e-12 for alpha in ALPHAS)


def test_several_pairs_come_close_to_the_best_test_of_gaussian_noise() -> None:
    """And never below it: with all pairs the bound is the test itself."""
    pairs = [(epsilon / 4, delta_of(epsilon / 4, 1.5)) for epsilon in range(40)]
    best = {alpha: norm.sf(norm.isf(alpha) - 1.5) for alpha in ALPHAS}
    found = {alpha: most_true_positives(alpha, pairs) for alpha in ALPHAS}
    assert all(best[alpha] <= found[alpha] + 1e-12 <= best[alpha] * 1.1 + 1e-4 for alpha in ALPHAS)
    assert most_certain(pairs) == pytest.approx(norm.cdf(0.75))
    assert found[0.01] < most_true_positives(0.01, pairs[-8:]) / 2


def test_a_smaller_delta_than_the_true_one_would_be_noticed() -> None:
    """Guards the test above: with δ = 0 Gaussian noise does exceed the bound."""
    assert norm.sf(norm.isf(1e-6) - 2.0) > most_true_positives(1e-6, [(1.0, 0.0)])


def test_without_privacy_loss_only_guessing_is_left() -> None:
    assert all(true == pytest.approx(false) for false, true in trade_off([(0.0, 0.0)], 1e-4))
    assert most_certain([(0.0, 0.0)]) == 0.5


@pytest.mark.parametrize("epsilon", [0.5, 17.0, 900.0])
def test_the_curve_rises_and_stays_a_share(epsilon: float) -> None:
    shares = [true for _, true in trade_off([(epsilon, 1e-5)], 1e-4)]
    assert shares == sorted(shares) and shares[0] >= 0 and shares[-1] == 1.0
    assert 0.5 <= most_certain([(epsilon, 1e-5)]) <= 1.0
