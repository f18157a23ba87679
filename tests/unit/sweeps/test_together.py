"""Runs side by side: each is the run that it is alone, up to rounding; one that fails or stops leaves the others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from laconic.observers.observer import Row
from laconic.sweeps import sweep as sweep_module
from laconic.sweeps import together
from laconic.sweeps.grid import Grid
from laconic.sweeps.jobs import Watch
from laconic.sweeps.sweep import Sweep
from laconic.train.engines import joint

BASE: dict[str, Any] = {
    "run": {"rounds": 2, "device": "cpu", "threads": 1, "engine": "cohort", "eval_every": 2},
    "data": {"num_clients": 40},
    "sampler": {"sampling_rate": 0.2},
    "model": {"name": "logistic"},
}
STD = {"name": "fl-std", "local_steps": 2}


def swept(out: Path, *, side_by_side: bool, watch: Watch | None = None, jobs: int | None = None, **more: Any) -> Any:
    grid = Grid.from_dict(BASE | more)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sweep_module, "plots_available", lambda: False)  # it takes time, and is tested elsewhere
        return Sweep.of(grid, out, side_by_side=side_by_side, jobs=jobs).run(watch or Watch())


def close(one: Path, other: Path, tolerance: float = 1e-5) -> None:
    """Weights to a tolerance; cohorts, bytes and ε exactly."""
    first, second = load_file(one / "model.safetensors"), load_file(other / "model.safetensors")
    for name, weights in first.items():
        assert float((weights - second[name]).abs().max()) <= tolerance * max(1.0, float(weights.abs().max())), name
    rows = [[json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()] for run in (one, other)]
    for mine, theirs in zip(*rows, strict=True):
        for key in ("round", "attempt", "cohort", "bytes_up", "bytes_down", "epsilon", "participant_epsilon"):
            assert mine.get(key) == theirs.get(key)


def test_attacked_runs_side_by_side_are_what_they_are_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attackers train, too, in the middle of a round in which another run has none."""
    joined: list[int] = []
    train = joint.JointCohort.train

    def counted(self: Any, tasks: Any) -> Any:
        joined.append(len(tasks))
        return train(self, tasks)

    monkeypatch.setattr(joint.JointCohort, "train", counted)
    axes: dict[str, Any] = {
        "scheme": STD,
        "attack": {"kind": "gradient-ascent"},
        "zip": {"fraction": [0.0, 0.2, 0.4], "local_lr": [0.1, 0.2, 0.3]},
    }
    result = swept(tmp_path / "together", side_by_side=True, **axes)
    assert [line.state for line in result.table.lines] == ["finished"] * 3
    assert set(joined) == {2, 3}, "all, and those with attackers"
    swept(tmp_path / "alone", side_by_side=False, **axes)
    for line in result.table.lines:
        close(tmp_path / "together/runs" / line.point.name, tmp_path / "alone/runs" / line.point.name)


class Interrupting(Watch):
    """Interrupts, or fails, in a round of one run."""

    def __init__(self, error: type[BaseException], name: str, number: int) -> None:
        self._error, self._name, self._number = error, name, number

    def row(self, name: str, row: Row) -> None:
        if (name, row["round"]) == (self._name, self._number):
            raise self._error("in the middle")


def test_a_run_that_fails_leaves_the_others(tmp_path: Path) -> None:
    result = swept(tmp_path, side_by_side=True, watch=Interrupting(ValueError, "seed=1", 2), scheme=STD, seeds=3)
    assert [line.state for line in result.table.lines] == ["finished", "failed", "finished"]
    assert result.failures == {"seed=1": "ValueError: in the middle"}


def test_an_interrupt_lets_runs_finish_their_round_and_all_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interrupt comes while runs are trained, as a Ctrl-C does in the main thread."""
    private: dict[str, Any] = {
        "scheme": {"name": "fl-std-dp", "clip_norm": 0.5, "noise_multiplier": 1.0, "local_steps": 2},
        "seeds": 2,
        "run": BASE["run"] | {"rounds": 3},
    }
    train, calls = together._Session.train, []

    def interrupted(self: Any, group: Any) -> Any:
        calls.append(len(group))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return train(self, group)

    monkeypatch.setattr(together._Session, "train", interrupted)
    with pytest.raises(KeyboardInterrupt):
        swept(tmp_path / "together", side_by_side=True, **private)
    monkeypatch.setattr(together._Session, "train", train)
    swept(tmp_path / "together", side_by_side=True, **private)
    for run in (tmp_path / "together/runs").iterdir():
        rows, charges = (
            [json.loads(line) for line in (run / name).read_text().splitlines()]
            for name in ("rounds.jsonl", "charges.jsonl")
        )
        # The round that was charged when the interrupt came was finished: nothing is charged twice.
        assert [(row["round"], row["attempt"]) for row in rows] == [(1, 0), (2, 0), (3, 0)]
        sessions = [charge["environment"] for charge in charges]
        # What a kill cuts off could come out with other bits: no other session takes its own rounds for replays.
        assert len(charges) == 3 and sessions[0] == sessions[1] != sessions[2]


def test_frozen_weights_of_a_random_start_make_another_shape() -> None:
    from laconic.train.engines.cohort import CohortAtOnce
    from laconic.train.flat import FlatModel

    def engine(seed: int) -> CohortAtOnce:
        torch.manual_seed(seed)
        module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
        module[0].requires_grad_(seed < 0)
        example = (torch.zeros(2, 4), torch.zeros(2, dtype=torch.int64))
        return CohortAtOnce(FlatModel(module, example=example), torch.device("cpu"), example[0])

    config = Grid.from_dict(BASE | {"scheme": STD}).points()[0].config
    assert together.shape_of(engine(1), config) == together.shape_of(engine(1), config)
    assert together.shape_of(engine(1), config) != together.shape_of(engine(2), config)
    assert together.shape_of(engine(-1), config) == together.shape_of(engine(-2), config)
