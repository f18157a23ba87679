"""A data set from outside the package: registered, or named as package.module:function."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from e2e_tools import call
from own_datasets import OWNED

from laconic.data.sources import SOURCES, register
from laconic.errors import ConfigError, DataError
from laconic.options.sections import DataSection
from laconic.settings.data.datasets import load_federation
from laconic.streams import Streams

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("name", "error", "why"),
    [
        ("own_datasets:nothing", ConfigError, "unknown name in own_datasets 'nothing'"),
        ("no_such_module:x", ConfigError, "cannot import 'no_such_module'"),
        ("own_datasets:NUMBER", ConfigError, "is a int: it must be, or return, a SourceInfo or a Source"),
        ("own_datasets:EMPTY", ConfigError, "its SourceInfo has no load function"),
        ("own_datasets:needs_more", ConfigError, "must work without arguments, but needs folder"),
        ("own_datasets:breaks", ConfigError, "own_datasets:breaks cannot be loaded: no way"),
        ("own_datasets:too_few_owners", DataError, "owners of shape \\(3,\\) for 120 records"),
    ],
)
def test_what_cannot_work_is_one_line(name: str, error: type[Exception], why: str) -> None:
    with pytest.raises(error, match=why) as caught:
        load_federation(DataSection(dataset=name), holdout=0, streams=Streams(0))
    assert "\n" not in str(caught.value)


def test_a_file_with_a_column_gets_the_option_for_it(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,y\n1,0\n")
    with pytest.raises(ConfigError, match=r"t.csv is a file; name its column with --dataset \S+t.csv --target y"):
        load_federation(DataSection(dataset=f"{tmp_path / 't.csv'}:y"), holdout=0, streams=Streams(0))


@pytest.mark.parametrize("name", ["own_datasets:owned", "own_datasets:OWNED"])
def test_a_function_or_an_entry_is_run_by_its_name(capsys: Capture, tmp_path: Path, name: str) -> None:
    ended = call(capsys, "run", "fl-std", "--dataset", name, "--rounds", "2", "--out", tmp_path / "run", "--json")
    assert ended.code == 0, ended.err
    text = (tmp_path / "run" / "config.toml").read_text()
    assert f'dataset = "{name}"' in text and "num_clients" not in text  # there are as many as the data have


def test_a_registered_data_set_is_listed_shown_and_run(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(SOURCES, "owned", raising=False)
    monkeypatch.setitem(SOURCES, "owned", OWNED)  # so that it is gone after the test
    assert register(OWNED) is SOURCES["owned"]
    listed = call(capsys, "datasets", "--json").json["owned"]
    assert listed["classes"] == ["even", "odd"] and listed["client"] == "an owner" and listed["natural"]
    shown = call(capsys, "datasets", "owned", "--json").json
    assert shown["division"]["clients"] == 12 and shown["division"]["client"] == "an owner"
    ended = call(capsys, "run", "fl-std", "--dataset", "owned", "--rounds", "1", "--out", tmp_path / "run")
    assert ended.code == 0, ended.err


def test_tokens_reach_a_model_as_whole_numbers(capsys: Capture, tmp_path: Path) -> None:
    """With public records set aside for FL-TOP, too."""
    options = "--model own_datasets:embedded_words --ratio 0.2 --public-records 10 --num-clients 5 --rounds 2"
    dataset = ("--dataset", "own_datasets:tokens")
    ended = call(capsys, "run", "fl-top", *dataset, *options.split(), "--out", tmp_path / "run")
    assert ended.code == 0, ended.err
    rows = [json.loads(line) for line in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()]
    assert len(rows) == 2
