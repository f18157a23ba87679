"""From correct guesses in one run to a lower bound on ε. The canaries need not be independent of each other.

Each of m canaries is in or out by a fair coin of its own. Somebody who sees what was released guesses r of the coins,
a number that is fixed beforehand, and says nothing of the others. Let v be the correct guesses.

*Steinke, Nasr and Jagielski 2023.* If the run is (ε, δ)-DP for each canary, then with W ~ Binomial(r, p),
p = e^ε/(1 + e^ε),

    P[at least v correct] ≤ P[W ≥ v] + 2mδ · max over i = 1 … v of P[v − i ≤ W < v]/i

*Mahloujifar, Melis and Chaudhuri 2024.* If the run is f-DP for each canary, write p_i for the probability of exactly i
correct guesses, r_i = Σ_{j≥i} (j/m)·p_j and h_i = Σ_{j≥i} ((r − j)/m)·p_j. Flip the coin of one random canary that was
guessed: what was a correct guess among at least i + 1 is now a wrong one beside at least i correct others. So
r_{i+1} ≤ 1 − f(h_i) = f̄(h_i), that is h_i ≥ f̄⁻¹(r_{i+1}). From a tail of probability τ on, these inequalities bound
r_0 + h_0 from below. If the bound is more than the true value, r/m, then the tail is less likely than τ.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

_LARGEST, _ACCURACY = 60.0, 1e-4


def p_value(*, canaries: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """At most how likely so many correct guesses are, if the run is (ε, δ)-DP for each canary."""
    from scipy.stats import binom

    chance = 1 / (1 + math.exp(-epsilon))
    tail = float(binom.sf(correct - 1, guesses, chance))
    if correct == 0:
        return 1.0
    below = binom.pmf(np.arange(correct - 1, -1, -1), guesses, chance).cumsum() / np.arange(1, correct + 1)
    return min(1.0, tail + 2 * canaries * delta * float(below.max()))


def epsilon_bound(*, canaries: int, guesses: int, correct: int, delta: float, error: float) -> float:
    """The largest ε that is refuted: a lower bound on ε, too large with probability `error` at most."""

    def refuted(epsilon: float) -> bool:
        found = p_value(canaries=canaries, guesses=guesses, correct=correct, epsilon=epsilon, delta=delta)
        return found <= error

    return _largest(refuted)


def gdp_p_value_below(*, canaries: int, guesses: int, correct: int, mu: float, error: float) -> bool:
    """Whether so many correct guesses are less likely than `error`, if the run is μ-GDP for each canary."""
    from scipy.special import ndtr, ndtri

    # f̄(x) = 1 − f(x) = Φ(Φ⁻¹(x) + μ)
    return _less_likely(lambda x: float(ndtr(ndtri(x) - mu)), canaries, guesses, correct, error)


def gdp_bound(*, canaries: int, guesses: int, correct: int, error: float) -> float:
    """The largest μ that is refuted, up to 60."""

    def refuted(mu: float) -> bool:
        return gdp_p_value_below(canaries=canaries, guesses=guesses, correct=correct, mu=mu, error=error)

    return _largest(refuted, accuracy=1e-3)


def _less_likely(inverse: Callable[[float], float], canaries: int, guesses: int, correct: int, tail: float) -> bool:
    """Whether a tail of this probability, from `correct` on, leads to a contradiction."""
    right = tail * correct / canaries
    wrong = tail * (guesses - correct) / canaries
    whole = guesses / canaries
    for i in range(correct - 1, -1, -1):
        least = max(wrong, inverse(min(right, 1.0)))
        right += i / (guesses - i) * (least - wrong)
        wrong = least
        if right + wrong > whole:
            return True
    return False


def _largest(refuted: Callable[[float], bool], accuracy: float = _ACCURACY) -> float:
    if not refuted(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while refuted(high):
        low, high = high, 2 * high
        if high > _LARGEST:
            return low
    while high - low > accuracy:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low
