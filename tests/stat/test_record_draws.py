"""Records are drawn, clipped and noised as they are accounted for. False-alarm rate of each test: 1e-6."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from laconic.data.population import PooledPopulation, Records
from laconic.privacy.accounting.record_sampling import PerClassPoisson, PoissonRecords, PublishedBatches, RecordSampler
from laconic.streams import Streams
from laconic.train.engines.engine import Task
from laconic.train.engines.per_record import PerRecord
from laconic.train.flat import FlatModel
from laconic.train.local import LocalDPSGD

pytestmark = pytest.mark.stat
ALPHA = 1e-6
LABELS = (np.arange(400) < 16).astype(np.int64)  # 4 % positives
STEPS = 4000


def drawn(sampler: RecordSampler, labels: np.ndarray = LABELS) -> np.ndarray:
    """(steps, records): who is in which sample."""
    rng, found = Streams(3).numpy("records"), np.zeros((STEPS, len(labels)), dtype=bool)
    for step in range(STEPS):
        found[step, sampler.draw(labels, rng)] = True
    return found


def is_poisson(samples: np.ndarray, rates: np.ndarray) -> bool:
    """Every class and every record comes with its rate, and sizes vary as those of independent draws do."""
    counts, sizes = samples.sum(0), samples.sum(1)
    expected, variance = STEPS * rates, STEPS * rates * (1 - rates)
    each = ((counts - expected) ** 2 / variance).sum()
    together = ((sizes - rates.sum()) ** 2).sum() / (rates * (1 - rates)).sum()
    for rate in np.unique(rates):
        of_rate = rates == rate
        if stats.binomtest(int(counts[of_rate].sum()), STEPS * int(of_rate.sum()), rate).pvalue < ALPHA / 4:
            return False
    levels = [ALPHA / 8, 1 - ALPHA / 8]
    low, high = stats.chi2.ppf(levels, len(rates))
    low_size, high_size = stats.chi2.ppf(levels, STEPS)
    return bool(low <= each <= high and low_size <= together <= high_size)


SAMPLER = PerClassPoisson(batch_size=10, record_rate=0.3, prevalence=0.04)
RATES = np.where(LABELS == 1, 0.3, 0.3 * 0.04 / 0.96)


def test_records_come_at_the_rates_that_are_accounted_for() -> None:
    assert SAMPLER.rates == (pytest.approx(0.0125), 0.3)
    assert is_poisson(drawn(SAMPLER), RATES)
    assert is_poisson(drawn(PoissonRecords(batch_size=10, record_rate=0.3)), np.full(400, 0.3))


def test_another_rate_is_noticed() -> None:
    assert not is_poisson(drawn(dataclasses.replace(SAMPLER, record_rate=0.31)), RATES)


def test_samples_of_a_fixed_size_are_noticed() -> None:
    """The sabotaged twin: every record at its rate, but not independently of the others."""
    rng = np.random.default_rng(0)
    fixed = np.zeros((STEPS, 400), dtype=bool)
    for step in range(STEPS):
        fixed[step, rng.permutation(400)[:120]] = True
    assert not is_poisson(fixed, np.full(400, 0.3))


def test_no_record_comes_more_often_than_the_accounted_rate() -> None:
    """Published batches too: |B| / |D_k| at most; with a rarer class in them than in others, far less."""
    samples = drawn(PublishedBatches(batch_size=120, record_rate=0.3))
    most = int(samples.sum(0).max())
    assert stats.binom.sf(most - 1, STEPS, 0.3) > ALPHA / 400
    twin = drawn(PublishedBatches(batch_size=200, record_rate=0.5))  # drawn at 0.5 and accounted at 0.3
    assert stats.binom.sf(int(twin.sum(0).max()) - 1, STEPS, 0.3) < ALPHA / 400


SIZE = 200_000


def released(train: LocalDPSGD, change: Callable[[PerRecord], None] = lambda engine: None) -> np.ndarray:
    """(noisy sum of gradients) of one step on records whose gradients are all zero."""
    records = Records(torch.zeros(30, SIZE), torch.zeros(30, dtype=torch.int64))
    model = FlatModel(nn.Linear(SIZE, 2, bias=False), example=(records.inputs[:2], records.targets[:2]))
    engine = PerRecord(model, torch.device("cpu"))
    change(engine)
    task = Task(
        train=train,
        weights=torch.zeros(model.size),
        population=PooledPopulation(records, np.arange(30)[None]),
        clients=np.array([0]),
        streams=Streams(8),
        path=("batches", 1, 0),
    )
    update = next(engine.updates(task)).values[0]
    return -update.double().numpy() * 10 / train.local_lr


def training(sigma: float) -> LocalDPSGD:
    sampler = PoissonRecords(batch_size=10, record_rate=0.5)
    return LocalDPSGD(local_lr=0.5, clip_norm=0.7, noise_multiplier=sigma, records=sampler)


def is_as_stated(noise: np.ndarray) -> bool:
    """A two-sided χ² test of the variance against (S·σ)²."""
    statistic = float((noise**2).sum()) / (0.7 * 1.3) ** 2
    low, high = stats.chi2.ppf([ALPHA / 2, 1 - ALPHA / 2], len(noise))
    return bool(low <= statistic <= high)


def test_a_step_has_the_stated_noise() -> None:
    noise = released(training(1.3))
    assert is_as_stated(noise)
    assert stats.kstest(noise[:50_000] / (0.7 * 1.3), "norm").pvalue > ALPHA


def test_one_percent_less_is_noticed() -> None:
    assert not is_as_stated(released(training(1.3 * 0.99)))
