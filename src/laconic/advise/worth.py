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

REACHES = np.geomspace(1.0, 400.0, 240)


def error(*, features: float | None, reach: np.ndarray, noise: np.ndarray, rounds: np.ndarray) -> np.ndarray:
    """The expected error; without `features`, of a model whose size is given, that term is left out."""
    few = 0.0 if features is None else FEATURES * features**-FEATURES_POWER
    far = REACH * reach**-REACH_POWER
    return FLOOR + few + far + NOISE * noise**2 + STEP * (reach / rounds) ** STEP_POWER


def best_reach(noise_ratio: float, rounds: int) -> float:
    """The reach with the smallest error."""
    expected = error(features=None, reach=REACHES, noise=noise_ratio * REACHES, rounds=np.array(rounds))
    return float(REACHES[int(np.argmin(expected))])


def momentum_for(rounds: int) -> float:
    """Steps are averaged over about a sixth of the run, and over ten rounds at most."""
    return round(1 - 1 / min(10.0, max(1.0, rounds / 6)), 2)
