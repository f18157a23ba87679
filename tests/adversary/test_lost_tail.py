"""The end of a journal is lost, and the run is gone on with in another environment: what was released stays charged.

After a power failure, or by somebody's hand, any number of last rows may be missing from `charges.jsonl` and
`rounds.jsonl`. Elsewhere the rounds come out anew, so their first releases must be charged beside the new ones.
"""

from __future__ import annotations

import itertools
import shutil
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
ROUNDS, KILLED = 14, 13
OWN = "laconic.clients.simulated.environment_of"


class Killed(Exception):
    pass


def run(out: Path, *, kill: int = 0, **options: Any) -> laconic.RunResult:
    def watch(row: dict[str, Any]) -> None:
        if row["round"] == kill:
            raise Killed

    torch.manual_seed(0)
    return laconic.run(
        PRIVATE,
        model=nn.Linear(6, 3),
        clients=make_population([4, 9, 1, 12, 7] * 5),
        rounds=ROUNDS,
        sampling_rate=0.3,
        delta=1e-5,
        out=out,
        observer=watch,
        **options,
    )


def cut(path: Path, lines: int) -> None:
    kept = path.read_bytes().splitlines(keepends=True)[:lines]
    path.write_bytes(b"".join(kept))


def lost(folder: Path, out: Path, charges: int, rows: int) -> Path:
    """A copy of the folder that has only its first charges and rows."""
    shutil.copytree(folder, out)
    cut(out / "charges.jsonl", charges)
    cut(out / "rounds.jsonl", rows)
    return out


def charged_elsewhere(out: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> int | None:
    """How many rounds are charged when the run has ended elsewhere; None if that is refused."""
    with monkeypatch.context() as patch:
        patch.setattr(OWN, lambda *args: "elsewhere")
        try:
            return int(run(out, resume=True, **options).statement["released"]["rounds_charged"])
        except RunFolderError:
            return None


@pytest.fixture(params=[1e9, 0.0], ids=["one save", "saves"])
def killed(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """A folder that was killed in its last round but one. With one save, that is of round 10."""
    options = {"checkpoint_seconds": request.param}
    with pytest.raises(Killed):
        run(tmp_path / "killed", kill=KILLED, **options)
    return tmp_path / "killed", options


def test_no_prefix_of_a_journal_forgets_a_release(
    killed: tuple[Path, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, options = killed
    refused = counted = 0
    for charges, rows in itertools.product(range(KILLED + 1), (0, 10, KILLED)):
        out = lost(folder, tmp_path / f"{charges}-{rows}", charges, rows)
        found = charged_elsewhere(out, monkeypatch, **options)
        refused += found is None
        counted += found is not None
        # All that were released at home, and those that are released elsewhere after the save of round 10 or 12.
        least = KILLED + ROUNDS - (10 if options["checkpoint_seconds"] else KILLED - 1)
        assert found is None or found >= least, f"{charges} charges and {rows} rows left: {found} charged"
    assert counted
    assert refused >= 20  # those that a save shows to be missing


def test_without_what_a_save_announces_releases_are_forgotten(
    killed: tuple[Path, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, options = killed
    monkeypatch.setattr("laconic.store.restore.assume_lost", lambda *args: None)
    saved = 10 if options["checkpoint_seconds"] else KILLED - 1
    out = lost(folder, tmp_path / "cut", saved, saved)
    assert charged_elsewhere(out, monkeypatch, **options) == ROUNDS


def test_at_home_a_lost_tail_is_repeated_and_costs_nothing(killed: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    folder, options = killed
    saved = 10 if options["checkpoint_seconds"] else KILLED - 1
    result = run(lost(folder, tmp_path / "cut", saved, saved), resume=True, **options)
    whole = run(tmp_path / "whole", **options)
    assert result.statement == whole.statement
    assert (tmp_path / "cut/model.safetensors").read_bytes() == (tmp_path / "whole/model.safetensors").read_bytes()


def test_before_the_first_save_ten_rounds_may_be_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Killed):
        run(tmp_path / "run", kill=6, checkpoint_seconds=1e9)
    cut(tmp_path / "run/charges.jsonl", 0)
    cut(tmp_path / "run/rounds.jsonl", 0)
    assert charged_elsewhere(tmp_path / "run", monkeypatch, checkpoint_seconds=1e9) == 10 + ROUNDS


def test_a_state_of_before_the_last_save_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The row that announces a save is bound by the state: without the row the state fits nowhere."""
    with pytest.raises(Killed):
        run(tmp_path / "run", kill=KILLED, checkpoint_seconds=0.0)
    saves = tmp_path / "run/checkpoint/saves.jsonl"
    for left in range(0, len(saves.read_bytes().splitlines()) - 1, 3):
        out = tmp_path / f"cut-{left}"
        shutil.copytree(tmp_path / "run", out)
        cut(out / "checkpoint/saves.jsonl", left)
        for charges in (0, 6, KILLED):
            cut(out / "charges.jsonl", KILLED - charges)
            assert charged_elsewhere(out, monkeypatch, checkpoint_seconds=0.0) is None
