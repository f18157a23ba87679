"""Compositions of arbitrary loss distributions: never below the exact ε, and hardly above it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from laconic.privacy.accounting import tight
from laconic.privacy.accounting.tight import ComposedLoss, Loss


def exact_tail(loss: Loss, count: int) -> tuple[np.ndarray, np.ndarray, float]:
    """(losses, probabilities, mass at infinity) by plain convolution: positive numbers only, so hardly any rounding."""
    first = int(loss.numbers[0])
    once = np.zeros(int(loss.numbers[-1]) - first + 1)
    once[loss.numbers - first] = np.exp(loss.log_probabilities)
    composed = once
    for _ in range(count - 1):
        composed = np.convolve(composed, once)
    losses = (first * count + np.arange(len(composed))) * loss.interval
    return losses, composed, -math.expm1(count * math.log1p(-loss.infinity))


def exact_delta(tail: tuple[np.ndarray, np.ndarray, float], epsilon: float) -> float:
    losses, probabilities, infinite = tail
    above = losses > epsilon
    return infinite + float(-np.expm1(epsilon - losses[above]) @ probabilities[above])


@st.composite
def loss_distributions(draw: st.DrawFn) -> Loss:
    size = draw(st.integers(1, 60))
    weights = np.array(draw(st.lists(st.floats(-30, 0), min_size=size, max_size=size)))
    first = draw(st.integers(-size, 5))
    keep = np.array(draw(st.lists(st.booleans(), min_size=size, max_size=size)))
    keep[draw(st.integers(0, size - 1))] = True
    numbers, weights = first + np.flatnonzero(keep), weights[keep]
    log_total = math.log(np.exp(weights - weights.max()).sum()) + weights.max()
    interval = draw(st.sampled_from([1e-4, 1e-3, 1e-2, 0.1]))
    return Loss(numbers, weights - log_total, interval, draw(st.sampled_from([0.0, 1e-20, 1e-13])))


@settings(max_examples=150, deadline=None)
@given(loss_distributions(), st.integers(1, 40), st.floats(-9, -1))
def test_epsilon_is_the_exact_one(loss: Loss, count: int, log_delta: float) -> None:
    delta = 10**log_delta
    epsilon = ComposedLoss(loss, 1 << (count - 1).bit_length(), delta).epsilon(count)
    assume(epsilon is not None)  # rounding may leave it open next to a large atom; hypothesis complains if often
    tail = exact_tail(loss, count)
    assert 0 <= epsilon < math.inf
    assert exact_delta(tail, epsilon) <= delta * (1 + 1e-12)
    if epsilon > 0:
        assert exact_delta(tail, epsilon - 5.1e-5 * (epsilon + loss.interval)) >= delta * (1 - 1e-8)


@settings(max_examples=100, deadline=None)
@given(loss_distributions(), st.integers(1, 40), st.floats(-9, -1), st.floats(0.5, 1.5))
def test_delta_is_an_upper_bound_anywhere(loss: Loss, count: int, log_delta: float, factor: float) -> None:
    """Also where the tilt is wrong: the bound of the rounding error holds there, too."""
    delta = 10**log_delta
    composed = ComposedLoss(loss, 1 << (count - 1).bit_length(), delta)
    epsilon = (composed.epsilon(count) or 0.0) * factor
    exact = exact_delta(exact_tail(loss, count), epsilon)
    assert composed.delta(count, epsilon) >= exact * (1 - 1e-12)


def test_more_than_delta_at_infinity_is_infinite() -> None:
    loss = Loss(np.array([0]), np.array([0.0]), 1e-4, 1e-6)
    assert ComposedLoss(loss, 16, 1e-5).epsilon(9) == 0
    assert ComposedLoss(loss, 16, 1e-5).epsilon(11) == math.inf


def test_without_the_bound_of_rounding_errors_it_would_be_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sabotaged twin: with a tilt that fits nothing and no allowance, δ comes out below the exact one."""
    loss = Loss(np.arange(-40, 41), np.log(np.full(81, 1 / 81)), 1e-2, 0.0)
    tail = exact_tail(loss, 30)
    epsilons = np.linspace(0.1, 0.9, 50)
    for roundoff, sound in ((tight._UNIT_ROUNDOFF, True), (0.0, False)):
        monkeypatch.setattr(tight, "_UNIT_ROUNDOFF", roundoff)
        monkeypatch.setattr(tight, "_LEFT_OUT", 1e-15 if sound else 1e-300)
        composed = ComposedLoss(loss, 32, 1e-9)
        shortfalls = [exact_delta(tail, e) - composed.delta(30, e) for e in epsilons]
        assert (max(shortfalls) <= 0) == sound
