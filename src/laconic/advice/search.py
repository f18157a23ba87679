"""All settings within the limits, and which of them are best.

Cohorts are everyone, half of them, a quarter, …; rounds grow by a fifth from one to the next. For each pair, the bytes
say how many features there can be at most; fewer are tried as well. σ follows from the promise, the noise ratio from σ,
the reach from the noise ratio, and the expected error from all of them.

There is no formula of ε here: the accountants fill two tables. Against the server only the number of participations
counts. A few are calibrated, and σ of the others is interpolated: log σ is close to a straight line in log p. Against
an outsider each sampling rate has a table of ε by the Rényi accountant, over σ and rounds. The divergences of one round
serve all numbers of rounds. This σ is for the search only: the setting that is advised is calibrated again by the tight
accountant, and every ε that is shown is the accountant's own for the σ beside it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from laconic.advice.question import SERVER, Question
from laconic.advice.ranking import Step, best_cap, best_step, kept_under, of_features
from laconic.clients.wire import message_size
from laconic.errors import PrivacyError
from laconic.packing import FLOAT16, integers
from laconic.plan import RoundPlan
from laconic.privacy.accounting.budget import calibrate_noise
from laconic.privacy.accounting.releases import renyi_divergences
from laconic.privacy.accounting.sampling import Poisson
from laconic.privacy.mechanism.discrete_gaussian import DiscreteGaussian

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
    """The two entries of the table around a number, or the number itself if it is an entry or larger than all."""
    if count in _COUNTS or count > _COUNTS[-1]:
        return (count,)
    above = next(i for i, known in enumerate(_COUNTS) if known > count)
    return _COUNTS[above - 1], _COUNTS[above]


_FEWEST_CLIENTS = 10
_SHARES = (1.0, 0.7, 0.5, 0.35, 0.25, 0.12)
"""Of the features that the bytes allow."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A setting as the search sees it: its noise is close to the calibrated one, and its ε are not known yet."""

    cohort: int
    rate: float
    rounds: int
    cap: int | None
    kept: float
    """The share of all participations that the cap leaves."""
    features: int | None
    weights: int
    sigma: float
    step: Step

    @property
    def error(self) -> float:
        return of_features(self.features) + self.step.error


def candidates(question: Question) -> list[Candidate]:
    """All settings within the limits, the best first."""
    found = [
        c for cohort in cohorts(question) for rounds in lengths(question) for c in _sizes(question, cohort, rounds)
    ]
    return sorted(found, key=lambda c: (c.error, c.weights * c.rounds))


def cohorts(question: Question) -> list[int]:
    """The largest cohort, and down from it by halves."""
    largest = question.largest_cohort
    halves = int(math.log2(max(1.0, largest / _FEWEST_CLIENTS)))
    return list(dict.fromkeys(max(1, round(largest / 2**k)) for k in range(min(halves, 8) + 1)))


def lengths(question: Question) -> list[int]:
    """Numbers of rounds, each a fifth more than the one before."""
    steps = np.geomspace(1, max(1, question.most_rounds), 1 + max(1, round(math.log(question.most_rounds + 1, 1.2))))
    return [] if question.most_rounds < 1 else sorted({round(float(s)) for s in steps} | {question.most_rounds})


def _sizes(question: Question, cohort: int, rounds: int) -> Iterator[Candidate]:
    """The same cohort and rounds with as many features as fit, and with fewer."""
    rate = cohort / question.num_clients
    if rate >= 1 and rounds > (question.max_participations or rounds):
        return  # everyone has stopped before the last round
    kept, sigma = participation(question, rate, rounds)[1], _sigma(question, rate, rounds)
    if math.isfinite(sigma):
        for features in _features(question, cohort, rounds, kept, sigma):
            yield candidate(question, cohort=cohort, rounds=rounds, features=features)


def candidate(question: Question, *, cohort: int, rounds: int, features: int | None = None) -> Candidate:
    """What follows from a cohort, a number of rounds and one of features; limits are not looked at."""
    rate = cohort / question.num_clients
    cap, kept = participation(question, rate, rounds)
    sigma, weights = _sigma(question, rate, rounds), question.weights_of(features)
    return Candidate(
        cohort=cohort,
        rate=rate,
        rounds=rounds,
        cap=cap,
        kept=kept,
        features=features,
        weights=weights,
        sigma=sigma,
        step=best_step(weights=weights, noise_multiplier=sigma, cohort=cohort * kept, rounds=rounds),
    )


def _sigma(question: Question, rate: float, rounds: int) -> float:
    """About the smallest σ that keeps the promise; inf where none does."""
    if question.against == SERVER:
        cap = participation(question, rate, rounds)[0]
        return against_server(question.epsilon, question.delta, cap or rounds)
    return against_outsider(question.epsilon, question.delta, rate, rounds)


def participation(question: Question, rate: float, rounds: int) -> tuple[int | None, float]:
    """(how often one client may take part, the share of participations that is left); (None, 1) without a cap."""
    if question.against == SERVER and rate < 1:
        return best_cap(rate, rounds, question.max_participations)
    cap = question.max_participations
    return (None, 1.0) if cap is None or cap >= rounds else (cap, kept_under(rate, rounds, cap))


def _features(question: Question, cohort: int, rounds: int, kept: float, sigma: float) -> list[int | None]:
    """How many features there may be; [None] for a model of a given size that fits, nothing where nothing fits."""
    most = question.weights_of(question.most_features)
    taken = rounds * cohort / question.num_clients * kept
    bits = bits_up(question.num_clients, cohort, most, sigma)  # of fewer weights there are as many, or one less
    up = _most_weights(question.bytes_up, taken, bits)
    room = min(up, _most_weights(question.bytes_down, taken, FLOAT16.bits))
    if question.classes is None:
        return [None] if most <= room else []
    features = min(question.most_features, int(min(most, room)) // question.classes - 1)
    return list(dict.fromkeys(int(features * share) for share in _SHARES if features * share >= 1))


def _most_weights(limit: float | None, messages: float, bits: int) -> float:
    """How many weights of so many bits so many messages may have within a limit of bytes."""
    if limit is None:
        return math.inf
    return (limit / messages - message_size(0)) * 8 // bits


def messages(num_clients: int, cohort: int, weights: int, sigma: float) -> tuple[int, int]:
    """Bytes of one message up, in integers of as many bits as the noisy sum needs, and down, in floats of 16 bits."""
    up = message_size(weights, integers(bits_up(num_clients, cohort, weights, sigma)))
    return up, message_size(weights, FLOAT16)


def bits_up(num_clients: int, cohort: int, weights: int, sigma: float) -> int:
    sampler = Poisson(sampling_rate=cohort / num_clients)
    plan = RoundPlan(
        round=1,
        attempt=0,
        cohort=np.arange(cohort),
        planned_cohort=sampler.planned_cohort(num_clients),
        largest_cohort=sampler.largest_cohort(num_clients),
        run_seed=0,
        round_seed=0,
        fingerprint="",
    )
    bits = DiscreteGaussian(noise_multiplier=sigma).code_bits(code_size=weights, sensitivity=1.0, plan=plan)
    assert bits is not None
    return bits
