"""What a run will take on this machine: memory by what it holds at once, and the time of its noise by a sample."""

from __future__ import annotations

import math
import time

import numpy as np
import torch

from laconic.clients.simulated import SimulatedClients
from laconic.data.inputs import tensors_of
from laconic.data.population import PooledPopulation, Records, first_of
from laconic.experiment.experiment import Experiment
from laconic.experiment.identity import wait_for
from laconic.features.base import FrontEnd
from laconic.round import empty_sum, noise_around, noisy_codes, rows_at_once
from laconic.train.engines.engine import Crew
from laconic.train.local import LocalSGD

_SAMPLE = 1 << 22
"""Values drawn to see how long it takes: enough that they do not stay in the processor's caches."""

_ENOUGH = 0.5
"""Seconds after which a sample is not drawn again."""


def memory_bytes(experiment: Experiment, clients: SimulatedClients) -> int:
    """Pooled records and their features, test records, what training holds, and what noise holds.

    Training holds about six vectors of n floats per client trained at once, and four for the server. Numbers of noise
    have 8 bytes: seven of them per value that is drawn at once, two per value of a client that waits, and four for the
    sum. That is several times what training takes, and as much whether sums are masked or not: a client's noise is
    drawn before its vector is masked, and masks are made in small pieces. Pictures that are kept as bytes are made
    float32 for the batches of the clients trained at once. An aggregator that looks at single codes holds those of the
    whole cohort.
    """
    population, cohort = experiment.population, _cohort(experiment)
    at_once = min(clients.work.engine.at_once, cohort)
    if isinstance(population, PooledPopulation) and population.made_when_picked:
        made = at_once * _visited(experiment, population.size(0)) * _bytes(first_of(population))
        record = _bytes(population.pool) / len(population.pool.targets)
    else:
        first, made = population.records(0), 0
        record = _bytes(first) / len(first.targets)
    if isinstance(experiment.front_end, FrontEnd):
        record += 4 * math.prod(experiment.front_end.output_shape)
    data = record * sum(population.size(c) for c in range(min(100, population.num_clients)))
    data = data * max(1, population.num_clients // 100)
    test = _bytes(experiment.test) if experiment.test else 0
    training = clients.model.size * 4 * (6 * at_once + 4)
    looks = not experiment.scheme.aggregator.sums and experiment.scheme.groups == 1
    single = 4 * cohort * clients.code_size if looks else 0
    return int(data + made + test + training + single + _noise_bytes(experiment, clients, at_once))


def _visited(experiment: Experiment, size: int) -> int:
    """How many records a client that holds so many has in its batches, at most."""
    train, sizes = experiment.scheme.train, np.array([size])
    if not isinstance(train, LocalSGD):
        return size
    return min(size, int(train.steps_of(sizes)[0]) * int(train.batch_of(sizes)[0]))


def _noise_bytes(experiment: Experiment, clients: SimulatedClients, at_once: int) -> int:
    noise = experiment.scheme.noise
    if not noise.private:
        return 0
    workers, code_size = min(_workers(clients), at_once), max(clients.sizes(number)[0] for number in (1, None))
    drawn = workers * min(-(-at_once // workers), rows_at_once(code_size, clients.device))
    numbers = 7 * drawn + 2 * (at_once - drawn) + 3 + experiment.scheme.groups
    return code_size * numbers * (8 if noise.on_integers else 4)


def noise_seconds(experiment: Experiment, clients: SimulatedClients) -> float | None:
    """How long the noise of one round takes here, by drawing some; None where none is added to codes."""
    scheme, cohort = experiment.scheme, _cohort(experiment)
    if not scheme.noise.private:
        return None
    threads, workers = torch.get_num_threads(), min(_workers(clients), cohort)
    each = math.ceil(cohort / workers)
    size, plan = min(clients.code_size, _SAMPLE), experiment.typical_plan()
    rows = min(each, clients.work.engine.at_once // workers, rows_at_once(size, clients.device))
    codes = torch.zeros(rows, size, device=clients.device)
    streams = [clients.streams.stream("forecast", row) for row in range(rows)]
    total = empty_sum(scheme, plan, size, clients.device)

    def drawn() -> None:
        if experiment.draws_per_sum:
            noise_around(scheme, plan, total, shares=len(plan.cohort), stream=streams[0])
        else:
            noisy_codes(scheme, plan, codes, streams=streams)

    drawn()  # the tables are made once in a run
    try:
        if workers > 1 and not experiment.draws_per_sum:
            torch.set_num_threads(1)  # as each of them has
        seconds: list[float] = []
        while sum(seconds) < _ENOUGH and len(seconds) < 5:
            wait_for(clients.device)
            started = time.perf_counter()
            drawn()
            wait_for(clients.device)
            seconds.append(time.perf_counter() - started)
    finally:
        torch.set_num_threads(threads)
    times = scheme.groups if experiment.draws_per_sum else each / rows
    return min(seconds) * clients.code_size / size * times


def _workers(clients: SimulatedClients) -> int:
    return clients.work.engine.num_workers if isinstance(clients.work.engine, Crew) else 1


def _cohort(experiment: Experiment) -> int:
    return max(1, round(experiment.sampler.planned_cohort(experiment.population.num_clients)))


def _bytes(records: Records) -> int:
    return sum(t.numel() * t.element_size() for t in (*tensors_of(records.inputs), records.targets))
