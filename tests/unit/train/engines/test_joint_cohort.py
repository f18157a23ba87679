"""Clients of several runs as one cohort: each client's update is, up to rounding, the one that its run alone gives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from conftest import assert_close, make_population
from laconic.streams import Streams
from laconic.train.engines import joint
from laconic.train.engines.cohort import CohortAtOnce
from laconic.train.engines.engine import Task, Updates
from laconic.train.engines.joint import JointCohort
from laconic.train.flat import FlatModel
from laconic.train.local import LocalSGD

CPU = torch.device("cpu")
FEATURES, WIDE = 6, 96
EXAMPLE = (torch.randn(2, FEATURES), torch.zeros(2, dtype=torch.int64))
SIZES = ([4, 9, 1, 12, 7], [3, 3, 8, 2, 5], [6, 1, 1, 10, 4])
CLIENTS = ([0, 1, 3], [2], [1, 2, 3, 4])
STEPS: dict[str, Any] = {"local_steps": 3, "batch_size": 4}


def module() -> nn.Module:
    """A network whose middle and last layers are worth factoring when few records are trained on."""
    torch.manual_seed(1)
    middle = (nn.ReLU(), nn.Dropout(0.2), nn.Linear(WIDE, WIDE), nn.Tanh())
    return nn.Sequential(nn.Linear(FEATURES, WIDE), *middle, nn.Linear(WIDE, 2))


def engine() -> CohortAtOnce:
    return CohortAtOnce(FlatModel(module(), example=EXAMPLE), CPU, EXAMPLE[0])


def tasks(model: FlatModel, train: LocalSGD, supports: bool) -> list[Task]:
    """One of each of three runs, which differ in everything that may differ."""
    found = []
    for run, (sizes, clients) in enumerate(zip(SIZES, CLIENTS, strict=True)):
        generator = torch.Generator().manual_seed(run)
        some = torch.randperm(model.size, generator=generator)[: model.size // (5 + run)].sort().values
        found.append(
            Task(
                train=replace(train, local_lr=train.local_lr * (1 + run)),
                weights=model.initial + 0.05 * torch.randn(model.size, generator=generator),
                population=make_population(sizes, classes=2, seed=run),
                clients=np.array(clients),
                streams=Streams(run),
                path=("batches", 3, 0),
                trained=some if supports and run else None,
            )
        )
    return found


CASES: dict[str, tuple[LocalSGD, bool]] = {
    "sgd": (LocalSGD(local_lr=0.1, **STEPS), False),
    "factored": (LocalSGD(local_lr=0.1, local_steps=2, batch_size=1), False),
    "epochs": (LocalSGD(local_lr=0.1, epochs=2, batch_size=3), False),
    "whole data": (LocalSGD(local_lr=0.1, local_steps=2), False),
    "adam": (LocalSGD(local_lr=0.01, optimizer="adam", **STEPS), False),
    "supports": (LocalSGD(local_lr=0.1, **STEPS), True),
    "adam on supports": (LocalSGD(local_lr=0.01, optimizer="adam", **STEPS), True),
    "weighted classes": (LocalSGD(local_lr=0.1, balance="weights", **STEPS), False),
    "balanced batches": (LocalSGD(local_lr=0.1, balance="downsample", **STEPS), False),
}


def compared(train: LocalSGD, supports: bool) -> None:
    together, alone = JointCohort(engine()), engine()
    for _ in range(2):  # the second time in memory that was used before
        asked = tasks(alone.vectorised.model, train, supports)
        for task, trained in zip(asked, together.train(asked), strict=True):
            (expected,) = alone.updates(task)
            assert trained.clients.tolist() == task.clients.tolist()
            assert trained.num_records.tolist() == expected.num_records.tolist()
            assert_close(trained.values, expected.values)
            counts = torch.arange(1.0, 1 + len(task.clients))
            assert_close(trained.weighted_sum(counts), counts @ expected.values)
            if task.trained is not None:
                still = torch.ones(len(task.weights), dtype=torch.bool)
                still[task.trained] = False
                assert not trained.values[:, still].any()


@pytest.mark.parametrize("case", CASES)
def test_every_run_gets_the_updates_that_it_gets_alone(case: str) -> None:
    compared(*CASES[case])


def test_layers_are_factored_in_the_case_that_says_so() -> None:
    together = JointCohort(engine())
    together.train(tasks(engine().vectorised.model, *CASES["factored"]))
    (block,) = together._blocks.values()
    assert "3.weight" in block._factors


@pytest.mark.parametrize("mixed_up", ["_rates", "_start", "_keys"])
def test_numbers_of_another_run_would_be_noticed(mixed_up: str, monkeypatch: pytest.MonkeyPatch) -> None:
    load = joint._Block.load

    def sabotaged(self: Any, given: Any) -> None:
        load(self, given)
        values = getattr(self, mixed_up)
        values.copy_(values.flip(0))

    monkeypatch.setattr(joint._Block, "load", sabotaged)
    with pytest.raises(AssertionError):
        compared(*CASES["sgd"])


def test_only_as_many_runs_are_trained_together_as_fit() -> None:
    model = FlatModel(module(), example=EXAMPLE)
    small = JointCohort(CohortAtOnce(model, CPU, EXAMPLE[0], chunk=9))
    assert small.runs_at_once(tasks(model, *CASES["sgd"])) == 2


def test_what_is_done_with_the_updates_is_up_to_the_run() -> None:
    """`then` is not called by the cohort: each run does it when it goes on."""
    model = engine().vectorised.model

    def never(trained: Any) -> Updates:
        raise AssertionError("not here")

    asked = [replace(task, then=never) for task in tasks(model, *CASES["sgd"])]
    assert len(JointCohort(engine()).train(asked)) == 3
