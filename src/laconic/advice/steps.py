"""Signal and noise in the sum of all steps of a server rule with momentum.

The rule is v ← ρ·v + u, w ← w + η·v (`laconic.server.rules.Average`), so the mean update u of round t is in the final
weights with the factor η·a_t, a_t = (1 − ρ^(T−t+1))/(1 − ρ). Everything below follows from Σa and Σa²:

    reach         R = η·S·Σa             how far the weights go if all clients pull one way in all rounds
    noise         Z = √d·η·(σS/n)·√Σa²   the expected norm of the noise in the final weights
    noise ratio   ν = Z/R = √d·σ/(n·√T'),  T' = (Σa)²/Σa²

T' is the number of rounds over which the noise is averaged: T without momentum, and a little less with it. ν does not
depend on η or S. With everyone in every round σ grows as √T, so ν hardly depends on T.
"""

from __future__ import annotations

import functools
import math

import numpy as np


@functools.lru_cache(maxsize=4096)
def factors(rounds: int, momentum: float) -> tuple[float, float]:
    """(Σa, T') of so many rounds."""
    left = np.arange(rounds, 0, -1, dtype=float)
    a = (1 - momentum**left) / (1 - momentum)
    total = float(a.sum())
    return total, total**2 / float(np.square(a).sum())


def server_lr_of(reach: float, *, rounds: int, momentum: float, clip_norm: float) -> float:
    """η with which the weights reach so far."""
    return reach / (clip_norm * factors(rounds, momentum)[0])


def noise_ratio(weights: int, noise_multiplier: float, *, cohort: float, rounds: int, momentum: float) -> float:
    """ν of so many weights and clients whose updates are in the sum of a round."""
    return math.sqrt(weights) * noise_multiplier / (cohort * math.sqrt(factors(rounds, momentum)[1]))


@functools.lru_cache(maxsize=4096)
def best_cap(rate: float, rounds: int, most: int | None) -> tuple[int, float]:
    """(p, share): how often one client may take part, and the share of all participations that remains.

    Against the server σ grows as √p. A cap below the largest number that chance gives saves noise and loses updates.
    The p with the largest share/√p has the smallest noise ratio. X ~ Binomial(T, q); share = E[min(X, p)]/(qT).
    """
    limit = rounds if most is None else min(rounds, most)
    if rate >= 1:
        return limit, limit / rounds
    from scipy.stats import binom

    alive = binom.sf(np.arange(limit), rounds, rate)  # P(X > k) for k = 0 … limit − 1
    share = np.cumsum(alive) / (rate * rounds)
    best = int(np.argmax(share / np.sqrt(np.arange(1, limit + 1))))
    return best + 1, float(share[best])


def kept_under(rate: float, rounds: int, cap: int | None) -> float:
    """The share of all participations that a cap leaves."""
    if cap is None or cap >= rounds:
        return 1.0
    if rate >= 1:
        return cap / rounds
    from scipy.stats import binom

    return float(binom.sf(np.arange(cap), rounds, rate).sum() / (rate * rounds))
