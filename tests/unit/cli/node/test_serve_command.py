"""`laconic node serve`: what a tired owner gets wrong before it starts, and while it runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from e2e_tools import call

from laconic.cli.node.serve import _records
from laconic.errors import DataError
from laconic.federation.populations import Held

SCHEMA = """\
label = "outcome"
positive = "died"

[[numeric]]
column = "age"
min = 30
max = 90
"""


def test_a_column_or_a_function_says_whose_each_record_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "a.csv"
    data.write_text("who,x,target\nb,1,0\na,2,1\nb,3,1\n")
    named = _records(None, {"data": str(data), "patient-column": "who"})
    assert named.of_patients is True and Held.of(named.read()).patients.tolist() == [1, 0, 1]  # type: ignore[union-attr]
    assert _records(None, {"data": str(data), "target": "target"}).of_patients is False
    (tmp_path / "whose.py").write_text("def load():\n    return [[1.0], [2.0]], [0, 1], ['x', 'x']\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    own = _records("whose:load", {})
    assert own.of_patients is None and Held.of(own.read()).patients.tolist() == ["x", "x"]  # type: ignore[union-attr]


def test_a_folder_that_is_not_there_is_no_new_node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its disk may not be mounted; a new node would not know what its records have spent."""
    (tmp_path / "policy.toml").write_text("max_nodes = 10\n")
    (tmp_path / "mount").mkdir()
    for name in ("mount", "laconik"):
        ended = call(capsys, "node", "serve", tmp_path / name, "--policy", tmp_path / "policy.toml", "--data", "a.csv")
        assert ended.code == 5
        assert "whether its disk is mounted" in ended.err
    assert not (tmp_path / "laconik").exists()
    assert not list((tmp_path / "mount").iterdir())


def test_a_schema_that_changes_while_the_node_runs_is_not_used_unseen(tmp_path: Path) -> None:
    """What records mean was told when the process started, and is compared with every offer."""
    data, schema = tmp_path / "a.csv", tmp_path / "schema.toml"
    data.write_text("age,outcome\n40,died\n50,lived\n")
    schema.write_text(SCHEMA)
    records = _records(None, {"data": str(data), "schema": str(schema)})
    first = records.read()
    schema.write_text(SCHEMA.replace("90", "900"))
    assert records.read() is first
    data.write_text("age,outcome\n41,died\n50,lived\n60,lived\n")
    with pytest.raises(DataError, match="changed since this process has started"):
        records.read()
    schema.write_text(SCHEMA)
    assert len(Held.of(records.read()).records.targets) == 3
