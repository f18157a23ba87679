"""The grid of a sweep: which runs it means, how they are called, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from laconic.errors import ConfigError
from laconic.sweeps.grid import Grid

BASE: dict[str, Any] = {"scheme": {"name": "fl-std"}, "run": {"rounds": 2, "device": "cpu"}}


def grid(**more: Any) -> Grid:
    return Grid.from_dict(BASE | more)


def test_every_combination_is_a_run_with_every_seed() -> None:
    found = grid(grid={"local_lr": [0.1, 0.5], "scheme.local_steps": [1, 2]}, seeds=2).points()
    assert [point.name for point in found][:3] == [
        "local_lr=0.1+local_steps=1+seed=0",
        "local_lr=0.1+local_steps=1+seed=1",
        "local_lr=0.1+local_steps=2+seed=0",
    ]
    assert len({point.name for point in found}) == len(found) == 8
    last = found[-1].config
    assert (last.scheme.options["local_lr"], last.scheme.options["local_steps"], last.run.seed) == (0.5, 2, 1)


def test_zipped_lists_go_together_and_a_nested_table_is_a_dotted_name() -> None:
    found = grid(zip={"local_lr": [0.1, 0.2], "batch_size": [5, 10]}, grid={"run": {"rounds": [1, 3]}}).points()
    values = [tuple(point.values.values()) for point in found]
    assert values == [(0.1, 5, 1), (0.1, 5, 3), (0.2, 10, 1), (0.2, 10, 3)]


def test_a_base_file_is_found_beside_the_grid_and_the_grid_wins(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('[scheme]\nname = "fl-std"\nlocal_lr = 0.3\n[run]\nrounds = 9\n')
    (tmp_path / "grid.toml").write_text('base = "run.toml"\nseeds = [4]\n[run]\nrounds = 2\n')
    (point,) = Grid.from_file(tmp_path / "grid.toml", {"run.eval_every": 2}).points()
    run, options = point.config.run, point.config.scheme.options
    assert (run.rounds, run.seed, run.eval_every, options["local_lr"], point.name) == (2, 4, 2, 0.3, "seed=4")


def test_a_grid_written_down_is_the_same_grid(tmp_path: Path) -> None:
    first = grid(
        zip=[{"local_lr": [0.1, 0.2], "batch_size": [5, 10]}],
        grid={"model.name": ["logistic", "cnn"], "scheme.local_steps": [1, 2]},
        seeds=[3, 5],
    )
    (tmp_path / "again.toml").write_text(first.to_toml())
    again = Grid.from_file(tmp_path / "again.toml")
    assert again == first and [p.name for p in again.points()] == [p.name for p in first.points()]


def test_names_that_no_folder_can_have_are_made_fit_and_stay_different() -> None:
    found = grid(grid={"data.dataset": ["digits", "a/b c", "a-b-c"]})
    names = {found.name(values, 0) for values in found.combinations()}
    assert len(names) == 3 and not any("/" in name or " " in name for name in names)


def test_what_is_wrong_with_any_combination_is_said_at_once() -> None:
    with pytest.raises(ConfigError) as error:
        grid(grid={"local_lr": [0.1, -1.0], "run.rounds": [2, 0]}, seeds=3).points()
    text = str(error.value)
    assert "local_lr" in text and "rounds" in text
    assert text.count("\n") == 2, "each problem once, whatever the number of runs that have it"
    assert "with local_lr = -1, rounds = 2" in text


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"grid": {"local_rl": [0.1]}}, "did you mean 'local_lr'"),
        ({"grid": {"local_lr": 0.1}}, "must be a list of values"),
        ({"grid": {"local_lr": []}}, "must be a list of values"),
        ({"grid": {"local_lr": [0.1, 0.1]}}, "one value twice"),
        ({"grid": {"seed": [0, 1]}}, "give seeds = [0, 1, 2]"),
        ({"grid": {"nothing.here": [0, 1]}}, "unknown section 'nothing'"),
        ({"grid": [1]}, "must be a table of lists"),
        ({"zip": {"local_lr": [0.1], "batch_size": [1, 2]}}, "scheme.batch_size has 2"),
        ({"zip": {"local_lr": [0.1, 0.1]}}, "are there twice"),
        ({"zip": {"local_lr": [0.1]}, "grid": {"scheme.local_lr": [0.2]}}, "an axis twice"),
        ({"seeds": 0}, "seeds must be how many"),
        ({"seeds": [1, 1]}, "twice"),
        ({"seeds": "all"}, "seeds must be how many"),
        ({"rounds": 3}, "unknown key 'rounds'"),
        ({"base": 3}, "base must be the name"),
        ({"base": "not-there.toml"}, "cannot read"),
        ({"runs": {"rounds": 3}}, "unknown section 'runs'"),
    ],
)
def test_a_grid_that_cannot_work_is_refused_with_the_way_out(data: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=None) as error:
        Grid.from_dict(BASE | data)
    assert said in str(error.value)
