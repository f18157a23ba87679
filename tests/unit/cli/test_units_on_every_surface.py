"""`--unit patient` on a table of hospitals: each command takes it, names the unit in words, and gives the same ε."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from e2e_tools import call
from safetensors.torch import load_file

import laconic

UNIT = "one patient with all records at one client"
TABLE = ["--dataset", "adm.csv", "--target", "died", "--classes", "2", "--client-column", "hospital"]
TABLE += ["--patient-column", "subject_id", "--model", "logistic"]
PATIENTS = ["--unit", "patient", "--num-units", "40", "--prevalence", "0.3", "--clip-norm", "1"]
PROMISE = ["--epsilon", "2", "--delta", "1e-3", "--rounds", "4", "--eval-every", "4", "--device", "cpu"]
RUN = ["fl-std-dp", *TABLE, *PATIENTS, *PROMISE]
FILE = """
[scheme]
name = "fl-std-dp"
unit = "patient"
num_units = 40
prevalence = 0.3
clip_norm = 1.0
[data]
dataset = "adm.csv"
target = "died"
classes = "2"
client_column = "hospital"
patient_column = "subject_id"
[model]
name = "logistic"
[privacy]
epsilon = 2.0
delta = 1e-3
[run]
rounds = 4
eval_every = 4
device = "cpu"
"""


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """100 records of 40 patients in 4 hospitals, in the current folder."""
    rng = np.random.default_rng(0)
    patients = rng.integers(0, 40, 100)
    rows = ["hospital,subject_id,a,b,died"]
    for patient, (a, b, noise) in zip(patients.tolist(), rng.normal(size=(100, 3)).tolist(), strict=True):
        rows.append(f"h{patient % 4},p{patient},{a:.3f},{b:.3f},{int(a - b + noise > 0.8)}")
    (tmp_path / "adm.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "run.toml").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_run_its_statement_report_and_card_name_the_unit(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = call(capsys, "run", *RUN, "--out", "run", "--json")
    assert done.code == 0, done.err
    statement = json.loads((table / "run/privacy.json").read_text())
    assert statement["unit"] == UNIT
    assert statement["released"]["epsilon"] == statement["participant"]["epsilon"]
    assert 1.9 < statement["released"]["epsilon"]["pld"] <= 2
    assert statement["mechanism"]["units"]["prevalence"] == [0.7, 0.3]
    assert f"It protects {UNIT}." in (table / "run/report.html").read_text()
    assert call(capsys, "export", "run", "--to", "card").code == 0
    card = (table / "run/model.md").read_text()
    assert f"for {UNIT}, against" in card
    assert "a whole client has nothing" in card
    assert "the shares 0.7, 0.3 of the classes" in card
    assert UNIT in call(capsys, "run", *RUN, "--out", "again").out


def test_a_file_says_the_same_as_flags(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys, "run", *RUN, "--out", "flags").code == 0
    assert call(capsys, "run", "run.toml", "--out", "file").code == 0
    assert call(capsys, "run", "flags/config.toml", "--out", "kept").code == 0
    first = load_file(table / "flags/model.safetensors")
    for other in ("file", "kept"):
        found = load_file(table / other / "model.safetensors")
        assert all(bool((found[name] == weights).all()) for name, weights in first.items())


def test_plan_epsilon_and_calibrate_have_the_figures_of_the_run(
    table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    planned = call(capsys, "plan", *RUN)
    assert planned.code == 0, planned.err
    text = " ".join(planned.out.split())
    assert f"protected is {UNIT}" in text
    assert "a whole client has nothing" in text
    assert "4 clients, 4 a round" in text
    known = ["--unit", "patient", "--num-units", "40", "--num-clients", "4", "--sampling-rate", "1", "--rounds", "4"]
    known += ["--delta", "1e-3", "--json"]
    sigma = call(capsys, "calibrate", *known, "--epsilon", "2").json["noise_multiplier"]["pld"]
    assert f"σ = {sigma:g}," in text
    found = call(capsys, "epsilon", *known, "--noise-multiplier", str(sigma))
    assert found.code == 0, found.err
    assert found.json["protects"] == UNIT
    assert f"Protected is {UNIT}." in call(capsys, "calibrate", *known[:-1], "--epsilon", "2").out
    said = call(capsys, "epsilon", *known[:-1], "--noise-multiplier", str(sigma)).out
    assert f"Protected is {UNIT}." in said
    assert said.count("2.000") == 2  # one ε for both adversaries


def test_a_table_gets_a_linear_model_that_starts_at_the_public_shares(
    table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = [word for word in RUN if word not in ("--model", "logistic")]
    done = call(capsys, "run", *chosen, "--server-lr", "1e-9", "--out", "run")
    assert done.code == 0, done.err
    weights = load_file(table / "run/model.safetensors")
    *others, bias = (weights[name] for name in sorted(weights, reverse=True))
    assert all(float(one.abs().max()) < 1e-6 for one in others)
    assert float(bias.sigmoid()) == pytest.approx(0.3, abs=1e-4)


def test_sweeps_have_the_same_bits_side_by_side(table: Path) -> None:
    grid = {
        "base": str(table / "run.toml"),
        "model": {"name": "logistic"},
        "grid": {"scheme.server_lr": [0.5, 2.0]},
        "seeds": 1,
    }
    for name, together in (("together", True), ("apart", False)):
        assert not laconic.sweep(grid, table / name, side_by_side=together).failures
    names = sorted(path.parent.relative_to(table / "together") for path in table.glob("together/**/model.safetensors"))
    assert len(names) == 2
    for name in names:
        first, second = (load_file(table / where / name / "model.safetensors") for where in ("together", "apart"))
        assert all(bool((second[key] == weights).all()) for key, weights in first.items())


def test_an_audit_takes_units(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = call(capsys, "audit", *RUN, "--canaries", "100", "--trials", "1000", "--out", "audit")
    assert done.code == 0, done.out + done.err
    assert "Verdict: consistent" in done.out


def test_a_boosted_owner_spoils_the_model_and_no_epsilon(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It leaves out clip and noise. The shares of the others were made without it: --max-colluders 1."""
    slack = ["--max-colluders", "1"]
    assert call(capsys, "run", *RUN, *slack, "--out", "honest").code == 0
    attack = ["--attack", "sign-inversion", "--attack-malicious", "1", "--attack-boost", "50"]
    assert call(capsys, "run", *RUN, *slack, *attack, "--out", "attacked").code in (0, 6)
    honest, attacked = (json.loads((table / name / "privacy.json").read_text()) for name in ("honest", "attacked"))
    assert attacked["released"]["epsilon"] == honest["released"]["epsilon"]
    assert attacked["attack"]["holds"]
    losses = [json.loads((table / n / "summary.json").read_text())["last"]["loss"] for n in ("honest", "attacked")]
    assert losses[1] > 2 * losses[0]
    # Without slack for it a share of the noise is missing, and that is said.
    assert call(capsys, "run", *RUN, *attack, "--out", "bare").code in (0, 6)
    assert not json.loads((table / "bare/privacy.json").read_text())["attack"]["holds"]


def test_signs_and_other_schemes_are_refused_with_the_way_out(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused = call(capsys, "run", "fl-sign-dp", *TABLE, "--unit", "patient", "--num-units", "40", *PROMISE)
    assert refused.code == 2
    assert "--unit patient: fl-sign-dp sends signs" in refused.err
    assert "use fl-std-dp" in refused.err


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["--unit", "patients"], "unknown unit 'patients': did you mean 'patient'?"),
        (["--num-units", "0"], "num_units must be a positive number"),
        (["--local-lr", "0.1"], "--local-lr means nothing with --unit patient"),
        (["--unit-rate", "2"], "unit_rate must be above 0 and at most 1"),
        (["--class-weights", "1"], "--class-weights is for 1 class, but the model has 2 classes"),
        (["--patient-column", "subjectid"], "did you mean 'subject_id'?"),
    ],
)
def test_one_mistake_is_one_complaint(
    changes: list[str], said: str, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What else is said of units is right, and not complained of because the wrong option was taken away."""
    refused = call(capsys, "run", *RUN, *changes)
    assert refused.code == 2
    assert said in refused.err
    assert "things to mend" not in refused.err and "--unit client" not in refused.err
