"""How settings are ranked: the error that a linear layer on normalised features is expected to have.

    error = floor + A·K^−α + B·R^−β + C·Z² + D·max(0, h/(1+ρ) − 1.2)² + E·(1/((1−ρ)·T))²

K is the number of features, R the reach and Z the norm of the noise in the final weights (`steps`), T the rounds, ρ the
momentum, and h = R/Σa the step of one round. The terms are what is lost by few features, by weights that cannot go far,
by noise in the scores, by steps so long that they swing (the heavy ball is stable up to steps in proportion to 1 + ρ),
and by momentum that lasts for much of the run. The step is free. B·R^−β + C·(ν·R)² is smallest at some R, so the noise
ratio ν decides how far it is worth to go, and T whether the steps get there.

The constants were fitted to runs on Fashion-MNIST, judged by held-out clients (docs/results/advise.md). They order
settings; the error on other data is another one.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from laconic.advice.steps import factors, noise_ratio

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
