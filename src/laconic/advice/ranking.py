"""How settings are ranked: signal and noise in the sum of all steps, and the error that follows from them.

The server rule is v ← ρ·v + u, w ← w + η·v (`laconic.server.rules.Average`), so the mean update u of round t is in the
final weights with the factor η·a_t, a_t = (1 − ρ^(T−t+1))/(1 − ρ). Everything below follows from Σa and Σa²:

    reach         R = η·S·Σa             how far the weights go if all clients pull one way in all rounds
    noise         Z = √d·η·(σS/n)·√Σa²   the expected norm of the noise in the final weights
    noise ratio   ν = Z/R = √d·σ/(n·√T'),  T' = (Σa)²/Σa²

T' is the number of rounds over which the noise is averaged: T without momentum, and a little less with it. ν does not
depend on η or S. With everyone in every round σ grows as √T, so ν hardly depends on T.

A linear layer on normalised features is then expected to have

    error = floor + A·K^−α + B·R^−β + C·Z² + D·max(0, h/(1+ρ) − 1.2)² + E·(1/((1−ρ)·T))²

K is the number of features, T the number of rounds, and h = R/Σa the step of one round. The terms are what is lost by
few features, by weights that cannot go far, by noise in the scores, by steps so long that they oscillate (the heavy
ball is stable up to steps in proportion to 1 + ρ), and by momentum that lasts for much of the run. The step is free.
B·R^−β + C·(ν·R)² is smallest at some R, so the noise ratio ν decides how far it is worth to go, and T whether the steps
get there.

The constants were fitted to runs on Fashion-MNIST, judged by held-out clients (docs/results/advise.md). They order
settings; the error on other data is another one.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

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


FLOOR = 0.0446
FEATURES, FEATURES_POWER = 0.7763, 0.5508
REACH, REACH_POWER = 0.2961, 0.4666
NOISE = 4.8e-4
SWING, STABLE = 0.0825, 1.2
LAG = 0.0160

_REACHES = np.geomspace(2.0, 400.0, 120)
_MOMENTA = (0.0, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9)


@dataclass(frozen=True, kw_only=True)
class Step:
    """Momentum and reach, and the error that depends on them."""

    momentum: float
    reach: float
    noise_ratio: float
    error: float


def of_features(features: int | None) -> float:
    """What does not depend on the step. Without `features`, of a model whose size is given, their term is left out."""
    return FLOOR + (0.0 if features is None else FEATURES * features**-FEATURES_POWER)


def best_step(*, weights: int, noise_multiplier: float, cohort: float, rounds: int) -> Step:
    """The momentum and the reach with the smallest error."""
    without, squares = _table(rounds)
    error = without + NOISE * weights * (noise_multiplier / cohort) ** 2 * squares
    which, far = np.unravel_index(int(np.argmin(error)), error.shape)
    momentum = _MOMENTA[which]
    return Step(
        momentum=momentum,
        reach=float(_REACHES[far]),
        noise_ratio=noise_ratio(weights, noise_multiplier, cohort=cohort, rounds=rounds, momentum=momentum),
        error=float(error[which, far]),
    )


def farthest(ratio: float) -> float:
    """The reach with the smallest B·R^−β + C·(ν·R)²: of steps that neither swing nor lag."""
    return float((REACH_POWER * REACH / (2 * NOISE * ratio**2)) ** (1 / (2 + REACH_POWER)))


@functools.lru_cache(maxsize=4096)
def _table(rounds: int) -> tuple[np.ndarray, np.ndarray]:
    """(the error without noise, R²/T') for every momentum and every reach; Z² is d·(σ/n)²·R²/T'."""
    total, averaged = np.array([factors(rounds, momentum) for momentum in _MOMENTA]).T[:, :, None]
    momenta = np.array(_MOMENTA)[:, None]
    swing = (_REACHES / (total * (1 + momenta)) - STABLE).clip(min=0)
    lag = 1 / ((1 - momenta) * rounds)
    return REACH * _REACHES**-REACH_POWER + SWING * swing**2 + LAG * lag**2, _REACHES**2 / averaged
