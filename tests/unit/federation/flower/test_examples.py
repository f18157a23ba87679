"""The example apps work as they are: their configuration, their two sides and their policy, over five nodes."""

from __future__ import annotations

import importlib.util
import json
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install '.[flower]'")

from flower_tools import FIRST_NODE, LocalGrid
from flwr.app import Context, Message, RecordDict

EXAMPLES = Path(__file__).parents[4] / "examples"


def loaded(path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module of an app, under the name that its configuration gives it."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, path.stem, module)
    spec.loader.exec_module(module)
    return module


def flat(table: dict[str, Any], before: str = "") -> dict[str, Any]:
    """Keys as Flower writes them: section.key."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        found |= flat(value, f"{before}{key}.") if isinstance(value, dict) else {before + key: value}
    return found


@pytest.mark.parametrize(
    ("name", "files", "own"),
    [
        ("hospitals", "hospital-{}.csv", {"app.test": "test.csv"}),
        ("images", "owner-{}.npz", {"app.test": "test.npz", "app.public": "public.npz"}),
    ],
)
def test_an_example_runs(
    name: str, files: str, own: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, data = EXAMPLES / name, tmp_path / "data"
    loaded(folder / "make_data.py", monkeypatch).main(data)
    project = tomllib.loads((folder / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    assert project["components"] == {"serverapp": "server_app:app", "clientapp": "client_app:app"}
    client = loaded(folder / "client_app.py", monkeypatch)
    settings = flat(project["config"]) | {key: str(data / file) for key, file in own.items()}
    settings |= {"out": str(tmp_path / "run"), "server-key": str(tmp_path / "server.key"), "run.rounds": 1}

    def node(number: int) -> Callable[[Message], Message]:
        here = {
            "data": str(data / files.format(number)),
            "folder": str(tmp_path / f"node-{number}"),
            "policy": str(folder / "policy.toml"),
        }
        return lambda message: client.app(message, Context(0, FIRST_NODE + number, here, RecordDict(), settings))

    grid = LocalGrid([node(number) for number in range(5)])
    server = loaded(folder / "server_app.py", monkeypatch)
    server.app(grid, Context(0, 0, {}, RecordDict(), settings))
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert summary["rounds"] == 1
    assert summary["statement"]["secure_aggregation"].startswith("masked: every node masked its integers")
    assert "accuracy" in summary["last"]
    assert not (tmp_path / "run/notices.jsonl").exists()
