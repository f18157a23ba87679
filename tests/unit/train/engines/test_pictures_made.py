"""Pictures are made for the batches that have them: who holds many takes no more memory than its steps do."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from laconic.data.inputs import Pictures, dense
from laconic.data.population import PooledPopulation, Records
from laconic.runner.run import Run
from laconic.settings.build import settle
from laconic.settings.config import RunConfig
from laconic.streams import Streams
from laconic.train.engines.engine import Task
from laconic.train.local import LocalSGD

PIXELS = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (40, 1, 4, 4), dtype=np.uint8))
POOL = Records(Pictures(PIXELS).augmented(3, np.random.default_rng(1)), torch.arange(120) % 2)
ROWS = [np.arange(90), np.arange(90, 97), np.arange(97, 120)]


@pytest.mark.parametrize("balance", ["none", "weights", "oversample", "downsample"])
@pytest.mark.parametrize(("batch", "steps", "made"), [(4, 3, 12), (10, 2, 20), (5, 40, 90), (90, 1, 90)])
def test_batches_are_those_of_the_pictures_made_all_at_once(batch: int, steps: int, made: int, balance: str) -> None:
    train = LocalSGD(local_lr=0.1, batch_size=batch, local_steps=steps, balance=balance)
    lazy = PooledPopulation(POOL, ROWS)
    plain = PooledPopulation(Records(dense(POOL.inputs), POOL.targets), ROWS)
    found, expected = (
        Task(train, torch.zeros(1), population, np.arange(3), Streams(2), ("batches", 1, 0)).records_and_batches(
            np.arange(3), torch.device("cpu")
        )
        for population in (lazy, plain)
    )
    steps_and_batch = found[1].indices.shape[1:]  # where a rare class is repeated, batches are larger
    assert found[0].inputs.shape[1] == (min(90, math.prod(steps_and_batch)) if balance == "oversample" else made)
    assert found[0].sizes.tolist() == [90, 7, 23]
    for field in ("counts", "steps", "shares"):
        assert np.array_equal(getattr(found[1], field), getattr(expected[1], field))
    assert torch.equal(found[2], expected[2])
    rows = np.arange(3)[:, None, None]
    for values in ("inputs", "targets"):
        mine, all_made = (
            getattr(records, values)[rows, schedule.indices] for records, schedule, _ in (found, expected)
        )
        real = np.arange(mine.shape[2]) < found[1].counts[:, :, None]
        assert torch.equal(mine[real], all_made[real])


def test_one_client_with_all_variants_makes_those_of_its_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Digits in 40 variants are 57,520 pictures, all with the only client of the centralised reference."""
    most: list[int] = []
    make = Pictures.__getitem__

    def counted(self: Pictures, rows: Any) -> Tensor:
        made = make(self, rows)
        most.append(made.numel() // 64)
        return made

    monkeypatch.setattr(Pictures, "__getitem__", counted)
    values = {"data.dataset": "digits", "data.augment": 40, "scheme.name": "centralized", "run.rounds": 1}
    config = RunConfig().with_values(values | {"scheme.local_steps": 2, "scheme.batch_size": 10})
    Run(settle(config).experiment).run()
    assert max(most) == 20
