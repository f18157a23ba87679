"""Small work takes one thread by itself, by its shape; what the user says holds."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import laconic
from conftest import make_population, make_records
from laconic.clients.simulated import SimulatedClients
from laconic.experiment.experiment import Experiment
from laconic.runner.run import Run

SMALL = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3))


@pytest.fixture(autouse=True)
def two_threads() -> Any:
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


def experiment(model: nn.Module = SMALL, **options: Any) -> Experiment:
    given: dict[str, Any] = {"rounds": 2, "test": make_records(20, seed=1)} | options
    return Experiment(
        scheme=laconic.schemes.fl_std(local_lr=0.1, local_steps=given.pop("steps", 2)),
        model=model,
        population=make_population([4] * 5),
        sampler=laconic.Poisson(sampling_rate=1.0),
        **given,
    )


def test_a_run_of_small_rounds_computes_on_one_thread_and_gives_the_others_back() -> None:
    seen: list[int] = []
    Run(experiment(), observer=lambda row: seen.append(torch.get_num_threads())).run()
    assert seen == [1, 1] and torch.get_num_threads() == 2


def test_what_the_user_says_holds() -> None:
    seen: list[int] = []
    run = Run(experiment(threads=3), observer=lambda row: seen.append(torch.get_num_threads()))
    run.run()
    assert seen == [3, 3] and "; 3 threads; " in run.clients.environment


@pytest.mark.parametrize(
    ("options", "threads"),
    [
        ({}, 1),
        ({"steps": 10**7}, 2),
        ({"model": nn.Sequential(nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 2, 3), nn.Flatten(), nn.Linear(8, 3))}, 2),
        ({"front_end": nn.Linear(6, 6)}, 2),
    ],
    ids=["dense layers", "many steps", "a convolution", "a front end"],
)
def test_the_rule_looks_at_shapes(options: dict[str, Any], threads: int) -> None:
    clients = SimulatedClients(experiment(**options))
    assert clients.threads == threads and f"; {threads} threads; " in clients.environment
