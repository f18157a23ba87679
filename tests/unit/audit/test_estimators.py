"""Estimators of audits: bounds are below the truth with the stated confidence, and near it where they can be."""

from __future__ import annotations

import math

import numpy as np
import pytest

from laconic.audit.bounds import (
    Test,
    at_least,
    at_most,
    best_threshold,
    count,
    epsilon_by_threshold,
    fitted_epsilon,
    gdp_epsilon,
    one_run_epsilon,
    one_run_gdp_p_value_below,
    one_run_mu,
    one_run_p_value,
    outsider_scores,
    server_scores,
)


def test_clopper_pearson_bounds_solve_their_equations() -> None:
    from scipy.stats import binom

    low, high = at_least(7, 50, 0.01), at_most(7, 50, 0.01)
    assert binom.sf(6, 50, low) == pytest.approx(0.01) and binom.cdf(7, 50, high) == pytest.approx(0.01)
    assert at_least(0, 50, 0.01) == 0 and at_most(50, 50, 0.01) == 1


def test_rates_give_epsilon_in_both_directions() -> None:
    """With so many trials the rates are known: ln(T/F), or ln((1 − F)/(1 − T)) if that is more."""
    many = 10**9
    test = Test(hits=many // 5, ins=many, false=many // 50, outs=many)
    assert test.epsilon(0.0, 0.01) == pytest.approx(math.log(10), rel=1e-3)
    assert test.epsilon(0.1, 0.01) == pytest.approx(math.log(5), rel=1e-3)
    turned = Test(hits=many * 49 // 50, ins=many, false=many * 4 // 5, outs=many)
    assert turned.epsilon(0.0, 0.01) == pytest.approx(math.log(10), rel=1e-3)
    middle = Test(hits=691_462_461, ins=many, false=308_537_539, outs=many)  # Φ(±½)
    assert middle.mu(0.01) == pytest.approx(1.0, rel=1e-3)
    assert Test(hits=0, ins=0, false=0, outs=0).epsilon(1e-5, 0.01) == 0


def test_gdp_epsilon_is_the_gaussian_mechanisms() -> None:
    assert gdp_epsilon(1.0, 1e-5) == pytest.approx(4.3773, abs=1e-3)
    assert gdp_epsilon(0.0, 1e-5) == 0


def test_a_threshold_is_judged_on_other_trials_than_it_was_chosen_on() -> None:
    """Scores without any meaning: the best threshold looks good where it was chosen, and only there."""
    rng = np.random.default_rng(3)
    looked, honest = [], []
    for _ in range(20):
        scores, coins = rng.standard_normal(400), rng.random(400) < 0.5
        chosen = count(scores, coins, best_threshold(scores, coins, 0.0, 0.4))
        looked.append(chosen.epsilon(0.0, 0.4) > 0)
        honest.append(epsilon_by_threshold(scores, coins, 0.0, 0.4)[0] > 0)
    assert np.mean(looked) > 0.7
    assert np.mean(honest) <= 0.4


def guessed(mu: float, canaries: int, guesses: int, rng: np.random.Generator) -> int:
    """Correct guesses against a Gaussian mechanism, the surest ones."""
    coins = rng.random(canaries) < 0.5
    scores = mu * (coins * mu + rng.standard_normal(canaries) - mu / 2)
    surest = np.argsort(-np.abs(scores))[:guesses]
    return int(((scores > 0) == coins)[surest].sum())


@pytest.mark.stat
def test_one_run_bounds_are_below_the_truth() -> None:
    """Too large in at most 5 % of runs; these bounds are far more careful, so in none of 30."""
    rng = np.random.default_rng(0)
    for mu, least in ((0.5, 0.1), (1.0, 0.2), (2.0, 0.2)):
        truth, bounds, gaussian = gdp_epsilon(mu, 1e-5), [], []
        for _ in range(10):
            correct = guessed(mu, 1000, 200, rng)
            numbers = {"canaries": 1000, "guesses": 200, "correct": correct, "error": 0.05}
            bounds.append(one_run_epsilon(**numbers, delta=1e-5))
            gaussian.append(one_run_mu(**numbers))
        assert max(bounds) <= truth and np.mean(bounds) > least * truth
        assert max(gaussian) <= mu and np.mean(gaussian) > 0.4 * mu
        assert gdp_epsilon(float(np.mean(gaussian)), 1e-5) > np.mean(bounds)


@pytest.mark.stat
def test_randomised_response_is_nearly_reached_in_one_run() -> None:
    """The mechanism for which the theorem is tight: each coin is told right with probability e^ε/(1 + e^ε)."""
    rng = np.random.default_rng(1)
    right = rng.binomial(1000, 1 / (1 + math.exp(-1.0)), size=100)
    bounds = [one_run_epsilon(canaries=1000, guesses=1000, correct=int(v), delta=0.0, error=0.05) for v in right]
    too_large = int(np.sum(np.array(bounds) > 1.0))
    assert 1 <= too_large <= 13  # 5 are expected; none, or more than 13, have a probability of 0.6 % together
    assert np.mean(bounds) > 0.8


def test_delta_is_allowed_for_in_one_run() -> None:
    """All coins are published with probability δ, else nothing: (0, δ)-DP, and all guesses may be right."""
    for delta in (1e-3, 1e-2):
        assert one_run_p_value(canaries=100, guesses=100, correct=100, epsilon=0.0, delta=delta) >= delta
    assert one_run_p_value(canaries=100, guesses=100, correct=0, epsilon=0.0, delta=0.0) == 1
    assert one_run_epsilon(canaries=100, guesses=100, correct=100, delta=0.05, error=0.04) == 0


def test_a_worse_mechanism_makes_more_correct_guesses_likely() -> None:
    p = [one_run_p_value(canaries=500, guesses=100, correct=80, epsilon=e, delta=1e-5) for e in (0.0, 0.5, 1.0, 2.0)]
    assert p == sorted(p) and p[0] < 1e-3 < 0.5 < p[-1]
    assert one_run_gdp_p_value_below(canaries=500, guesses=100, correct=80, mu=0.1, error=0.01)
    assert not one_run_gdp_p_value_below(canaries=500, guesses=100, correct=80, mu=2.0, error=0.01)


def test_fitted_scores_come_near_the_truth() -> None:
    rng = np.random.default_rng(0)
    coins = rng.random(20_000) < 0.5
    scores = 0.1 * (coins + rng.standard_normal(20_000))
    assert fitted_epsilon(scores, coins, 1e-5) == pytest.approx(gdp_epsilon(1.0, 1e-5), rel=0.1)
    assert fitted_epsilon(scores[:15], coins[:15], 1e-5) is None


def test_scores_are_the_log_likelihood_ratios() -> None:
    """Against densities that are written out."""
    from scipy.stats import norm

    x, there, s2 = (
        np.array([[0.4], [2.0], [-1.0]]),
        np.array([[True], [False], [True]]),
        np.array([[1.5], [0.7], [2.0]]),
    )
    for out in (0.0, -1.0):
        sd = np.sqrt(s2)
        inside, outside, nobody = norm.pdf(x, 1, sd), norm.pdf(x, out, sd), norm.pdf(x, 0, sd)
        assert server_scores(x, there, s2, out) == pytest.approx(np.log(inside / outside)[there[:, 0]].sum())
        ratio = (0.8 * nobody + 0.2 * inside) / (0.8 * nobody + 0.2 * outside)
        assert outsider_scores(x[:, None], 0.2, s2[:, None], out) == pytest.approx(np.log(ratio).sum())
        assert outsider_scores(x[:, None], 1.0, s2[:, None], out) == pytest.approx(np.log(inside / outside).sum())
