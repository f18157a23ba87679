"""The second edition of the frontier: settings within the bytes, features as the product makes them, the page."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from benchmarks.server_frontier import runs
from benchmarks.server_frontier.choose import most_features
from benchmarks.server_frontier.features import _Parts
from benchmarks.server_frontier.page import cells, write_page
from benchmarks.server_frontier.worlds import LIMITS, WORLDS, Setting, World
from laconic.cli.main import cli
from laconic.data.synthetic import dead_leaves
from laconic.features.kinds import Wanted

SETTING = Setting(rounds=10, features=40, step=8.0, precondition=0.15)
DIGITS = World(dataset="digits", clients=100, front_end="scattering+patches", patterns=8, mirror=False, images=150)


def test_features_of_the_benchmark_are_those_of_the_product(tmp_path: Path) -> None:
    leaves = dead_leaves(150, (1, 8, 8), np.random.default_rng(3))
    parts = _Parts(DIGITS, (1, 8, 8), leaves, tmp_path, None)
    wanted = Wanted(name=DIGITS.front_end, features=20, projection="public", patterns=8)
    product = wanted.made((1, 8, 8), public=leaves, source="")
    torch.testing.assert_close(parts.raw(leaves[:9]), product.raw(leaves[:9]), atol=1e-5, rtol=1e-4)


def test_as_many_features_as_the_messages_have_room_for() -> None:
    world = WORLDS["fashion-mnist"]
    assert most_features(world, 1.0, 16, LIMITS[0]) == 304, "as the runs have it"
    assert most_features(world, 1.0, 10, LIMITS[0]) > most_features(world, 1.0, 13, LIMITS[0])


def test_the_command_is_one_that_the_command_line_takes() -> None:
    words = shlex.split(SETTING.command(DIGITS, 1.0, 1))[2:]
    ended = CliRunner().invoke(cli, ["plan", *words], catch_exceptions=False)
    assert ended.exit_code == 0, ended.output
    assert "40 of" in ended.output and "scattering+patches features" in ended.output


def row(seed: int, **changes: Any) -> dict[str, Any]:
    found = {"dataset": "mnist", "limit": LIMITS[0], "asked": 1.0, "seed": seed} | SETTING.row()
    found |= {"held_out": "0.9", "accuracy": 0.9 + seed / 1000, "server_epsilon": 1.0, "outsider_epsilon": 1.0}
    found |= {"sigma": 3.5, "bytes_up": 1000, "bytes_down": 900, "seconds": 1.0}
    return found | changes


def test_the_page_has_the_mean_of_the_seeds_and_every_setting(tmp_path: Path) -> None:
    folder = tmp_path / "frontier-server"
    folder.mkdir()
    for seed in (1, 2, 3):
        runs.keep(folder / "mnist-runs.csv", row(seed))
    (cell,) = cells(folder)
    assert cell.mean == pytest.approx(0.902) and cell.setting == SETTING
    write_page(folder)
    page = (tmp_path / "frontier-server.md").read_text(encoding="utf-8")
    assert "**0.9020 ± 0.0010**" in page and "0.9010, 0.9020, 0.9030" in page and "laconic run fl-std-dp" in page
    assert {path.name for path in folder.glob("*.png")} == {"epsilon.png", "datasets.png", "bytes.png"}


def test_no_page_is_written_of_runs_whose_adversaries_differ(tmp_path: Path) -> None:
    folder = tmp_path / "frontier-server"
    folder.mkdir()
    runs.keep(folder / "mnist-runs.csv", row(1, server_epsilon=15.0))
    with pytest.raises(AssertionError):
        write_page(folder)
