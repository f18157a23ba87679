"""From how well two worlds were told apart to a lower bound on ε. The trials must be independent of each other.

A test says "in" or "out". Of the trials with the canary in, it says "in" with probability T; of those without, with
probability F. Whatever (ε, δ) holds has T ≤ e^ε·F + δ and 1 − F ≤ e^ε·(1 − T) + δ (Kairouz, Oh and Viswanath 2015), so

    ε ≥ ln max((T − δ)/F, (1 − F − δ)/(1 − T))

A mechanism that is μ-GDP has Φ⁻¹(T) − Φ⁻¹(F) ≤ μ (Dong, Roth and Su 2022). Clopper–Pearson bounds of T from below and
of F from above, at half the error each, make both right with the stated confidence, at all δ at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from laconic.audit.intervals import at_least, at_most
from laconic.privacy.accounting.tight import gaussian_epsilon

_CANDIDATES = 200


@dataclass(frozen=True, kw_only=True)
class Test:
    """How often a test said "in", of so many trials with and without the canary."""

    __test__ = False  # pytest: this is no test of ours

    hits: int
    ins: int
    false: int
    outs: int

    def rates(self, error: float) -> tuple[float, float]:
        """(T at least, F at most): both are right but for a chance of `error`."""
        return at_least(self.hits, self.ins, error / 2), at_most(self.false, self.outs, error / 2)

    def epsilon(self, delta: float, error: float) -> float:
        """A lower bound on ε at this δ; 0 if the test shows nothing."""
        least, most = self.rates(error)
        return max(0.0, _log_ratio(least - delta, most), _log_ratio(1 - most - delta, 1 - least))

    def mu(self, error: float) -> float:
        """A lower bound on μ; 0 if the test shows nothing."""
        from scipy.special import ndtri

        least, most = self.rates(error)
        return max(0.0, float(ndtri(least) - ndtri(most))) if least > 0 and most < 1 else 0.0


def count(scores: np.ndarray, coins: np.ndarray, threshold: float) -> Test:
    """The test that says "in" above the threshold; `coins` say who was in."""
    said = scores > threshold
    return Test(
        hits=int(said[coins].sum()),
        ins=int(coins.sum()),
        false=int(said[~coins].sum()),
        outs=int((~coins).sum()),
    )


def epsilon_by_threshold(scores: np.ndarray, coins: np.ndarray, delta: float, error: float) -> tuple[float, Test]:
    """A lower bound on ε: the threshold is chosen on one half of the trials, and judged on the other."""
    half = len(scores) // 2
    chosen = best_threshold(scores[:half], coins[:half], delta, error)
    test = count(scores[half:], coins[half:], chosen)
    return test.epsilon(delta, error), test


def best_threshold(scores: np.ndarray, coins: np.ndarray, delta: float, error: float) -> float:
    """The threshold with the largest bound on these trials."""
    finite = scores[np.isfinite(scores)]
    if not len(finite):
        return 0.0
    candidates = np.unique(np.quantile(finite, np.linspace(0, 1, _CANDIDATES)))
    return max((count(scores, coins, float(t)).epsilon(delta, error), float(t)) for t in candidates)[1]


def gdp_epsilon(mu: float, delta: float) -> float:
    """The ε at this δ of a mechanism that is μ-GDP and no better."""
    return gaussian_epsilon(1 / mu, delta) if mu > 0 else 0.0


def _log_ratio(above: float, below: float) -> float:
    if above <= 0:
        return -math.inf
    return math.log(above / below) if below > 0 else math.inf
