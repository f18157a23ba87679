"""About the smallest σ of many settings at once. There is no formula of ε here: the accountants fill two tables.

Against the server only the number of participations counts. A few are calibrated, and σ of the others is interpolated:
log σ is close to a straight line in log p. Against an outsider each sampling rate has a table of ε by the Rényi
accountant, over σ and rounds. The divergences of one round serve all numbers of rounds.

That is for the search. The setting that is advised is calibrated again by the tight accountant, and every ε that is
shown is the accountant's own for the σ beside it.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from laconic.errors import PrivacyError
from laconic.privacy.accounting.calibrate import calibrate_noise
from laconic.privacy.accounting.releases import renyi_divergences
from laconic.privacy.accounting.sampling import Poisson

_SIGMAS = np.geomspace(0.5, 50.0, 10)
_COUNTS = (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000, 100_000)
"""Of rounds and of participations."""
_ORDERS = (*range(2, 33), *range(36, 65, 4), 96, 128, 256, 512)
"""Whole ones: those between them take most of the time, and change σ by less than the interpolation does."""


def against_server(epsilon: float, delta: float, participations: int) -> float:
    """σ with which so many participations stay within ε; inf where there is none."""
    known = _counts(participations)
    found = [_calibrated(epsilon, delta, count) for count in known]
    if not all(math.isfinite(sigma) for sigma in found):
        return math.inf
    return float(np.exp(np.interp(math.log(participations), np.log(known), np.log(found))))


@functools.lru_cache(maxsize=1024)
def _calibrated(epsilon: float, delta: float, participations: int) -> float:
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
    """σ with which so many rounds stay within ε, a little above the tight one; inf where none in the table does."""
    if rate >= 1:
        return against_server(epsilon, delta, rounds)
    known = _counts(rounds)
    columns = np.log([_epsilons(delta, rate, count) for count in known])
    found = np.array([np.interp(math.log(rounds), np.log(known), column) for column in columns.T])
    if math.log(epsilon) < found[-1]:
        return math.inf
    return float(np.exp(np.interp(-math.log(epsilon), -found, np.log(_SIGMAS))))


@functools.lru_cache(maxsize=4096)
def _epsilons(delta: float, rate: float, rounds: int) -> tuple[float, ...]:
    """ε for every σ of the table."""
    from dp_accounting.rdp.rdp_privacy_accountant import compute_epsilon

    once = [_divergences(rate, sigma) for sigma in _SIGMAS.tolist()]
    return tuple(float(compute_epsilon(_ORDERS, [rounds * d for d in found], delta)[0]) for found in once)


@functools.lru_cache(maxsize=4096)
def _divergences(rate: float, sigma: float) -> tuple[float, ...]:
    """The Rényi divergences of one round."""
    from dp_accounting import GaussianDpEvent

    event = Poisson(sampling_rate=rate).released_event(GaussianDpEvent(sigma), 2)
    return renyi_divergences(event, _ORDERS, False)


@functools.lru_cache(maxsize=4096)
def _counts(count: int) -> tuple[int, ...]:
    """The two numbers of the table around a number, or this number if it is one of them or larger than all."""
    if count in _COUNTS or count > _COUNTS[-1]:
        return (count,)
    above = next(i for i, known in enumerate(_COUNTS) if known > count)
    return _COUNTS[above - 1], _COUNTS[above]
