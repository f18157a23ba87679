"""Runs side by side on a GPU: recorded training of several runs, against each run alone. Skipped without one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from laconic.data.population import PooledPopulation, Records
from laconic.models.networks import cnn
from laconic.streams import Streams
from laconic.sweeps.grid import Grid
from laconic.sweeps.jobs import Watch
from laconic.sweeps.sweep import Sweep
from laconic.train.engines.cohort import CohortAtOnce
from laconic.train.engines.engine import Task
from laconic.train.engines.joint import JointCohort
from laconic.train.flat import FlatModel
from laconic.train.local import LocalSGD

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
GPU = torch.device("cuda")
TRAIN = {
    "sgd": LocalSGD(local_lr=0.1, local_steps=3, batch_size=4),
    "adam": LocalSGD(local_lr=0.01, optimizer="adam", local_steps=3, batch_size=4),
}


def records(seed: int) -> PooledPopulation:
    rng = np.random.default_rng(seed)
    inputs = torch.from_numpy(rng.normal(size=(60, 1, 12, 12)).astype(np.float32))
    pool = Records(inputs, torch.from_numpy(rng.integers(0, 4, 60)))
    return PooledPopulation(pool, np.arange(60).reshape(10, 6)).to(GPU)


@pytest.mark.parametrize("supports", [False, True])
@pytest.mark.parametrize("kind", TRAIN)
def test_recorded_training_of_several_runs_gives_each_its_updates(kind: str, supports: bool) -> None:
    torch.manual_seed(7)  # a start without a unit so near to ReLU's kink that rounding decides on which side it is
    module = cnn(input_shape=(1, 12, 12), num_classes=4)
    example = (torch.randn(2, 1, 12, 12), torch.zeros(2, dtype=torch.int64))
    model = FlatModel(module, example=example).to(GPU)
    alone = CohortAtOnce(model, GPU, example[0], precision="float32")
    together = JointCohort(CohortAtOnce(model, GPU, example[0], precision="float32"))
    populations = [records(run) for run in range(3)]
    for number in range(4):  # as it is, recorded, replayed twice
        asked = []
        for run, population in enumerate(populations):
            generator = torch.Generator().manual_seed(10 * number + run)
            noise = torch.randn(model.size, generator=generator).to(GPU)
            some = torch.randperm(model.size, generator=generator)[: model.size // 7].sort().values.to(GPU)
            asked.append(
                Task(
                    train=replace(TRAIN[kind], local_lr=TRAIN[kind].local_lr * (1 + run)),
                    weights=model.initial + 0.01 * noise,
                    population=population,
                    clients=np.arange(number, number + 3 + run),
                    streams=Streams(run),
                    path=("batches", number, 0),
                    trained=some if supports else None,
                )
            )
        for task, trained in zip(asked, together.train(asked), strict=True):
            (expected,) = alone.updates(task)
            # By norms: Adam makes much of the rounding of a gradient that is almost 0.
            assert float((trained.values - expected.values).norm()) <= 1e-3 * float(expected.values.norm())
            counts = torch.arange(1.0, 1 + len(task.clients), device=GPU)
            sums = counts @ expected.values
            assert float((trained.weighted_sum(counts) - sums).norm()) <= 1e-3 * float(sums.norm())


def test_a_sweep_on_a_gpu_is_side_by_side_and_within_tolerance_of_its_runs(tmp_path: Path) -> None:
    grid: dict[str, Any] = {
        "run": {"rounds": 5, "device": "cuda", "precision": "float32"},
        "data": {"num_clients": 40},
        "sampler": {"sampling_rate": 0.25},
        "model": {"name": "cnn"},
        "scheme": {"name": "fl-std", "local_steps": 3},
        "grid": {"local_lr": [0.05, 0.1]},
        "seeds": 2,
    }
    for out, side_by_side in (("together", None), ("alone", False)):
        result = Sweep.of(Grid.from_dict(grid), tmp_path / out, side_by_side=side_by_side).run(Watch())
        assert not result.failures
    for run in (tmp_path / "alone/runs").iterdir():
        other = tmp_path / "together/runs" / run.name
        first, second = load_file(run / "model.safetensors"), load_file(other / "model.safetensors")
        for name, weights in first.items():
            assert float((weights - second[name]).abs().max()) <= 5e-3 * max(0.1, float(weights.abs().max())), name
        rows = [
            [json.loads(line)["cohort"] for line in (one / "rounds.jsonl").read_text().splitlines()]
            for one in (run, other)
        ]
        assert rows[0] == rows[1]
