"""A journal that is deleted, replaced or changed while the run goes on: noticed before the next charge."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import laconic
from conftest import make_population
from laconic import schemes
from laconic.errors import RunFolderError

PRIVATE = schemes.fl_std_dp(clip_norm=0.5, noise_multiplier=1.0, local_lr=0.2, local_steps=1, batch_size=4)
PLAIN = schemes.fl_std(local_lr=0.2, local_steps=1, batch_size=4)


def run(out: Path, scheme: Any = PRIVATE, **options: Any) -> laconic.RunResult:
    torch.manual_seed(0)
    if scheme.private:
        options["delta"] = 1e-5
    clients = make_population([4, 9, 1, 12, 7] * 5)
    return laconic.run(scheme, model=nn.Linear(6, 3), clients=clients, rounds=5, sampling_rate=0.3, out=out, **options)


def delete_charges(out: Path) -> None:
    (out / "charges.jsonl").unlink()


def delete_saves(out: Path) -> None:
    (out / "checkpoint/saves.jsonl").unlink()


def cut_charges_short(out: Path) -> None:
    lines = (out / "charges.jsonl").read_bytes().splitlines(keepends=True)
    with open(out / "charges.jsonl", "r+b") as stream:
        stream.truncate(len(b"".join(lines[:-1])))


def copy_charges_over_themselves(out: Path) -> None:
    content = (out / "charges.jsonl").read_bytes()
    (out / "charges.jsonl").unlink()
    (out / "charges.jsonl").write_bytes(content)


def overwrite_the_last_charge(out: Path) -> None:
    content = (out / "charges.jsonl").read_bytes()
    with open(out / "charges.jsonl", "r+b") as stream:
        stream.write(content[:-30] + b"x" * 29 + b"\n")


def put_another_folder_there(out: Path) -> None:
    out.rename(out.with_name("moved"))
    shutil.copytree(out.with_name("moved"), out)


def move_the_folder_away(out: Path) -> None:
    out.rename(out.with_name("moved"))


CHANGES: list[Callable[[Path], None]] = [
    delete_charges,
    delete_saves,
    cut_charges_short,
    copy_charges_over_themselves,
    overwrite_the_last_charge,
    put_another_folder_there,
    move_the_folder_away,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("checkpoint_seconds", [0.0, 1e9])
def test_no_round_is_charged_after_its_journal_is_gone(
    tmp_path: Path, change: Callable[[Path], None], checkpoint_seconds: float
) -> None:
    out, seen = tmp_path / "run", []

    def watch(row: dict[str, Any]) -> None:
        seen.append(row["round"])
        if row["round"] == 2:
            change(out)

    with pytest.raises(RunFolderError, match="not what this run wrote") as error:
        run(out, observer=watch, checkpoint_seconds=checkpoint_seconds)
    assert seen == [1, 2], "round 3 must not be charged, nor trained"
    assert "\n" not in str(error.value)
    assert not (out / "model.safetensors").exists()


def test_a_run_without_charges_notices_when_it_saves(tmp_path: Path) -> None:
    def watch(row: dict[str, Any]) -> None:
        if row["round"] == 2:
            delete_saves(tmp_path / "run")

    with pytest.raises(RunFolderError, match="not what this run wrote"):
        run(tmp_path / "run", PLAIN, observer=watch)


def test_a_folder_that_was_moved_goes_on_from_its_new_place(tmp_path: Path) -> None:
    out = tmp_path / "run"

    def watch(row: dict[str, Any]) -> None:
        if row["round"] == 2:
            move_the_folder_away(out)

    with pytest.raises(RunFolderError):
        run(out, observer=watch, checkpoint_seconds=0.0)
    run(tmp_path / "moved", resume=True)
    run(tmp_path / "undisturbed")
    for name in ("model.safetensors", "privacy.json"):
        assert (tmp_path / "moved" / name).read_bytes() == (tmp_path / "undisturbed" / name).read_bytes()
