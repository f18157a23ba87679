"""`laconic reproduce` from end to end, in its quick version and cut down further, on the embedded digits."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from e2e_tools import Ended, call, files, rounds

from laconic.data import locate
from laconic.observers.progress import PlainProgress

SHORT = ("--quick", "--set", "rounds=3", "--threads", "1", "--device", "cpu")


@pytest.fixture(autouse=True)
def no_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """No data files anywhere, wherever the tests run."""
    if "realdata" in request.keywords:
        return
    monkeypatch.delenv("LACONIC_DATA", raising=False)
    monkeypatch.setenv("LACONIC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(locate, "SYSTEM_DATASETS", tmp_path / "none")


@pytest.fixture
def reproduce(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Any:
    def run(*arguments: str, out: str = "out") -> Ended:
        return call(capsys, "reproduce", *arguments, *SHORT, "--out", tmp_path / out)

    return run


def folder_of(tmp_path: Path, table: str, out: str = "out") -> Path:
    return tmp_path / out / f"{table}+quick+run.rounds=3"


def result(run: Path) -> dict[str, Any]:
    """The figures of a run, less what depends on the clock."""
    return {k: v for k, v in json.loads((run / "result.json").read_text()).items() if k != "seconds"}


def test_a_table_from_end_to_end(reproduce: Any, tmp_path: Path) -> None:
    ended = reproduce("thesis-section5.3.5", "--seeds", "2")
    assert ended.code == 0, ended.err
    assert "Quick version" in ended.out
    assert "fl-cs-dp 5 %" in ended.out and "0.93 / " in ended.out
    assert ended.err.count("seed ") == 4
    folder = folder_of(tmp_path, "thesis-section5.3.5")
    assert {path.name for path in folder.iterdir()} >= {"table.md", "table.csv"}
    with (folder / "table.csv").open(newline="") as stream:
        lines = list(csv.DictReader(stream))
    assert [(line["row"], line["seed"]) for line in lines] == [("1", "0"), ("1", "1"), ("2", "0"), ("2", "1")]
    for line in lines:
        assert line["trained_on"] == "digits"
        assert 0 < float(line["accuracy"]) <= 1
        assert float(line["epsilon_released"]) < float(line["epsilon_moments"]) < float(line["epsilon_participant"])
        # The header of a message is all that the formula does not know, and the formula counts whole chunks.
        assert float(line["bytes_up"]) == pytest.approx(float(line["formula_bytes_up"]), rel=0.02)
    text = (folder / "table.md").read_text()
    assert "**Quick version" in text and " ± " in text
    assert not list((tmp_path / "out/runs").rglob("*.safetensors")), "weights were not asked for"


def test_nothing_is_run_twice(reproduce: Any, tmp_path: Path) -> None:
    first = reproduce("thesis-table5.3", "--rows", "fl-std-dp,fl-rnd-dp", "--rows", "1")
    assert first.code == 0, first.err
    before = files(tmp_path / "out/runs")
    again = reproduce("thesis-table5.3", "eurosp-table3", "--rows", "fl-std-dp,fl-rnd-dp", "--json", "--quiet")
    assert (again.code, again.err) == (0, "")
    assert files(tmp_path / "out/runs") == before, "rows of the other table are the same runs"
    thesis, eurosp = again.json
    shared = {(r["scheme"], r["ratio"]): r for r in eurosp["rows"]}
    assert [r["row"] for r in thesis["rows"] if r["accuracy"]] == [1, 4, 7, 10]
    for row in thesis["rows"]:
        assert row["accuracy"] == shared[row["scheme"], row["ratio"]]["accuracy"]


@pytest.mark.parametrize("way", [KeyboardInterrupt, SystemExit], ids=["interrupted", "killed"])
def test_a_stopped_row_goes_on(
    way: type[BaseException], reproduce: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C saves the round before; a kill (here: an exit that saves nothing) goes back to the last checkpoint."""
    rows = ("eurosp-table3", "--rows", "19,20")
    assert reproduce(*rows, out="reference").code == 0
    seen = PlainProgress.row

    def stop(self: PlainProgress, row: dict[str, Any]) -> None:
        seen(self, row)
        if row["round"] == 2 and "epsilon" in row:
            raise way(9)

    with monkeypatch.context() as patch:
        patch.setattr(PlainProgress, "row", stop)
        ended = reproduce(*rows)
    runs = tmp_path / "out/runs"
    assert len(list(runs.glob("*/*/result.json"))) == 1, "the first row was finished"
    assert "| 19 | fl-std | " in (folder_of(tmp_path, "eurosp-table3") / "table.md").read_text()
    if way is KeyboardInterrupt:
        assert ended.code == 130
        assert "go on with: laconic reproduce eurosp-table3 --rows 19,20 --quick" in ended.err
    again = reproduce(*rows)
    assert again.code == 0, again.err
    assert "[1/1]" in again.err, "only the stopped row was left"
    reference = sorted((tmp_path / "reference/runs").glob("*/*"))
    assert [path.relative_to(tmp_path / "reference") for path in reference] == [
        path.relative_to(tmp_path / "out") for path in sorted(runs.glob("*/*"))
    ]
    for expected, found in zip(reference, sorted(runs.glob("*/*")), strict=True):
        assert result(found) == result(expected)
        assert rounds(found) == rounds(expected)


def test_a_row_is_what_laconic_run_runs(reproduce: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert reproduce("uai-table1", "--rows", "6").code == 0
    (row,) = (tmp_path / "out/runs").glob("fl-top-dp*/seed-0")
    again = call(capsys, "run", row / "config.toml", "--out", tmp_path / "run", "--quiet", "--json")
    assert again.code == 0, again.err
    assert rounds(tmp_path / "run") == rounds(row)
    assert (tmp_path / "run/config.toml").read_text() == (row / "config.toml").read_text()


CLINICAL = ("--quick", "--threads", "1", "--device", "cpu", "--json", "--quiet")


def test_tables_of_private_data_run_on_made_admissions(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Also where an open data set is asked for whose files are not at hand, as this is the quick version."""
    arguments = ("chil-table6", "--rows", "1,8", "--seeds", "2", "--set", "rounds=2")
    ended = call(capsys, "reproduce", *arguments, *CLINICAL, "--out", tmp_path)
    assert ended.code == 0, ended.err
    (table,) = ended.json
    assert "Another data set" in table["notes"][0]
    private, plain = table["rows"][0], table["rows"][7]
    assert private["trained_on"] == ["ehr-synthetic"] and private["dataset"] == "premier"
    assert private["difference"] is None and private["another_data_set"]
    for row in (private, plain):
        assert row["accuracy_worst"] < row["accuracy_best"] and 0 < row["auroc"] < 1
    assert private["epsilon"] < private["epsilon_released"] < private["epsilon_participant"]
    text = (tmp_path / "chil-table6+ehr-synthetic+quick+run.rounds=2" / "table.md").read_text()
    assert "0.63 to 0.64" in text and "premier (here: ehr-synthetic)" in text and "Another data set" in text
    assert "published accuracy, or better" not in text


def test_costs_of_all_rounds(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    ended = call(capsys, "reproduce", "chil-table7", "--rows", "2,4", *CLINICAL, "--out", tmp_path)
    assert ended.code == 0, ended.err
    signs, floats = (row for row in ended.json[0]["rows"] if row["accuracy"] is not None)
    assert signs["round"] == 4
    for row in (signs, floats):
        assert row["up"] == pytest.approx(row["formula_up"], rel=0.01)
    assert floats["up"] / signs["up"] == pytest.approx(32, rel=0.01)


@pytest.mark.parametrize(("table", "rows"), [("uai-table2", "6"), ("thesis-table4.3", "11")])
def test_rows_of_private_data(table: str, rows: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = ("reproduce", table, "--rows", rows, "--on", "eicu-demo", "--set", "rounds=1")
    ended = call(capsys, *arguments, *CLINICAL, "--out", tmp_path)
    assert ended.code == 0, ended.err
    (done,) = (row for row in ended.json[0]["rows"] if row["accuracy"] is not None)
    assert done["trained_on"] == ["ehr-synthetic"]


def test_the_figure_of_kept_weights(reproduce: Any, tmp_path: Path) -> None:
    ended = reproduce("uai-figure1")
    assert ended.code == 0, ended.err
    text = (folder_of(tmp_path, "thesis-figure5.1") / "table.md").read_text()
    assert "## The kept weights, seed 0" in text
    assert "| all |  | 188,810 | 945 |" in text  # ⌈0.005·n⌉ of the CNN for 8x8 pictures
    assert len(list((tmp_path / "out/runs").glob("*-weights-*/seed-0/best.safetensors"))) == 2


def test_without_matplotlib_there_are_tables_but_no_pictures(
    reproduce: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("laconic_studies.reproduce.table_files.plots_available", lambda: False)
    ended = reproduce("eurosp-table3", "--rows", "19")
    assert ended.code == 0
    assert "no pictures: matplotlib is not installed" in ended.err
    assert sorted(p.name for p in folder_of(tmp_path, "eurosp-table3").iterdir()) == ["table.csv", "table.md"]


def test_a_row_that_diverges_does_not_stop_the_others(reproduce: Any, tmp_path: Path) -> None:
    ended = reproduce("eurosp-table3", "--rows", "1,19", "--set", "local_lr=1e30")
    assert ended.code == 6
    assert "2 runs failed: eurosp-table3, row 1: fl-rnd 5 %, seed 0" in ended.err
    assert "row 19: fl-std" in ended.err
    (folder,) = (tmp_path / "out").glob("eurosp-table3*")
    assert folder.name == "eurosp-table3+quick+run.rounds=3+scheme.local_lr=1e+30"
    assert "Not the paper's settings" in (folder / "table.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["uai-tabel8"], "unknown table 'uai-tabel8': did you mean 'uai-table8'?"),
        (["uai-table8", "--rows", "73"], "--rows 73: uai-table8 has rows 1 to 72"),
        (["uai-table8", "--rows", "fl-tpo-dp"], "did you mean 'fl-top-dp'?"),
        (["uai-table8", "--seeds", "0"], "--seeds"),
        (["uai-table8", "--set", "nonsense=1"], "unknown key 'nonsense'"),
        (["uai-table8", "--set", "rounds"], "write it as key=value"),
        (["uai-table8", "--rows", "1", "--set", "num_chunks=3"], "unknown option of fl-basic 'num_chunks'"),
        (["uai-table2", "--on", "diabetes"], "unknown data set for --on 'diabetes': did you mean 'diabetes130'?"),
        (["uai-table8", "--on", "diabetes130"], "uai-table8 can be run on the paper's own data: leave out --on"),
        (["eurosp-table3", "uai-table8", "--rows", "fl-freq"], "unknown scheme in uai-table8 'fl-freq'"),
    ],
)
def test_bad_input_starts_nothing(arguments: list[str], message: str, reproduce: Any, tmp_path: Path) -> None:
    ended = reproduce(*arguments)
    assert ended.code == 2
    assert message in ended.err
    assert ended.err.count("laconic: error:") == 1
    assert not list((tmp_path / "out").rglob("rounds.jsonl"))


def test_missing_data_is_an_error_unless_it_is_the_quick_version(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, reproduce: Any
) -> None:
    arguments = ("reproduce", "eurosp-table3", "--rows", "19", "--out", tmp_path / "out")
    ended = call(capsys, *arguments, "--data-dir", tmp_path / "nowhere")
    assert (ended.code, "is not a folder; name the one that has" in ended.err) == (4, True)
    ended = reproduce("eurosp-table3", "--rows", "19", "--data-dir", str(tmp_path / "nowhere"))
    assert ended.code == 4, "a folder that the user names is a promise"


def test_lists(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["reproduce"], ["reproduce", "--list"]):
        text = call(capsys, *arguments).out
        assert "uai-table8, thesis-table8.11  72 rows" in text
        assert "uai-table2  20 rows; needs the Premier Healthcare Database" in text
    tables = call(capsys, "reproduce", "--json").json
    assert {"eurosp-table3", "thesis-table5.1"} <= {table["table"] for table in tables}
    rows = call(capsys, "reproduce", "thesis-table5.5", "--list").out
    assert "clip_norm=0.61 noise_multiplier=1.54" in rows
    (table,) = call(capsys, "reproduce", "chil-table6", "--list", "--json").json
    assert table["rows"][0]["published"]["auroc_worst"] == 0.67


@pytest.mark.realdata
def test_quick_version_takes_the_papers_data_if_it_is_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = ("reproduce", "uai-table1", "--rows", "3", "--quick", "--set", "rounds=1")
    ended = call(capsys, *arguments, "--out", tmp_path, "--json", "--quiet")
    assert ended.code == 0, ended.err
    assert [row["trained_on"] for row in ended.json[0]["rows"] if row["accuracy"]] == [["fashion-mnist"]]
