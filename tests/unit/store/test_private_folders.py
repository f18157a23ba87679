"""What a run writes is readable by its owner alone, whatever the process would allow by itself."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e_tools import call
from torch import nn

import laconic
from conftest import make_population, make_records
from laconic import schemes
from laconic.files import private_folder
from laconic.store.folder import RunFolder

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no permissions as on Unix")


@pytest.fixture(autouse=True)
def generous_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def open_to_others(top: Path) -> list[str]:
    """What others could read: files and folders that no folder above them closes."""
    if not top.stat().st_mode & 0o055:
        return []
    inside = sorted(top.iterdir()) if top.is_dir() else []
    return [str(top), *(found for path in inside for found in open_to_others(path))]


def run(out: Path) -> None:
    scheme = schemes.fl_std_dp(clip_norm=0.5, noise_multiplier=1.0, local_lr=0.2, local_steps=1, batch_size=4)
    laconic.run(
        scheme,
        model=nn.Linear(6, 3),
        clients=make_population([4] * 10),
        test=make_records(20),
        rounds=2,
        sampling_rate=0.5,
        delta=1e-5,
        out=out,
    )


def test_a_run_folder_is_for_its_owner_alone_with_all_that_is_made_above_it(tmp_path: Path) -> None:
    run(tmp_path / "runs" / "first")
    for folder in (tmp_path / "runs", tmp_path / "runs" / "first", tmp_path / "runs/first/checkpoint"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert open_to_others(tmp_path / "runs") == []


def test_in_a_folder_that_was_there_and_is_open_the_files_are_closed(tmp_path: Path) -> None:
    out = tmp_path / "open"
    out.mkdir(mode=0o755)
    run(out)
    assert open_to_others(out) == [str(out)]


GRID = """
seeds = 2
run.rounds = 2
scheme = {name = "fl-std-dp", clip_norm = 0.5, noise_multiplier = 1.0}
data.num_clients = 20
sampler.sampling_rate = 0.5
model.name = "logistic"
[privacy]
delta = 1e-4
"""


@pytest.mark.parametrize("command", ["run", "audit", "sweep"])
def test_every_command_that_keeps_something_keeps_it_private(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str
) -> None:
    out = tmp_path / "out"
    scheme = ["fl-std-dp", "--clip-norm=0.5", "--noise-multiplier=1", "--delta=1e-4", "--dataset=digits", "--rounds=2"]
    arguments = [command, *scheme, "--num-clients=20", "--sampling-rate=0.5", "--quiet", f"--out={out}"]
    if command == "sweep":
        (tmp_path / "grid.toml").write_text(GRID)
        arguments = [command, str(tmp_path / "grid.toml"), "--quiet", f"--out={out}"]
    assert call(capsys, *arguments).code == 0
    assert any(out.iterdir()) and open_to_others(out) == []


def test_a_folder_that_belongs_to_no_run_is_private_too(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "a" / "b")
    folder.make()
    folder.write("table.md", "text")
    assert open_to_others(tmp_path / "a") == []


def test_a_folder_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o750)
    private_folder(shared / "mine")
    private_folder(shared)
    assert stat.S_IMODE(shared.stat().st_mode) == 0o750
    assert stat.S_IMODE((shared / "mine").stat().st_mode) == 0o700
