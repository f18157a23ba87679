"""From a hospital's export to a run, its statement, and predictions for new patients."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from e2e_tools import call
from safetensors.torch import load_file, save_file

from laconic.data.ehr import sources
from laconic.data.ehr.sources import EHR_SOURCES, EhrRequest
from laconic.data.inputs import SparseRows
from laconic.errors import ConfigError, DataError
from laconic.settings.build import settle
from laconic.settings.config import DataSection, RunConfig
from laconic.settings.data.clinical import load_clinical
from laconic.settings.predict import predict
from laconic.streams import Streams

SCHEMA = """
label = "died"
positive = "yes"
patient = "pid"
{clients}

[[numeric]]
column = "age"

[[categorical]]
column = "sex"

[[codes]]
name = "icd"
columns = ["codes"]
delimiter = ";"
min_count = 5
"""


def export(folder: Path, clients: str = "virtual_hospitals = 12", *, count: int = 400) -> tuple[Path, Path]:
    """(table, schema): codes 0 and 1 are dangerous."""
    rng = np.random.default_rng(5)
    lines = ["pid,ward,died,age,sex,codes"]
    for row in range(count):
        codes = sorted(set(rng.integers(0, 30, 4).tolist()))
        risk = 0.1 + 0.5 * (0 in codes) + 0.3 * (1 in codes)
        died = "yes" if rng.random() < risk else "no"
        texts = ";".join(f"{code:03d}" for code in codes)
        lines.append(f"p{row // 2},w{row % 7},{died},{rng.integers(20, 90)},{rng.choice(['F', 'M'])},{texts}")
    table, schema = folder / "export.csv", folder / "schema.toml"
    table.write_text("\n".join(lines) + "\n", encoding="utf-8")
    schema.write_text(SCHEMA.format(clients=clients), encoding="utf-8")
    return table, schema


def section(folder: Path, clients: str = "virtual_hospitals = 12", **options: object) -> DataSection:
    table, schema = export(folder, clients)
    return DataSection(dataset=str(table), schema=str(schema), **options)  # type: ignore[arg-type]


def test_splits_and_clients_share_no_patient(tmp_path: Path) -> None:
    data = load_clinical(section(tmp_path, public_records=20), holdout=0.1, streams=Streams(0))
    table = sources.load_table(data.preprocessing.schema, tmp_path / "export.csv")
    held = data.population._rows
    assert data.population.num_clients == 12
    whose = [set(table.patients.numbers[rows].tolist()) for rows in held]
    assert sum(map(len, whose)) == len(set().union(*whose)) < 200
    assert data.test is not None and data.holdout is not None and data.public is not None
    counted = sum(map(len, held)) + sum(len(r.targets) for r in (data.test, data.holdout, data.public))
    assert counted == 400
    assert all(data.population.records(c).targets.any() for c in range(12))
    assert isinstance(data.population.records(0).inputs, SparseRows)


def test_a_client_column_or_a_number_of_virtual_hospitals(tmp_path: Path) -> None:
    by_ward = load_clinical(section(tmp_path, 'client = "ward"'), holdout=0, streams=Streams(0))
    assert by_ward.population.num_clients == 6  # every patient was in two wards, and the last is never the first of two
    assert "training records are left out" in by_ward.notes[0]
    asked = load_clinical(section(tmp_path, 'client = "ward"', num_clients=5), holdout=0, streams=Streams(0))
    assert asked.population.num_clients == 5 and asked.notes == ()
    with pytest.raises(ConfigError, match="--partition column needs client = COLUMN"):
        load_clinical(section(tmp_path, partition="column"), holdout=0, streams=Streams(0))
    with pytest.raises(ConfigError, match="would separate the records of one patient"):
        load_clinical(section(tmp_path, partition="dirichlet"), holdout=0, streams=Streams(0))
    with pytest.raises(ConfigError, match="--client-column does not go with health records"):
        load_clinical(section(tmp_path, client_column="ward"), holdout=0, streams=Streams(0))
    with pytest.raises(ConfigError, match="--num-records is for --dataset ehr-synthetic"):
        load_clinical(section(tmp_path, num_records=9), holdout=0, streams=Streams(0))


def test_a_label_of_one_class_is_refused(tmp_path: Path) -> None:
    table, schema = export(tmp_path)
    schema.write_text(schema.read_text().replace('positive = "yes"', 'positive = "dead"'))
    data = DataSection(dataset=str(table), schema=str(schema))
    with pytest.raises(DataError, match="column 'died' never has the positive value dead"):
        load_clinical(data, holdout=0, streams=Streams(0))


def test_options_for_health_records_elsewhere_are_refused() -> None:
    for flag, data in (("--num-records", {"num_records": 9}), ("--min-count", {"min_count": 9})):
        with pytest.raises(ConfigError, match=f"{flag} is for health records"):
            settle(RunConfig.from_dict({"data": {"dataset": "digits", **data}}))


def test_min_count_of_the_command_line_counts(tmp_path: Path) -> None:
    few = load_clinical(section(tmp_path, min_count=40), holdout=0, streams=Streams(0)).preprocessing
    assert 0 < len(few.schema.codes[0].vocabulary or ()) < 30


def test_from_an_export_to_predictions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, schema = export(tmp_path)
    options = f"--dataset {table} --schema {schema} --rounds 3 --sampling-rate 0.5 --threads 1 --quiet".split()
    private = ["--noise-multiplier", "1", "--accountant", "rdp", "--clip-norm", "0.5", "--model-option", "hidden=8"]
    run = tmp_path / "run"
    ended = call(capsys, "run", "fl-std-dp", *options, *private, "--out", run)
    assert ended.code == 0, ended.err
    statement = json.loads((run / "privacy.json").read_text())
    revealed = next(text for text in statement["not_covered"] if "preprocessing was fitted" in text)
    for part in ("'age'", "'sex'", "30 codes of 'icd'"):
        assert part in revealed
    assert "num_clients = 12" in (run / "config.toml").read_text()
    assert 'name = "mlp"' in (run / "config.toml").read_text()

    # The fitted preprocessing as a public schema: the same features, and nothing revealed.
    public = ["--dataset", table, "--schema", run / "preprocessing.toml", *options[4:], *private]
    again = call(capsys, "run", "fl-std-dp", *public, "--out", tmp_path / "again")
    assert again.code == 0, again.err
    assert "preprocessing was fitted" not in (tmp_path / "again" / "privacy.json").read_text()
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == (run / "model.safetensors").read_bytes()

    new = tmp_path / "new.csv"
    new.write_text("pid,age,sex,codes\nx,50,F,000;001\ny,50,F,029\n")
    ended = call(capsys, "predict", run, new)
    assert ended.code == 0, ended.err
    rows = [line.split(",") for line in ended.out.splitlines()]
    assert rows[0] == ["patient", "probability", "log_odds"] and [row[0] for row in rows[1:]] == ["x", "y"]
    found = predict(run, new, weights="best")
    assert found.names == ["x", "y"] and ((found.probabilities > 0) & (found.probabilities < 1)).all()
    assert call(capsys, "predict", run, new, "--json").json[1]["patient"] == "y"
    assert call(capsys, "predict", run, new, "--best", "--out", tmp_path / "p.csv").code == 0
    assert (tmp_path / "p.csv").read_text().splitlines()[0] == "patient,probability,log_odds"

    weights = load_file(run / "best.safetensors")
    first = next(iter(weights))
    for bad, words in (
        (weights[first] * torch.nan, f"NaN or infinity in '{first}'"),
        (weights[first].reshape(1, -1), "not the weights of this run's model"),
        (weights[first].long(), "not the weights of this run's model"),
    ):
        save_file({**weights, first: bad}, run / "best.safetensors")
        ended = call(capsys, "predict", run, new, "--best")
        assert ended.code == 5 and words in ended.err and "best.safetensors" in ended.err

    ended = call(capsys, "predict", tmp_path, new)
    assert ended.code == 5 and "holds no run" in ended.err
    new.write_text("pid,age,sex\nx,50,F\n")
    ended = call(capsys, "predict", run, new)
    assert ended.code == 4 and "missing column 'codes'" in ended.err
    (run / "model.safetensors").unlink()
    assert "the run is not finished" in call(capsys, "predict", run, new.with_name("export.csv")).err


def test_centralised_training_takes_the_same_records(tmp_path: Path) -> None:
    table, schema = export(tmp_path)
    data = {"dataset": str(table), "schema": str(schema)}
    settled = settle(RunConfig.from_dict({"data": data, "scheme": {"name": "centralized"}, "model": {"hidden": 4}}))
    assert settled.experiment.population.num_clients == 1
    assert settled.preprocessing is not None
    assert "num_clients" not in settled.config.to_dict()["data"]


def diabetes_csv() -> str:
    """A few rows in the format of the original."""
    drugs = sources.shipped_schema("diabetes130").codes[1].columns
    counts = [entry.column for entry in sources.shipped_schema("diabetes130").numeric]
    header = "encounter_id,patient_nbr,gender,age,admission_type_id,discharge_disposition_id,A1Cresult,max_glu_serum"
    lines = [f"{header},{','.join(counts)},diag_1,diag_2,diag_3,{','.join(drugs)},readmitted"]
    for row in range(12):
        cells = f"{row},{row // 2},{'Male' if row % 3 else 'Unknown/Invalid'},[{row % 9}0-{row % 9 + 1}0),{row % 8 + 1}"
        outcome = 11 if row % 5 == 0 else 1
        numbers, treated = ",".join([str(row)] * len(counts)), ",".join(["No", "Up", *["No"] * 21])
        lines.append(f"{cells},{outcome},None,>200,{numbers},250.{row},V27,?,{treated},NO")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", ["dataset_diabetes.zip", "diabetic_data.csv"])
def test_diabetes130_from_its_original_files(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = diabetes_csv().replace("[00-10)", "[0-10)")
    monkeypatch.setattr(sources, "_DIABETES_SUM", hashlib.sha256(text.encode()).hexdigest())
    file = tmp_path / "diabetes130" / name
    file.parent.mkdir()
    if name.endswith(".zip"):
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("dataset_diabetes/diabetic_data.csv", text)
    else:
        file.write_text(text)
    source = EHR_SOURCES["diabetes130"]
    schema = source.schema().with_min_count(1)
    table = source.load(schema, EhrRequest(data_dir=str(tmp_path)))
    assert len(table) == 12 and table.labels is not None and table.labels.sum() == 3
    assert table.codes["icd9"].texts == ["250", "V27"] and table.codes["drug"].texts == ["repaglinide=Up"]
    assert table.numeric["num_medications"][:3].tolist() == [0, 1, 2]
    assert "found in" in source.info.where(str(tmp_path))
    monkeypatch.setattr(sources, "_DIABETES_SUM", "0" * 64)
    with pytest.raises(DataError, match="not the expected data: sha256 000000000000"):
        source.load(schema, EhrRequest(data_dir=str(tmp_path)))
    file.write_bytes(b"no zip")
    with pytest.raises(DataError, match="damaged|not the expected data"):
        source.load(schema, EhrRequest(data_dir=str(tmp_path)))


def test_files_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LACONIC_DATA", "LACONIC_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("LACONIC_OFFLINE", "1")
    for name in ("diabetes130", "eicu-demo"):
        source = EHR_SOURCES[name]
        assert "will be downloaded" in source.info.where()
        with pytest.raises(DataError, match="LACONIC_OFFLINE forbids"):
            source.load(source.schema(), EhrRequest())
        with pytest.raises(DataError, match=f"no complete {name} there"):
            source.load(source.schema(), EhrRequest(data_dir=str(tmp_path)))
    with pytest.raises(ConfigError, match="leave out --data-dir"):
        EHR_SOURCES["ehr-synthetic"].load(EHR_SOURCES["ehr-synthetic"].schema(), EhrRequest(data_dir="x"))


_STAY, _ADMISSION, _STATUS = "patientunitstayid", "patienthealthsystemstayid", "hospitaldischargestatus"
EICU = {
    "patient.csv": f"""{_STAY},{_ADMISSION},gender,age,hospitalid,unitadmitsource,unitvisitnumber,{_STATUS},uniquepid
2,10,Female,> 89,7,Floor,2,Alive,A
1,10,Female,> 89,7,Emergency Department,1,Alive,A
3,11,Male,,8,Mars,1,Expired,B
4,12,Male,50,8,Floor,1,,C
5,13,Male,50,8,Floor,1,Alive,A
""",
    "medication.csv": """patientunitstayid,drugstartoffset,drugordercancelled,drughiclseqno
1,10,No,100
1,2000,No,200
1,-5,Yes,300
2,10,No,400
3,1439,No,100
3,20,No,
""",
    "diagnosis.csv": """patientunitstayid,diagnosisoffset,icd9code
1,5,"401.9, I10"
1,6,"401.1, I10"
3,7,
3,1440,"038.9, R78.81"
5,1,"038.9, R78.81"
""",
}


def test_eicu_stays_are_joined_and_what_comes_later_stays_out(tmp_path: Path) -> None:
    for name, text in EICU.items():
        (tmp_path / name).write_text(text)
    source = EHR_SOURCES["eicu-demo"]
    table = source.load(source.schema().with_min_count(1), EhrRequest(data_dir=str(tmp_path)))
    assert table.labels is not None and table.labels.tolist() == [False, True, False]  # one had no status
    assert [table.patients.texts[n] for n in table.patients.numbers] == ["A", "B", "A"]
    assert table.numeric["age"].tolist() == [90, 65, 50]
    assert table.numeric["num_drugs"].tolist() == [1, 1, 0]  # not the cancelled, the late, nor that of the second unit
    drugs, diagnoses = table.codes["drug"], table.codes["icd9"]
    assert np.diff(drugs.starts).tolist() == [1, 1, 0] and drugs.texts == ["100"]
    assert np.diff(diagnoses.starts).tolist() == [1, 0, 1] and diagnoses.texts == ["401", "038"]
    (tmp_path / "medication.csv").write_text(EICU["medication.csv"].replace("1,10,", "1,soon,"))
    with pytest.raises(DataError, match="row 1, column 'drugstartoffset': not a number of minutes"):
        source.load(source.schema(), EhrRequest(data_dir=str(tmp_path)))


@pytest.mark.realdata
def test_diabetes130_is_what_the_papers_need() -> None:
    data = load_clinical(DataSection(dataset="diabetes130"), holdout=0, streams=Streams(0))
    assert data.test is not None
    counted = sum(data.population.size(c) for c in range(100)) + len(data.test.targets)
    assert counted == 101_766 and data.population.num_clients == 100
    names = data.preprocessing.feature_names
    for trap in ("discharge_disposition_id", "readmitted", "encounter_id", "patient_nbr", "time_in_hospital"):
        assert not [name for name in names if name.startswith(trap)]
    assert 300 < len(names) < 700


@pytest.mark.realdata
def test_eicu_demo_is_what_the_papers_need() -> None:
    data = load_clinical(DataSection(dataset="eicu-demo"), holdout=0, streams=Streams(0))
    assert data.test is not None
    assert 180 <= data.population.num_clients <= 186
    deaths = sum(int(data.population.records(c).targets.sum()) for c in range(data.population.num_clients))
    assert 170 <= deaths + int(data.test.targets.sum()) <= 182
