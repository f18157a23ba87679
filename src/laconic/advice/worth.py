"""How settings are ranked: the error that a linear layer on normalised features is expected to have.

    error = floor + A·K^−α + B·R^−β + C·Z² + D·(R/T)^γ

K is the number of features, R the reach and Z the norm of the noise in the final weights (`steps`), T the rounds. The
terms are what fewer features lose, what weights lose that could not go far enough, what noise does to the scores, and
what steps lose that are too long. R is free: B·R^−β + C·(ν·R)² is smallest at some R, so the noise ratio ν decides how
far it is worth to go.

The constants were fitted to runs on Fashion-MNIST, judged by held-out clients (docs/results/advise.md). They order
settings; the error of other data is another one.
"""

from __future__ import annotations

import numpy as np

FLOOR = 0.040
FEATURES, FEATURES_POWER = 0.762, 0.5466
REACH, REACH_POWER = 0.2932, 0.4307
NOISE = 4.083e-4
STEP, STEP_POWER = 2e-4, 2.0

_REACHES = np.geomspace(1.0, 400.0, 240)


def expected_error(*, features: int | None, reach: float, noise: float, rounds: int) -> float:
    """The expected error. Without `features`, of a model whose size is given, their term is left out."""
    few = 0.0 if features is None else FEATURES * features**-FEATURES_POWER
    return FLOOR + few + float(_of_steps(np.array(reach), np.array(noise), rounds))


def best_reach(noise_ratio: float, rounds: int) -> float:
    """The reach with the smallest error."""
    return float(_REACHES[int(np.argmin(_of_steps(_REACHES, noise_ratio * _REACHES, rounds)))])


def _of_steps(reach: np.ndarray, noise: np.ndarray, rounds: int) -> np.ndarray:
    """What depends on the steps."""
    total: np.ndarray = REACH * reach**-REACH_POWER + NOISE * noise**2 + STEP * (reach / rounds) ** STEP_POWER
    return total


def momentum_for(rounds: int) -> float:
    """Steps are averaged over about a sixth of the run, and over ten rounds at most."""
    return round(1 - 1 / min(10.0, max(1.0, rounds / 6)), 2)
