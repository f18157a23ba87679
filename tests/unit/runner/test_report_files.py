"""What a run leaves for its report: figures of the last model, and ε at several δ."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import scheme_tools
from scheme_tools import scheme

import laconic


def run(path: Path, name: str, **options: Any) -> tuple[laconic.RunResult, dict[str, Any]]:
    result = scheme_tools.run(scheme(name, noise_multiplier=1.5), out=path, rounds=3, **options)
    found: dict[str, Any] = json.loads((path / "figures.json").read_text())
    return result, found


def test_the_figures_are_of_the_last_model(tmp_path: Path) -> None:
    result, found = run(tmp_path / "run", "fl-std")
    hits = sum(found["confusion"][place][place] for place in range(3))
    assert found["round"] == 3 and found["records"] == 200
    assert hits / 200 == pytest.approx(result.last["accuracy"])
    assert found["trade_off"] is None


@pytest.mark.parametrize("name", ["fl-std-dp", "fl-std-record-dp"])
def test_the_pair_of_the_statement_is_among_those_of_the_report(tmp_path: Path, name: str) -> None:
    result, found = run(tmp_path / "run", name)
    for part in ("released", "participant"):
        stated = result.statement[part]
        pairs = {delta: epsilon for epsilon, delta in found["trade_off"][part]}
        assert pairs[result.statement["delta"]] == pytest.approx(stated["epsilon"][stated["accountant"]], rel=1e-9)


def test_a_run_without_test_records_has_no_figures_by_class(tmp_path: Path) -> None:
    _, found = run(tmp_path / "run", "fl-std-dp", test=None)
    assert "confusion" not in found and found["trade_off"]["released"]
    assert "By class" not in (tmp_path / "run/report.html").read_text()


def test_a_run_in_memory_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scheme_tools.run(scheme("fl-std"), rounds=1)
    assert not list(tmp_path.iterdir())
