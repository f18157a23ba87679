"""What `laconic plan` says of memory and of the time of noise, against runs."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import laconic
from conftest import make_population
from laconic import schemes
from laconic.data.inputs import Pictures
from laconic.data.population import PooledPopulation, Records
from laconic.experiment.experiment import Experiment
from laconic.runner.run import Run
from laconic.settings import forecast as costs
from laconic.settings.config import RunConfig
from laconic.settings.forecast import forecast

PRIVATE = schemes.fl_std_dp(clip_norm=0.5, noise_multiplier=1.0, local_lr=0.2, local_steps=2, batch_size=4)
PLAIN = schemes.fl_std(local_lr=0.2, local_steps=2, batch_size=4)

MASKED_ROUND = """
import json, resource, sys, torch, laconic
from laconic import schemes
from laconic.data.population import as_population
from laconic.settings.forecast import memory_bytes
from laconic.experiment.experiment import Experiment
from laconic.runner.run import Run
import laconic.secagg, dp_accounting.rdp, scipy.stats

def peak():  # on Linux, getrusage's figure includes the process that started this one
    try:
        with open("/proc/self/status") as status:
            return next(1024 * int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    except FileNotFoundError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

torch.set_num_threads(1)
secagg, workers, width = sys.argv[1], int(sys.argv[2]), 800_000
scheme = schemes.fl_std_dp(clip_norm=1.0, noise_multiplier=1.0, local_lr=0.1, local_steps=1, batch_size=1)
clients = as_population([(torch.ones(1, width), torch.zeros(1, dtype=torch.long)) for _ in range(4)])
nothing = peak()
experiment = Experiment(
    scheme=scheme, model=torch.nn.Linear(width, 10, bias=False), population=clients, rounds=1, workers=workers,
    sampler=laconic.Poisson(sampling_rate=1.0), budget=laconic.Budget(delta=1e-5), secagg=secagg, engine="one-by-one",
)
simulation = Run(experiment)
said = memory_bytes(experiment, simulation.clients)
simulation.begin()
plan = simulation.begin_round(1)
simulation.finish_round(plan, simulation.clients.collect(plan, simulation.state.weights))
print(json.dumps([said, peak() - nothing]))
"""


@pytest.mark.parametrize(
    ("secagg", "workers"),
    [
        ("masked", 1),
        pytest.param("simulated", 1, marks=pytest.mark.slow),
        pytest.param("masked", 2, marks=pytest.mark.slow),
    ],
)
def test_the_memory_of_a_private_run_is_what_the_plan_says(secagg: str, workers: int) -> None:
    pytest.importorskip("resource")
    command = [sys.executable, "-c", MASKED_ROUND, secagg, str(workers)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    said, taken = json.loads(done.stdout)
    assert 0.6 * taken < said < 1.5 * taken, f"{said / 1e6:.0f} MB, and it was {taken / 1e6:.0f} MB"


def simulation(scheme: Any, **options: Any) -> tuple[Experiment, Run]:
    experiment = Experiment(
        scheme=scheme,
        model=nn.Linear(6, 3),
        population=make_population([4] * 40),
        sampler=laconic.Poisson(sampling_rate=0.5),
        rounds=3,
        budget=laconic.Budget(delta=1e-5) if scheme.private else None,
        engine="one-by-one",
        **options,
    )
    return experiment, Run(experiment)


@pytest.mark.parametrize(("workers", "rounds"), [(1, 20), (4, 5), (3, 7)])
def test_the_time_of_noise_is_that_of_a_sample_for_all_clients_and_workers(
    monkeypatch: pytest.MonkeyPatch, workers: int, rounds: int
) -> None:
    ticks = itertools.count()
    monkeypatch.setattr(costs.time, "perf_counter", lambda: float(next(ticks)))
    monkeypatch.setattr(costs, "_SAMPLE", 7)
    experiment, run = simulation(PRIVATE, workers=workers, noise_draws="per-client")
    threads = torch.get_num_threads()
    assert costs.noise_seconds(experiment, run.clients) == pytest.approx(21 / 7 * rounds)
    assert torch.get_num_threads() == threads
    experiment, run = simulation(PRIVATE, workers=workers)
    assert costs.noise_seconds(experiment, run.clients) == pytest.approx(21 / 7)  # one draw for a coordinate


def test_without_noise_there_is_neither_time_nor_memory_for_it() -> None:
    experiment, run = simulation(PLAIN, workers=1)
    assert costs.noise_seconds(experiment, run.clients) is None
    assert costs._noise_bytes(experiment, run.clients, 1) == 0


def test_a_plan_says_both(capsys: pytest.CaptureFixture[str]) -> None:
    config = {"scheme": {"name": "fl-std-dp", "clip_norm": 0.5, "noise_multiplier": 1.0}, "data": {"num_clients": 50}}
    result = forecast(RunConfig.from_dict(config | {"secagg": {"mode": "masked"}}))
    assert result["noise_seconds_per_round"] > 0
    assert result["memory_bytes"] > 0
    from laconic.cli.plan import _print

    _print(result, papers=False)
    shown = " ".join(capsys.readouterr().out.split())
    assert "for data, training and noise" in shown
    assert "noise: about" in shown


def test_pictures_count_as_bytes_however_many_variants_there_are() -> None:
    pixels = torch.zeros(2000, 3, 32, 32, dtype=torch.uint8)
    said = {}
    for variants in (1, 20):
        pictures = Pictures(pixels).augmented(variants, np.random.default_rng(0))
        records = Records(pictures, torch.arange(len(pictures)) % 2)
        population = PooledPopulation(records, np.arange(len(pictures)).reshape(-1, 20))
        sampler = laconic.FixedSize(cohort_size=1)
        model = nn.Sequential(nn.Flatten(), nn.Linear(3072, 2))
        experiment = Experiment(scheme=PLAIN, model=model, population=population, rounds=1, sampler=sampler)
        said[variants] = costs.memory_bytes(experiment, Run(experiment).clients)
    assert pixels.nbytes < said[1] < 2 * pixels.nbytes  # as float32 they would take four times as much
    assert said[20] < 1.3 * said[1]
