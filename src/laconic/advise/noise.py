"""The smallest σ of many settings at once, by the accountants. There is no formula of ε here.

Against the server only the number of participations counts, so one calibration serves every cohort. Against an outsider
each sampling rate has a table: ε by the Rényi accountant on a grid of σ, for all numbers of rounds, because the
divergences of one round serve them all. σ is read off it. That is a search: the settings that are shown are calibrated
again, one by one, by the tight accountant.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from laconic.errors import PrivacyError
from laconic.privacy.accounting.accountant import Accountant
from laconic.privacy.accounting.calibrate import calibrate_noise
from laconic.privacy.accounting.sampling import Poisson
from laconic.privacy.mechanism.gaussian import Gaussian

_SIGMAS = np.geomspace(0.4, 60.0, 15)


@functools.lru_cache(maxsize=4096)
def against_server(epsilon: float, delta: float, participations: int) -> float:
    """σ with which so many participations stay within ε; inf where there is none."""
    try:
        return calibrate_noise(
            epsilon=epsilon,
            delta=delta,
            rounds=participations,
            sampler=Poisson(sampling_rate=1.0),
            num_clients=2,
            participations=participations,
        )
    except PrivacyError:
        return math.inf


def against_outsider(epsilon: float, delta: float, rate: float, rounds: int) -> float:
    """About the σ with which so many rounds stay within ε, a little above the tight one; inf outside the table."""
    if rate >= 1:
        return against_server(epsilon, delta, rounds)
    found = np.array(_epsilons(delta, rate, rounds))
    if not found[-1] <= epsilon <= found[0]:
        return math.inf if epsilon < found[-1] else float(_SIGMAS[0])
    return float(np.exp(np.interp(-math.log(epsilon), -np.log(found), np.log(_SIGMAS))))


@functools.lru_cache(maxsize=8192)
def _epsilons(delta: float, rate: float, rounds: int) -> tuple[float, ...]:
    return tuple(a.released_epsilon(rounds, "rdp") for a in _accountants(delta, rate))


@functools.lru_cache(maxsize=64)
def _accountants(delta: float, rate: float) -> tuple[Accountant, ...]:
    sampler = Poisson(sampling_rate=rate)
    return tuple(
        Accountant(sampler=sampler, noise=Gaussian(noise_multiplier=float(s)), num_clients=2, delta=delta)
        for s in _SIGMAS
    )
