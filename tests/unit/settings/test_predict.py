"""`laconic predict` takes every run that has a configuration: its new records are read as its own were."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from e2e_tools import call
from PIL import Image
from sklearn.metrics import roc_auc_score

from laconic.data.ehr.schema import Schema
from laconic.own_code import needed
from laconic.settings.data.record_kind import RecordKind
from laconic.settings.predict import predict

QUICK = ["--rounds", "2", "--sampling-rate", "0.9", "--threads", "1", "--quiet", "--seed", "3"]
MODEL = """
from torch import nn
def small(input_shape, num_classes, width=3):
    return nn.Sequential(nn.Linear(input_shape[0], width), nn.ReLU(), nn.Linear(width, num_classes))
def one(input_shape): return nn.Sequential(nn.Linear(input_shape[0], 1), nn.Flatten(0))
"""


def write_table(path: Path, rows: int = 60, *, target: str = "{}", head: str = "x,z,died") -> Path:
    rng = np.random.default_rng(0)
    lines = [f"{a:.3f},{b:.3f},{target.format(int(a > b))}" for a, b in rng.random((rows, 2))]
    path.write_text("\n".join([head, *lines]) + "\n")
    return path


def draw(path: Path, value: int, size: tuple[int, int] = (10, 8)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (value, 0, 0)).save(path)


def table(place: Path) -> tuple[list[str], Path]:
    write_table(place / "t.csv")
    (place / "new.csv").write_text("z,note,x\n0.1,a word,0.9\n0.9,another,0.1\n")  # another order, and more
    return ["--dataset", "t.csv", "--target", "died"], place / "new.csv"


def folder_of_tables(place: Path) -> tuple[list[str], Path]:
    for name in ("a", "b", "test"):
        (place / "d").mkdir(exist_ok=True)
        write_table(place / f"d/{name}.csv", 20)
    return ["--dataset", "d", "--target", "died", "--model", "predict_models:small"], table(place)[1]


def arrays(place: Path) -> tuple[list[str], Path]:
    (place / "d").mkdir()
    for name in "ab":
        np.savez(place / f"d/{name}.npz", inputs=np.random.rand(9, 4).astype(np.float32), targets=np.arange(9) % 3)
    np.savez(place / "new.npz", x=np.random.rand(2, 4).astype(np.float32))
    return ["--dataset", "d"], place / "new.npz"


def quantities(place: Path) -> tuple[list[str], Path]:
    write_table(place / "q.csv", target="{}.5")
    return ["--dataset", "q.csv", "--target", "died", "--model", "predict_models:one"], table(place)[1]


def texts(place: Path) -> tuple[list[str], Path]:
    rows = "".join(f"{'good' if i % 2 else 'bad'} word{i % 5},{i % 2}\n" for i in range(50))
    (place / "t.csv").write_text("words,target\n" + rows)
    (place / "new.csv").write_text("words\ngood\nbad\n")
    return ["--dataset", "t.csv", "--text-column", "words", "--vocabulary", "fit:20"], place / "new.csv"


def words_in_order(place: Path) -> tuple[list[str], Path]:
    options, new = texts(place)
    return [*options[:-1], "hash:50", "--max-length", "6", "--model", "text-cnn"], new


def pictures(place: Path) -> tuple[list[str], Path]:
    for client in ("a", "b", "test"):
        for kind, value in (("cat", 40), ("dog", 90), ("owl", 200)):
            draw(place / f"p/{client}/{kind}/1.png", value)
    draw(place / "new/first.png", 40, size=(30, 30))
    draw(place / "new/below/second.png", 200)
    return ["--dataset", "p", "--image-size", "8x8"], place / "new"


def front_end(place: Path) -> tuple[list[str], Path]:
    np.savez(place / "new.npz", inputs=np.random.rand(2, 1, 8, 8).astype(np.float32))
    options = ["--front-end", "scattering", "--front-end-features", "9", "--front-end-projection", "random"]
    return ["--dataset", "digits", "--num-clients", "50", *options], place / "new.npz"


def a_named_data_set(place: Path) -> tuple[list[str], Path]:
    for number in range(2):
        Image.fromarray(np.full((8, 8), 90 * number, dtype=np.uint8)).save(place / f"{number}.png")
    return ["--dataset", "digits", "--num-clients", "50"], place


KINDS = [
    (table, ["row", "probability", "log_odds"]),
    (folder_of_tables, ["row", "probability", "log_odds"]),
    (arrays, ["row", "class", "probability", "p(0)", "p(1)", "p(2)"]),
    (quantities, ["row", "value"]),
    (texts, ["row", "probability", "log_odds"]),
    (words_in_order, ["row", "probability", "log_odds"]),
    (pictures, ["picture", "class", "probability", "p(cat)", "p(dog)", "p(owl)"]),
    (front_end, ["row", "class", "probability", *(f"p({digit})" for digit in range(10))]),
    (a_named_data_set, ["picture", "class", "probability", *(f"p({digit})" for digit in range(10))]),
]


@pytest.mark.parametrize(("kind", "headings"), KINDS, ids=[kind.__name__ for kind, _ in KINDS])
def test_every_kind_of_run_predicts(
    kind: Callable[[Path], tuple[list[str], Path]],
    headings: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "predict_models.py").write_text(MODEL)
    options, new = kind(tmp_path)
    ended = call(capsys, "run", "fl-std", *options, *QUICK, "--out", tmp_path / "run")
    assert ended.code == 0, ended.err
    predict = ["predict", tmp_path / "run", new, *needed(options)]
    ended = call(capsys, *predict)
    assert ended.code == 0, ended.err
    rows = list(csv.DictReader(io.StringIO(ended.out)))
    assert list(rows[0]) == headings and len(rows) == 2
    if "probability" in headings:
        assert all(0 <= float(row["probability"]) <= 1 for row in rows)
    if headings[-1].startswith("p("):
        assert sum(float(rows[0][name]) for name in headings[3:]) == pytest.approx(1, abs=1e-5)
    # A run of an earlier version did not write down what its records are: they are looked at again.
    (tmp_path / "run/records.toml").unlink()
    assert call(capsys, *predict).out == ended.out


def test_columns_are_taken_by_name_not_by_place(tmp_path: Path, monkeypatch, capsys) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    options, new = table(tmp_path)
    call(capsys, "run", "fl-std", *options, *QUICK, "--rounds", "30", "--out", "run")
    first = predict("run", new).probabilities
    (tmp_path / "other.csv").write_text("x,z\n0.9,0.1\n0.1,0.9\n")
    assert np.array_equal(first, predict("run", "other.csv").probabilities)
    assert first[0] > first[1]  # the label is x > z
    (tmp_path / "swapped.csv").write_text("z,x\n0.9,0.1\n0.1,0.9\n")
    assert not np.allclose(first, predict("run", "swapped.csv").probabilities)


def test_what_is_written_tells_the_same_records_apart_as_the_model(tmp_path: Path, monkeypatch, capsys) -> None:  # type: ignore[no-untyped-def]
    """The AUROC of the CSV is that of the run, to the last digit, though many probabilities are 0 to six decimals."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    for name in ("a", "test"):
        (tmp_path / "d").mkdir(exist_ok=True)
        x = rng.normal(size=(400, 2)) * 30 - 40
        lines = [f"{a},{b},{int(a + b + rng.normal() * 80 > 0)}" for a, b in x]
        (tmp_path / f"d/{name}.csv").write_text("\n".join(["x,z,died", *lines]) + "\n")
    options = ["--dataset", "d", "--target", "died", "--local-lr", "1", *QUICK[:2], *QUICK[4:]]
    ended = call(capsys, "run", "centralized", *options, "--out", "run")
    assert ended.code == 0, ended.err
    ended = call(capsys, "predict", "run", "d/test.csv")
    assert ended.code == 0 and "probability: the probability of class 1" in ended.err
    rows = list(csv.DictReader(io.StringIO(ended.out)))
    labels = [line.rsplit(",", 1)[1] == "1" for line in (tmp_path / "d/test.csv").read_text().splitlines()[1:]]
    known = json.loads((tmp_path / "run/summary.json").read_text())["last"]["auroc"]
    assert roc_auc_score(labels, [float(row["log_odds"]) for row in rows]) == pytest.approx(known, abs=1e-12)
    rounded = roc_auc_score(labels, [round(float(row["probability"]), 6) for row in rows])
    assert rounded < known - 0.02  # the twin
    found = json.loads(call(capsys, "predict", "run", "d/test.csv", "--json").out)
    assert found[0]["probability"] == float(rows[0]["probability"])
    assert "this run declares none" in call(capsys, "predict", "run", "d/test.csv", "--prevalence", "0.2").err


def test_what_does_not_fit_the_run_is_refused_in_a_line(tmp_path: Path, monkeypatch, capsys) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    options, new = table(tmp_path)
    call(capsys, "run", "fl-std", *options, *QUICK, "--out", "run")
    (tmp_path / "gaps.csv").write_text("x,z\n,1\nword,2\n")
    (tmp_path / "lacks.csv").write_text("x,y\n1,1\n")
    (tmp_path / "bare").write_text("x")
    np.savez(tmp_path / "wide.npz", inputs=np.ones((2, 3), dtype=np.float32))
    for name, code, words in (
        ("nwe.csv", 4, "nwe.csv: no such file or folder; did you mean new.csv?"),
        ("lacks.csv", 4, "missing column 'z'"),
        ("gaps.csv", 4, "column 'x': not a number (besides 1 without a value)"),
        ("wide.npz", 4, "records of shape (3,), but those of the run have (2,)"),
        ("run", 4, "is a folder; this run takes a table"),
        ("bare", 4, "cannot be read; this run takes a table"),
    ):
        ended = call(capsys, "predict", "run", name)
        assert ended.code == code and words in ended.err, ended.err
    (tmp_path / "run/records.toml").write_text("shape = 3\n")
    ended = call(capsys, "predict", "run", new)
    assert ended.code == 5 and "records.toml is damaged" in ended.err
    (tmp_path / "run/config.toml").write_text("# Made by the Python API: resume it.\n")
    ended = call(capsys, "predict", "run", new)
    assert ended.code == 5 and "made in Python" in ended.err


def test_what_a_record_is_is_written_and_read_back(tmp_path: Path) -> None:
    kind = RecordKind(shape=(3, 8, 8), num_classes=2, classes=('ca"t', "dög"), features=("a b",), whole=True)
    (tmp_path / "records.toml").write_text(kind.to_toml(), encoding="utf-8")
    assert RecordKind.read(tmp_path / "records.toml") == kind


def test_a_share_that_the_schema_declares_is_what_probabilities_are_moved_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_table(tmp_path / "t.csv")
    schema = 'label = "died"\npositive = 1\nprevalence = 0.5\n'
    schema += "".join(f'[[numeric]]\ncolumn = "{name}"\nmin = 0\nmax = 1\n' for name in "xz")
    (tmp_path / "s.toml").write_text(schema)
    options = ["--dataset", "t.csv", "--schema", "s.toml", "--num-clients", "4", "--model", "logistic"]
    assert call(capsys, "run", "fl-std", *options, *QUICK, "--out", "run").code == 0
    as_trained, rarer = (predict("run", "t.csv", prevalence=share).probabilities for share in ((), 0.1))
    odds = rarer / (1 - rarer) * (1 - as_trained) / as_trained
    assert odds == pytest.approx(1 / 9)


def test_a_new_file_may_have_gaps_that_training_had_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_table(tmp_path / "t.csv")
    assert call(capsys, "schema", "init", "t.csv", "--target", "died", "--out", "s.toml").code == 0
    options = ["--dataset", "t.csv", "--schema", "s.toml", "--num-clients", "4", "--model", "logistic"]
    assert call(capsys, "run", "fl-std", *options, *QUICK, "--out", "run").code == 0
    (tmp_path / "gaps.csv").write_text("x;z\n;0,25\nNA;0,25\n0,9;\n")
    fills = {entry.column: entry.fill for entry in Schema.from_toml("run/preprocessing.toml").numeric}
    (tmp_path / "filled.csv").write_text(f"x,z\n{fills['x']},0.25\n{fills['x']},0.25\n0.9,{fills['z']}\n")
    assert np.array_equal(predict("run", "gaps.csv").probabilities, predict("run", "filled.csv").probabilities)
    # A schema without a fill says what to do, which is not to edit the schema of a run that is over.
    lines = Path("run/preprocessing.toml").read_text().splitlines()
    Path("run/preprocessing.toml").write_text("\n".join(line for line in lines if not line.startswith("fill")))
    ended = call(capsys, "predict", "run", "gaps.csv")
    assert ended.code == 4 and "no value" in ended.err and "or fill the gaps of this table" in ended.err
