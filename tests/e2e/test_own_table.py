"""From a table with text, gaps and no client column to a private model, by the commands that the messages name."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from e2e_tools import call, process
from messy_table import COLUMNS, write_messy_table


def test_a_messy_table_becomes_a_private_model_that_learns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_messy_table(tmp_path / "stays.csv", rows=1500)
    ended = call(capsys, "run", "fl-std-dp", "--dataset", "stays.csv", "--epsilon", "4", "--out", "run")
    assert ended.code == 2 and "--target" in ended.err and "--clip-norm: a number" in ended.err  # both at once
    private = ["--epsilon", "4", "--clip-norm", "0.5", "--rounds", "30", "--sampling-rate", "0.2", "--quiet"]
    private += ["--accountant", "rdp", "--eval-every", "10"]
    ended = call(capsys, "run", "fl-std-dp", "--dataset", "stays.csv", "--target", "died", *private, "--out", "run")
    assert ended.code == 4 and "laconic schema init stays.csv --target died" in ended.err  # the way out is a command
    assert call(capsys, "schema", "init", "stays.csv", "--target", "died").code == 0
    data = ["--dataset", "stays.csv", "--schema", "stays.schema.toml", "--num-clients", "300", "--model", "logistic"]
    ended = call(capsys, "run", "fl-std-dp", *data, *private, "--local-lr", "0.5", "--out", "run")
    assert ended.code == 0, ended.err
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert summary["last"]["auroc"] > 0.8 and summary["last"]["epsilon"] <= 4
    assert any("preprocessing was fitted" in text for text in summary["statement"]["not_covered"])
    write_messy_table(tmp_path / "new.csv", rows=400, seed=9, columns=COLUMNS[:-2])
    write_messy_table(tmp_path / "truth.csv", rows=400, seed=9)
    assert call(capsys, "predict", "run", "new.csv", "--out", "p.csv").code == 0
    died = [row["died"] == "yes" for row in csv.DictReader((tmp_path / "truth.csv").read_text().splitlines())]
    said = [float(row["probability"]) for row in csv.DictReader((tmp_path / "p.csv").read_text().splitlines())]
    pairs = [(a, b) for a, ill in zip(said, died, strict=True) if ill for b, w in zip(said, died, strict=True) if not w]
    assert sum(a > b for a, b in pairs) / len(pairs) > 0.8


@pytest.mark.slow
def test_a_misspelt_column_ends_with_its_message_in_fifty_processes(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("age,died\n" + "50,1\n20,0\n" * 100)
    (tmp_path / "s.toml").write_text('label = "died"\npositive = 1\n[[numeric]]\ncolumn = "agee"\n')
    for _ in range(50):
        ended = process("run", "fl-std", "--dataset", "t.csv", "--schema", "s.toml", "--out", "run", cwd=tmp_path)
        assert ended.code == 4 and ended.err.count("\n") == 1 and "did you mean 'age'" in ended.err, ended
