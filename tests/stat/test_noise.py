"""The noise in the sum is the noise that is accounted for. False-alarm rate of each test: 1e-6."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from scipy import stats

from laconic import schemes
from laconic.packing import centred
from laconic.planning import plan_round
from laconic.privacy.accounting.sampling import Poisson
from laconic.privacy.mechanism.discrete_gaussian import DiscreteGaussian
from laconic.privacy.mechanism.gaussian import Gaussian
from laconic.round import client_messages, noise_stream
from laconic.scheme import Scheme
from laconic.streams import Streams

pytestmark = pytest.mark.stat
ALPHA = 1e-6
CLIP, SIGMA, SIZE = 0.7, 1.3, 400_000


def summed_noise(scheme: Scheme, *, max_dropouts: int = 0, vanish: int = 0, number: int = 1) -> np.ndarray:
    """The sum of the messages of clients whose updates are zero; `vanish` of them are lost."""
    streams = Streams(12)
    plan = plan_round(
        scheme,
        Poisson(sampling_rate=0.05),
        streams=streams,
        round=number,
        num_clients=400,
        max_dropouts=max_dropouts,
    )
    assert len(plan.cohort) > 10
    total = 0
    for client in plan.cohort[vanish:]:
        stream = noise_stream(streams, plan, int(client))
        total += client_messages(scheme, plan, torch.zeros(1, SIZE), streams=[stream])[0].double().numpy()
    if isinstance(scheme.noise, DiscreteGaussian):
        grid = scheme.noise.grid(code_size=SIZE, sensitivity=CLIP, plan=plan)
        total = centred(total.astype(np.int64), grid.bits) / grid.units
    return total


def scheme(sigma: float = SIGMA, noise: str = "integer") -> Scheme:
    return schemes.fl_std_dp(clip_norm=CLIP, noise_multiplier=sigma, noise=noise, local_lr=0.1, local_steps=1)


def is_as_stated(noise: np.ndarray) -> bool:
    """A two-sided χ² test of the variance against (S·σ)²."""
    statistic = float((noise**2).sum()) / (CLIP * SIGMA) ** 2
    low, high = stats.chi2.ppf([ALPHA / 2, 1 - ALPHA / 2], len(noise))
    return bool(low <= statistic <= high)


@pytest.mark.parametrize("noise", ["integer", "continuous"])
def test_the_shares_add_up_to_the_stated_noise(noise: str) -> None:
    assert is_as_stated(summed_noise(scheme(noise=noise)))


@pytest.mark.parametrize("noise", ["integer", "continuous"])
def test_two_percent_less_is_noticed(noise: str) -> None:
    assert not is_as_stated(summed_noise(scheme(SIGMA * 0.98, noise)))


def test_with_the_tolerated_dropouts_the_noise_is_still_complete() -> None:
    assert is_as_stated(summed_noise(scheme(), max_dropouts=3, vanish=3))


def test_one_more_dropout_is_noticed() -> None:
    assert not is_as_stated(summed_noise(scheme(), max_dropouts=3, vanish=4))


def test_the_noise_is_gaussian() -> None:
    noise = summed_noise(scheme(noise="continuous"))[:50_000] / (CLIP * SIGMA)
    assert stats.kstest(noise, "norm").pvalue > ALPHA


def test_uniform_noise_of_the_same_variance_is_noticed() -> None:
    uniform = np.random.default_rng(0).uniform(-np.sqrt(3), np.sqrt(3), 50_000)
    assert stats.kstest(uniform, "norm").pvalue < ALPHA


def correlated(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(stats.pearsonr(a, b).pvalue < ALPHA)


def test_rounds_attempts_and_clients_have_noise_of_their_own() -> None:
    streams = Streams(5)
    plan = plan_round(scheme(), Poisson(sampling_rate=0.5), streams=streams, round=1, num_clients=50)
    again = dataclasses.replace(plan, attempt=1)
    later = dataclasses.replace(plan, round=2)
    cpu = torch.device("cpu")
    draws = [noise_stream(streams, p, c).normal((100_000,), cpu).numpy() for p in (plan, again, later) for c in (0, 1)]
    for i, first in enumerate(draws):
        for second in draws[:i]:
            assert not correlated(first, second)
    assert correlated(draws[0], noise_stream(streams, plan, 0).normal((100_000,), cpu).numpy())


def test_poisson_cohorts_have_the_stated_rate() -> None:
    """The number of participations over many rounds is binomial; so is each client's."""
    sampler, rounds, clients = Poisson(sampling_rate=0.07), 3000, 200
    counts = np.zeros(clients, dtype=np.int64)
    for number in range(rounds):
        counts[sampler.draw(clients, Streams(1).numpy("cohort", number, 0))] += 1
    assert stats.binomtest(int(counts.sum()), rounds * clients, 0.07).pvalue > ALPHA
    expected = stats.binom.var(rounds, 0.07)
    statistic = ((counts - rounds * 0.07) ** 2).sum() / expected
    assert ALPHA < stats.chi2.cdf(statistic, clients) < 1 - ALPHA
    assert stats.binomtest(int(counts.sum()), rounds * clients, 0.075).pvalue < ALPHA


def test_the_share_is_what_the_formula_says() -> None:
    noise = Gaussian(noise_multiplier=1.54)
    assert noise.share_std(sensitivity=2.0, min_cohort=100) == pytest.approx(0.308)
