"""`laconic compare`, `laconic report` and `laconic watch` as commands."""

from __future__ import annotations

import json
import signal
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from e2e_tools import COMMAND, call
from page_tools import write_rows

Capture = pytest.CaptureFixture[str]


def made(path: Path, rounds: int = 3, **metrics: float) -> Path:
    path.mkdir(parents=True)
    rows: list[dict[str, Any]] = [
        {"round": i, "bytes_up": 1000 * i, "bytes_down": 10, **{key: value * i for key, value in metrics.items()}}
        for i in range(1, rounds + 1)
    ]
    write_rows(path, rows)
    return path


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    both = {"accuracy": 0.1, "loss": 0.2}
    return [made(tmp_path / "clinic", auroc=0.2, **both), made(tmp_path / "digits", **both)]


def test_all_rows_have_one_metric_that_is_named(capsys: Capture, runs: list[Path]) -> None:
    ended = call(capsys, "compare", *runs)
    assert ended.out.splitlines()[0].split()[:2] == ["accuracy", "accuracy"]
    found = call(capsys, "compare", *runs, "--json").json
    assert {row["metric"] for row in found.values()} == {"accuracy"}
    assert [row["last"] for row in found.values()] == [pytest.approx(0.3)] * 2


def test_auroc_is_taken_where_all_runs_have_it(capsys: Capture, runs: list[Path]) -> None:
    assert call(capsys, "compare", runs[0], "--json").json[str(runs[0])]["metric"] == "auroc"


def test_a_named_metric_leaves_a_dash_where_a_run_has_none(capsys: Capture, runs: list[Path]) -> None:
    found = call(capsys, "compare", *runs, "--metric", "AUROC", "--json").json
    assert [row["last"] for row in found.values()] == [pytest.approx(0.6), None]
    assert "–" in call(capsys, "compare", *runs, "--metric", "auroc").out


def test_a_run_on_a_stand_in_is_called_one(capsys: Capture, runs: list[Path]) -> None:
    assert "stand-in" not in call(capsys, "compare", *runs).out
    (runs[0] / "config.toml").write_text('[data]\ndataset = "faces"\n')
    assert call(capsys, "compare", *runs).out.count("clinic: faces is a stand-in for lfw") == 1


def test_the_best_loss_is_the_smallest_one(capsys: Capture, runs: list[Path]) -> None:
    row = call(capsys, "compare", runs[1], "--metric", "loss", "--json").json[str(runs[1])]
    assert (row["best_round"], row["best"]) == (1, pytest.approx(0.2))


@pytest.mark.parametrize(
    ("metric", "said"),
    [("aurco", "did you mean 'auroc'?"), ("balanced-accuracy", "none of these runs has it"), ("", "unknown metric")],
)
def test_a_metric_that_nobody_has_is_refused(capsys: Capture, runs: list[Path], metric: str, said: str) -> None:
    ended = call(capsys, "compare", *runs, "--metric", metric)
    assert ended.code == 2 and said in ended.err and ended.err.count("\n") == 1


def test_names_are_whole_at_80_columns(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: list[Path]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    long = made(tmp_path / "a-folder-with-a-rather-long-name-for-seed-1/fl-std-dp-digits", accuracy=0.1)
    table, note, _ = call(capsys, "compare", *runs, long).out.partition("Larger is better")
    assert "a-folder-with-a-rather-long-name-for-seed-1/fl-std-dp-digits" in table and note
    assert max(map(len, table.splitlines())) <= 80
    short = call(capsys, "compare", *runs).out
    assert [line.split()[0] for line in short.splitlines()[2:4]] == ["clinic", "digits"]


def test_the_page_has_the_curves_of_all_runs(capsys: Capture, runs: list[Path], tmp_path: Path) -> None:
    ended = call(capsys, "compare", *runs, "--html", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert ended.code == 0 and page.count('data-name="clinic"') == 2  # over rounds and bytes: there is no ε
    refused = call(capsys, "compare", *runs, "--html", tmp_path / "nowhere/page.html")
    assert refused.code == 2 and "--html" in refused.err


def test_runs_that_were_not_evaluated_say_so(capsys: Capture, tmp_path: Path) -> None:
    assert "No run was evaluated" in call(capsys, "compare", made(tmp_path / "run")).out


def test_a_report_is_made_again_from_the_folder(capsys: Capture, runs: list[Path], tmp_path: Path) -> None:
    ended = call(capsys, "report", runs[0])
    assert ended.out.strip() == str(runs[0] / "report.html")
    assert "AUROC over bytes" in (runs[0] / "report.html").read_text()
    assert call(capsys, "report", runs[0], "--out", tmp_path / "x.html", "--json").json == {
        "report": str(tmp_path / "x.html")
    }


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["report", "nowhere"], 5, "nowhere is not a run folder"),
        (["report", "{run}", "--out", "{run}/no/x.html"], 2, "--out"),
        (["watch"], 2, "Missing argument"),
        (["watch", "{run}/rounds.jsonl"], 5, "is a file, not a run folder"),
        (["watch", "{run}", "--port", "99999"], 2, "--port"),
        (["watch", "{run}", "--port", "x"], 2, "--port"),
        (["watch", "{run}", "--metric", "acuracy"], 2, "did you mean 'accuracy'?"),
    ],
)
def test_bad_input_is_one_line(capsys: Capture, runs: list[Path], words: list[str], code: int, said: str) -> None:
    ended = call(capsys, *(word.format(run=runs[0]) for word in words))
    assert ended.code == code and said in ended.err and ended.err.count("\n") == 1


def test_a_run_that_is_named_twice_is_one_run(capsys: Capture, runs: list[Path]) -> None:
    again = runs[0].parent / "digits" / ".." / "clinic"
    found = call(capsys, "compare", runs[0], again, runs[1], "--json").json
    assert list(found) == [str(runs[0]), str(runs[1])]


@pytest.mark.parametrize("name", ["rounds.jsonl", "privacy.json", "notes.txt"])
def test_a_page_never_replaces_another_file(capsys: Capture, runs: list[Path], name: str) -> None:
    """`--out` and `--html` may name a file of the run by mistake."""
    (runs[0] / "privacy.json").write_text("{}")
    (runs[0] / "notes.txt").write_text("mine")
    before = (runs[0] / name).read_text()
    for words in (["report", runs[0], "--out"], ["compare", *runs, "--html"]):
        ended = call(capsys, *words, runs[0] / name)
        assert ended.code == 2 and "is not a page" in ended.err and ended.err.count("\n") == 1
    assert (runs[0] / name).read_text() == before


def test_a_page_replaces_a_page_and_an_empty_file(capsys: Capture, runs: list[Path], tmp_path: Path) -> None:
    (tmp_path / "empty.html").touch()
    for path in (tmp_path / "empty.html", tmp_path / "empty.html", tmp_path / "new.html"):
        assert call(capsys, "report", runs[0], "--out", path).code == 0
        assert call(capsys, "compare", *runs, "--html", path).code == 0


@pytest.mark.parametrize("content", [b"\xff\xfe\n", b"[1]\n", b"5\n", b"[" * 99999 + b"\n", b'{"round": 1\n{}\n'])
def test_a_damaged_run_cannot_be_compared_and_the_line_is_named(
    capsys: Capture, runs: list[Path], content: bytes
) -> None:
    (runs[0] / "rounds.jsonl").write_bytes(content)
    ended = call(capsys, "compare", *runs)
    assert ended.code == 5 and "line 1: damaged" in ended.err and ended.err.count("\n") == 1


def test_a_row_that_is_being_written_is_left_out(capsys: Capture, runs: list[Path]) -> None:
    with open(runs[0] / "rounds.jsonl", "a") as stream:
        stream.write('{"round": 4, "accu')
    assert call(capsys, "compare", *runs, "--json").json[str(runs[0])]["rounds"] == 3


def test_rows_without_figures_can_be_drawn(capsys: Capture, runs: list[Path], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    write_rows(runs[0], [{"round": 1, "accuracy": None, "bytes_up": None}, {"round": 2, "accuracy": 0.5}])
    ended = call(capsys, "compare", *runs, "--plot", tmp_path / "curves.png")
    assert ended.code == 0 and (tmp_path / "curves.png").stat().st_size > 0


@pytest.mark.e2e
def test_watch_prints_its_address_serves_and_ends_with_ctrl_c(runs: list[Path], tmp_path: Path) -> None:
    command = [*COMMAND, "watch", *map(str, runs), str(tmp_path / "later"), "--json"]
    watching = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell starts its background jobs with SIGINT ignored, and so would the tests' children be.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,
    )
    assert watching.stdout is not None and watching.stderr is not None
    try:
        said = json.loads(watching.stdout.readline())
        assert said["not_there_yet"] == [str(tmp_path / "later")]
        with urllib.request.urlopen(said["address"], timeout=10) as answer:
            assert "3 runs side by side" in answer.read().decode()
        watching.send_signal(signal.SIGINT)
        assert watching.wait(10) == 0
        assert watching.stderr.read() == "laconic: watch has ended; no run was touched\n"
    finally:
        watching.kill()
        watching.wait()
        watching.stdout.close()
        watching.stderr.close()
