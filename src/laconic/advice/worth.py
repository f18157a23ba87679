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
_FAR = REACH * _REACHES**-REACH_POWER
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
    steps = []
    for momentum in _MOMENTA:
        ratio = noise_ratio(weights, noise_multiplier, cohort=cohort, rounds=rounds, momentum=momentum)
        error = of_steps(_REACHES, ratio, rounds, momentum)
        best = int(np.argmin(error))
        steps.append(Step(momentum=momentum, reach=float(_REACHES[best]), noise_ratio=ratio, error=float(error[best])))
    return min(steps, key=lambda step: step.error)


def of_steps(reach: np.ndarray, noise_ratio: float, rounds: int, momentum: float) -> np.ndarray:
    """What depends on the step, for many reaches."""
    swing = reach / (factors(rounds, momentum)[0] * (1 + momentum)) - STABLE
    far = REACH * reach**-REACH_POWER if reach is not _REACHES else _FAR
    lag = LAG / ((1 - momentum) * rounds) ** 2
    total: np.ndarray = far + NOISE * np.square(noise_ratio * reach) + SWING * np.square(swing.clip(min=0)) + lag
    return total
