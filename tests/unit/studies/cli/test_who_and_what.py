"""`laconic infer membership` and `reconstruction`: whole attacks on the digits, and what is refused."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from laconic.errors import LaconicError
from laconic_studies.cli.infer import infer

WHO = ["membership", "--targets", "2", "--shadows", "4", "--trials", "4", "--draws", "1", "--views", "others,loss"]
WHAT = ["reconstruction", "--victims", "2", "--batches", "1,2", "--iterations", "3", "--restarts", "1"]


def run(*arguments: str) -> str:
    found = CliRunner().invoke(infer, arguments, catch_exceptions=False)
    assert ": training" in found.stderr or "batches of 1" in found.stderr
    return found.stdout  # progress is not in it


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_membership_leaves_a_table_with_what_is_allowed(tmp_path: Path) -> None:
    shown = run(*WHO, "fl-top", "fl-top-dp", "--level", "client,record", "--out", str(tmp_path)).splitlines()
    assert shown[0].split()[:4] == ["scheme", "level", "view", "AUC"] and len(shown) >= 10
    rows = rows_of(tmp_path / "membership.csv")
    assert [(row["scheme"], row["level"]) for row in rows[::2]] == [
        (scheme, level) for scheme in ("fl-top", "fl-top-dp") for level in ("client", "record")
    ]
    assert rows[0]["gaussian_bound_at_1%"] == "" and float(rows[4]["gaussian_bound_at_1%"]) == pytest.approx(
        0.093, 0.01
    )
    assert json.loads((tmp_path / "membership.json").read_text())["settings"]["targets"] == 2


def test_reconstruction_leaves_a_table_and_pictures_of_what_may_be_shown(tmp_path: Path) -> None:
    found: dict[str, Any] = json.loads(run(*WHAT, "fl-std", "fl-sign", "--out", str(tmp_path), "--json"))
    assert [(row["scheme"], row["batch"]) for row in found["rows"]] == [
        (scheme, batch) for scheme in ("fl-std", "fl-sign") for batch in (1, 2)
    ]
    rows = rows_of(tmp_path / "reconstruction.csv")
    assert float(rows[0]["psnr_mean"]) == found["rows"][0]["psnr_mean"] == found["rows"][2]["psnr_mean"]
    pytest.importorskip("matplotlib")
    assert (tmp_path / "pictures.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("membership fl-sdt", "unknown scheme 'fl-sdt'"),
        ("membership --level clients", "unknown level 'clients'"),
        ("membership --views code", "unknown view 'code'"),
        ("membership --views ,", "--views names nothing"),
        ("membership --trials 0", "trials"),
        ("membership fl-std --clip-norm 1", "--clip-norm means nothing to fl-std"),
        ("membership fl-std --sampling-rate 1", "leave none"),
        ("membership fl-std --groups 2", "groups"),
        ("membership fl-std --attack random-update", "--attack"),
        ("membership fl-std --dataset nowhere", "nowhere"),
        ("membership --pool none", "none"),
        ("reconstruction --batches one", "--batches one"),
        ("reconstruction --batches -1", "batches"),
        ("reconstruction fl-std --labels inferred", "--batches 1"),
        ("reconstruction fl-std --views sum", "unknown view 'sum'"),
        ("reconstruction fl-std --iterations 0", "iterations"),
        ("reconstruction fl-std --batch-size 2 --batches 4", "--batch-size all"),
        ("reconstruction fl-std --total-variation -1", "total_variation"),
        ("reconstructions", "unknown kind of inference 'reconstructions'"),
    ],
)
def test_bad_input_is_one_line_that_names_the_culprit(
    arguments: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((LaconicError, click.UsageError)) as refused:
        CliRunner().invoke(infer, arguments.split(), catch_exceptions=False, standalone_mode=False)
    text = refused.value.format_message() if isinstance(refused.value, click.UsageError) else str(refused.value)
    assert problem in text and "\n" not in text
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("place", ["file", "file/below"])
@pytest.mark.parametrize("attack", ["membership", "reconstruction", "property"])
def test_a_folder_that_cannot_be_made_is_refused_before_the_work(attack: str, place: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = CliRunner().invoke(infer, [attack, "--out", str(tmp_path / place)])
    assert isinstance(found.exception, LaconicError) and "is a file, and a folder is needed" in str(found.exception)
    assert found.stderr == "", "no line of progress"


@pytest.mark.parametrize("attack", [WHO, WHAT])
def test_votes_are_refused_with_a_reason(attack: list[str]) -> None:
    with pytest.raises(LaconicError, match="the first rounds are votes"):
        CliRunner().invoke(infer, [*attack, "fl-top-dp", "--top-selection", "votes"], catch_exceptions=False)
