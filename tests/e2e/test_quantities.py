"""Quantities and many classes: from a table to predictions in the user's unit, by the commands."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from e2e_tools import call
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error

from laconic.settings.predict import predict

ROWS = 1500


def write_stays(path: Path, seed: int = 0) -> dict[str, np.ndarray]:
    """Days in hospital by age, sex and a laboratory value; and a ward that follows from them."""
    rng = np.random.default_rng(seed)
    age, woman, lab = rng.integers(18, 90, ROWS), rng.random(ROWS) < 0.5, rng.gamma(4, 0.3, ROWS)
    days = np.clip(2 + 0.1 * age + 3 * woman + 2 * lab + rng.normal(0, 2, ROWS), 0, None)
    ward = np.where(lab + rng.normal(0, 0.2, ROWS) > 1.5, "icu", np.where(age > 60, "old", "young"))
    columns = {"age": age, "sex": np.where(woman, "F", "M"), "lab": lab, "days": days, "ward": ward}
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(columns)
        writer.writerows(zip(*(values.tolist() for values in columns.values()), strict=True))
    return columns | {"x": np.column_stack([age, woman, lab])}


def drafted(capsys: pytest.CaptureFixture[str], label: str, leave_out: str) -> None:
    ended = call(capsys, "schema", "init", "stays.csv", "--target", label, "--out", "s.toml", "--force")
    assert ended.code == 0, ended.err
    text = Path("s.toml").read_text()
    Path("s.toml").write_text(text.split(f'[[numeric]]\ncolumn = "{leave_out}"')[0] if leave_out in text else text)


def test_a_quantity_without_privacy_is_that_of_least_squares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    known, new = write_stays(tmp_path / "stays.csv"), write_stays(tmp_path / "new.csv", seed=1)
    schema = 'label = "days"\nlow = 0\nhigh = 40\n[[categorical]]\ncolumn = "sex"\n'
    for column, mean, std in (("age", 54, 21), ("lab", 1.2, 0.6)):
        schema += f'[[numeric]]\ncolumn = "{column}"\nscale = "standard"\nmean = {mean}\nstd = {std}\nfill = {mean}\n'
    Path("s.toml").write_text(schema)
    options = ["--dataset", "stays.csv", "--schema", "s.toml", "--model", "logistic", "--rounds", "100"]
    options += ["--local-lr", "0.03", "--threads", "1", "--quiet"]
    assert call(capsys, "run", "centralized", *options, "--out", "run").code == 0
    last = json.loads(Path("run/summary.json").read_text())["last"]
    found = predict("run", "new.csv").columns["value"]
    best = LinearRegression().fit(known["x"], known["days"]).predict(new["x"])
    assert r2_score(new["days"], found) == pytest.approx(r2_score(new["days"], best), abs=0.01)
    # The run's own figures are in days, too: about those of another draw of the same patients.
    assert last["rmse"] == pytest.approx(root_mean_squared_error(new["days"], found), rel=0.15)
    assert last["mae"] == pytest.approx(mean_absolute_error(new["days"], found), rel=0.15)
    assert 1.5 < last["rmse"] < 3 and last["loss"] < 0.05
    ended = call(capsys, "predict", "run", "new.csv")
    assert "value: in the unit of the table, learnt between the bounds 0 and 40" in ended.err
    rows = list(csv.DictReader(io.StringIO(ended.out)))
    assert [float(row["value"]) for row in rows] == list(found)
    assert "leave it out" in call(capsys, "predict", "run", "new.csv", "--prevalence", "0.2").err
    # An exported file takes raw values, and answers in days.
    assert call(capsys, "export", "run", "--to", "onnx", "--out", "model.onnx").code == 0
    numbers = np.column_stack([new["age"], new["lab"]]).astype(np.float32)
    levels = np.array([[0 if sex == "F" else 1] for sex in new["sex"]])
    session = onnxruntime.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
    (answers,) = session.run(None, {"numbers": numbers, "levels": levels, "codes": np.zeros((ROWS, 0), np.float32)})
    assert answers.tolist() == pytest.approx(list(found), abs=1e-4)


@pytest.mark.parametrize("loss", ["auto", "huber"])
def test_a_quantity_is_learnt_with_records_protected(
    loss: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_stays(tmp_path / "stays.csv")
    drafted(capsys, "days", "ward")
    options = [
        "--dataset",
        "stays.csv",
        "--schema",
        "s.toml",
        "--unit",
        "record",
        "--num-units",
        "1200",
        "--loss",
        loss,
    ]
    options += [
        "--num-clients",
        "4",
        "--sampling-rate",
        "1",
        "--epsilon",
        "4",
        "--clip-norm",
        "1",
        "--server-lr",
        "0.4",
    ]
    assert call(capsys, "plan", "fl-std-dp", *options, "--rounds", "50").code == 0
    ended = call(capsys, "run", "fl-std-dp", *options, "--rounds", "50", "--threads", "1", "--quiet", "--out", "run")
    assert ended.code == 0, ended.err
    last = json.loads(Path("run/summary.json").read_text())["last"]
    assert last["r2"] > 0.3 and last["epsilon"] <= 4
    assert any("low and high" in text for text in json.loads(Path("run/privacy.json").read_text())["not_covered"])
    report = Path("run/report.html").read_text()
    assert "root mean squared error" in report


def test_many_classes_without_privacy_are_those_of_logistic_regression(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    known, new = write_stays(tmp_path / "stays.csv"), write_stays(tmp_path / "new.csv", seed=1)
    drafted(capsys, "ward", "days")
    options = ["--dataset", "stays.csv", "--schema", "s.toml", "--model", "logistic", "--rounds", "200"]
    options += ["--local-lr", "2", "--threads", "1", "--quiet"]
    assert call(capsys, "run", "centralized", *options, "--out", "run").code == 0
    ended = call(capsys, "predict", "run", "new.csv")
    rows = list(csv.DictReader(io.StringIO(ended.out)))
    assert list(rows[0]) == ["row", "class", "probability", "p(icu)", "p(old)", "p(young)"]
    right = np.mean([row["class"] == ward for row, ward in zip(rows, new["ward"], strict=True)])
    scaled = (known["x"] - known["x"].mean(0)) / known["x"].std(0)
    model = LogisticRegression().fit(scaled, known["ward"])
    best = model.score((new["x"] - known["x"].mean(0)) / known["x"].std(0), new["ward"])
    assert right > best - 0.03


def test_weights_of_classes_are_taken_out_of_predictions_and_said_in_an_exported_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With positives counted fivefold the raw outputs say too much; what is predicted and judged does not."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    x = rng.random(3000)
    ill = rng.random(3000) < 0.02 + 0.26 * x
    Path("t.csv").write_text("x,died\n" + "".join(f"{a},{int(b)}\n" for a, b in zip(x, ill, strict=True)))
    Path("s.toml").write_text('label = "died"\npositive = 1\n[[numeric]]\ncolumn = "x"\nmin = 0\nmax = 1\n')
    options = [
        "--dataset",
        "t.csv",
        "--schema",
        "s.toml",
        "--unit",
        "record",
        "--num-units",
        "2400",
        "--server-lr",
        "2",
    ]
    options += ["--num-clients", "3", "--sampling-rate", "1", "--epsilon", "20", "--clip-norm", "3", "--rounds", "80"]
    weights = ["--class-weights", "1,5", "--prevalence", "0.15", "--eval-every", "80", "--threads", "1", "--quiet"]
    assert call(capsys, "run", "fl-std-dp", *options, *weights, "--out", "run").code == 0
    stated = json.loads(Path("run/figures.json").read_text())["probabilities"]
    assert abs(stated["mean"] - stated["true"]) < 0.05 and abs(stated["intercept"][0]) < 0.5
    found = predict("run", "t.csv")
    assert found.probabilities.mean() == pytest.approx(ill.mean(), abs=0.05)
    assert "the weights of the classes in training are taken out" in found.meaning
    rarer = predict("run", "t.csv", prevalence=0.03).probabilities
    odds = rarer / (1 - rarer) * (1 - found.probabilities) / found.probabilities
    assert odds == pytest.approx(0.03 / 0.97 * 0.85 / 0.15)
    assert call(capsys, "export", "run", "--to", "onnx").code == 0
    about = {one.key: one.value for one in onnx.load("run/model.onnx").metadata_props}
    assert json.loads(about["laconic.add_to_logits"]) == [pytest.approx(-np.log(5))]
    assert "add -1.60944 to the outputs first" in Path("run/model.md").read_text()
