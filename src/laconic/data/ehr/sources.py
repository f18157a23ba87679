"""The named sets of health records: two open ones from their original files, and one that is made.

Of eICU's demo there is one row per hospital stay, from the tables of patients, medication and diagnoses.
"""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path

import numpy as np

from laconic.data.download import download
from laconic.data.ehr.blocks import Block, check_columns, read_csv, read_table, separator_of
from laconic.data.ehr.schema import Schema
from laconic.data.ehr.synthetic import make_admissions, synthetic_schema
from laconic.data.ehr.table import EhrTable, encode_table
from laconic.data.files.user_file import refused
from laconic.data.registry import SourceInfo, cache_dir
from laconic.errors import ConfigError, DataError

EICU_FILES = ("patient.csv.gz", "medication.csv.gz", "diagnosis.csv.gz")
_DAY = 1440  # minutes
_STAY, _VISIT, _HOSPITAL_STAY = "patientunitstayid", "unitvisitnumber", "patienthealthsystemstayid"
_OF_PATIENT = ("uniquepid", "hospitalid", "age", "gender", "unitadmitsource", "hospitaldischargestatus")


def read_stays(paths: Sequence[Path], columns: Sequence[str]) -> Iterator[Block]:
    """The joined table as one block. Row numbers are those of the table of patients."""
    import pyarrow as pa

    patient, medication, diagnosis = paths
    stays, names, numbers, table = _first_stays(patient)
    drugs = _codes_by_stay(medication, stays, "drugstartoffset", "drughiclseqno", {"drugordercancelled": "No"})
    # A cell such as "401.9, I10" has the ICD-9 code first.
    diagnoses = _codes_by_stay(diagnosis, stays, "diagnosisoffset", "icd9code", {})
    found = {
        **names,
        "drugs": pa.array(drugs, pa.list_(pa.string())),
        "diagnoses": pa.array(diagnoses, pa.list_(pa.string())),
        "num_drugs": pa.array([len(codes) for codes in drugs]),
    }
    check_columns(table, columns, list(found))
    yield Block(table, {name: found[name] for name in columns}, numbers)


def _first_stays(path: Path) -> tuple[dict[str, int], dict[str, object], np.ndarray, str]:
    """({unit stay: place}, columns, row numbers, table): of each hospital stay, its first stay in a unit."""
    import pyarrow as pa

    needed = [_STAY, _VISIT, _HOSPITAL_STAY, *_OF_PATIENT]
    blocks = list(read_table(path, needed))
    if not blocks:
        raise refused(path, "no rows; delete it, or point ⟨data-dir⟩ at the original files")
    column = {name: pa.concat_arrays([block.columns[name] for block in blocks]) for name in needed}
    numbers = np.concatenate([block.numbers for block in blocks])
    stay_ids, hospital_stays = column[_STAY].to_pylist(), column[_HOSPITAL_STAY].to_pylist()
    visits = [int(v) if v.isdecimal() else 0 for v in column[_VISIT].to_pylist()]
    first: dict[str, int] = {}
    for row, hospital_stay in enumerate(hospital_stays):
        if hospital_stay not in first or visits[row] < visits[first[hospital_stay]]:
            first[hospital_stay] = row
    rows = np.array(sorted(first.values()))
    places = {stay_ids[row]: place for place, row in enumerate(rows.tolist())}
    return places, {name: column[name].take(rows) for name in _OF_PATIENT}, numbers[rows], str(path)


def _codes_by_stay(path: Path, stays: dict[str, int], offset: str, code: str, only: dict[str, str]) -> list[list[str]]:
    """The distinct codes of every stay that were entered before the end of its first day."""
    found: list[dict[str, None]] = [{} for _ in stays]
    for block in read_table(path, [_STAY, offset, code, *only]):
        cells = {name: column.to_pylist() for name, column in block.columns.items()}
        for row, (stay, when, text) in enumerate(zip(cells[_STAY], cells[offset], cells[code], strict=True)):
            first_part = text.partition(",")[0].strip()
            place = stays.get(stay)
            if place is None or not first_part or any(cells[k][row] != v for k, v in only.items()):
                continue
            try:
                early = int(when) < _DAY
            except ValueError:
                raise block.error(row, offset, "not a number of minutes") from None
            if early:
                found[place][first_part] = None
    return [list(codes) for codes in found]


@dataclass(frozen=True)
class EhrRequest:
    """What a user may ask of a source: where its files are, how many records to make, from which seed."""

    data_dir: str | None = None
    num_records: int | None = None
    seed: int = 0


@dataclass(frozen=True)
class EhrSource:
    """What can be said of a set of health records, its schema, and how its table is read."""

    info: SourceInfo
    schema: Callable[[], Schema] = field(repr=False)
    load: Callable[[Schema, EhrRequest], EhrTable] = field(repr=False)


def load_table(schema: Schema, path: str | Path) -> EhrTable:
    """The user's own export."""
    file = Path(path).expanduser()
    schema = _as_written(schema, file, schema.columns)
    return encode_table(schema, str(file), read_table(file, schema.columns, schema.separator))


def _as_written(schema: Schema, file: Path, columns: Sequence[str]) -> Schema:
    """The schema with what separates the cells of this file: another export of the same table may have semicolons."""
    return replace(schema, separator=separator_of(file, columns, schema.separator))


def load_new_patients(schema: Schema, path: str | Path) -> EhrTable:
    """Patients to predict for: only their features and their names are read."""
    file = Path(path).expanduser()
    columns = [*([schema.patient] if schema.patient else []), *schema.feature_columns]
    schema = _as_written(schema, file, columns)
    blocks = read_table(file, columns, schema.separator)
    return encode_table(schema, str(file), blocks, for_training=False)


def shipped_schema(name: str) -> Schema:
    """A schema that comes with the library."""
    with resources.as_file(resources.files("laconic.data.ehr") / f"{name}.toml") as path:
        return Schema.from_toml(path)


_DIABETES_CSV, _DIABETES_ZIP = "diabetic_data.csv", "dataset_diabetes.zip"
_DIABETES_SUM = "0689e7ec031237dc63031b938805c48377748761a3b26acab621567afa24df97"
_DIABETES_URLS = (
    "https://archive.ics.uci.edu/static/public/296/diabetes+130-us+hospitals+for+years+1999-2008.zip",
    "https://archive.ics.uci.edu/ml/machine-learning-databases/00296/dataset_diabetes.zip",
)


def _load_diabetes(schema: Schema, request: EhrRequest) -> EhrTable:
    paths = EHR_SOURCES["diabetes130"].info.locate(request.data_dir)
    path = paths[0] if paths else download(_DIABETES_URLS, cache_dir() / "diabetes130" / _DIABETES_ZIP, _check_diabetes)
    try:
        _check_diabetes(path)
    except ValueError as error:
        raise DataError(f"{path}: {error}; delete it, or point ⟨data-dir⟩ at the original file") from None
    if path.suffix == ".csv":
        return encode_table(schema, str(path), read_table(path, schema.columns, schema.separator))
    with zipfile.ZipFile(path) as archive, archive.open(_member(archive)) as stream:
        return encode_table(schema, f"{path}/{_DIABETES_CSV}", read_csv(stream, _DIABETES_CSV, schema.columns))


def _check_diabetes(path: Path) -> None:
    """A `ValueError` unless the file is, or holds, the published table."""
    digest = hashlib.sha256()
    try:
        if path.suffix == ".csv":
            digest.update(path.read_bytes())
        else:
            with zipfile.ZipFile(path) as archive:
                digest.update(archive.read(_member(archive)))
    except (OSError, EOFError, zipfile.BadZipFile, zlib.error, RuntimeError) as error:
        raise ValueError(f"damaged, or not a zip file ({type(error).__name__})") from None
    if digest.hexdigest() != _DIABETES_SUM:
        raise ValueError(f"not the expected data: sha256 {_DIABETES_SUM[:12]}... expected")


def _member(archive: zipfile.ZipFile) -> str:
    """The table, in whatever folder of the archive it is."""
    found = next((name for name in archive.namelist() if name.rpartition("/")[2] == _DIABETES_CSV), None)
    if found is None:
        raise ValueError(f"holds no {_DIABETES_CSV}")
    return found


_EICU_URL = "https://physionet.org/files/eicu-crd-demo/2.0.1/"


def _load_eicu(schema: Schema, request: EhrRequest) -> EhrTable:
    paths = EHR_SOURCES["eicu-demo"].info.locate(request.data_dir) or [
        download([_EICU_URL + name], cache_dir() / "eicu-demo" / name, _check_eicu) for name in EICU_FILES
    ]
    return encode_table(schema, "eicu-demo", read_stays(paths, schema.columns))


def _check_eicu(path: Path) -> None:
    """A `ValueError` unless the file is one of the gzipped tables."""
    import gzip

    try:
        with gzip.open(path, "rb") as stream:
            header = stream.readline().decode().replace('"', "").strip().split(",")
            while stream.read(1 << 20):
                pass
        check_columns(path.name, ["patientunitstayid"], header)
    except (OSError, EOFError, UnicodeDecodeError, DataError) as error:
        raise ValueError(f"not a table of the eICU demo ({type(error).__name__})") from None


def _load_synthetic(schema: Schema, request: EhrRequest) -> EhrTable:
    if request.data_dir is not None:
        raise ConfigError("⟨dataset⟩ ehr-synthetic is made on demand: leave out ⟨data-dir⟩")
    return make_admissions(100_000 if request.num_records is None else request.num_records, seed=request.seed)


_OUTCOMES = ("survives", "dies in hospital")

EHR_SOURCES: dict[str, EhrSource] = {
    source.info.name: source
    for source in (
        EhrSource(
            info=SourceInfo(
                name="diabetes130",
                description="Diabetes 130-US hospitals 1999-2008: deaths in hospital, virtual hospitals as clients",
                licence="CC BY 4.0",
                origin="UCI Machine Learning Repository (Strack et al. 2014); download of 3 MB",
                num_train=101_766,
                num_test=0,
                size="101,766 encounters of 71,518 patients, 1.61 % deaths",
                input_shape=(),
                classes=_OUTCOMES,
                client="a virtual hospital: random patients with all their records",
                default_clients=100,
                files=(_DIABETES_ZIP,),
                or_files=((_DIABETES_CSV,),),
                sums={_DIABETES_CSV: f"sha256:{_DIABETES_SUM}"},
                citation="Strack et al., Impact of HbA1c measurement on hospital readmission rates, 2014",
            ),
            schema=lambda: shipped_schema("diabetes130"),
            load=_load_diabetes,
        ),
        EhrSource(
            info=SourceInfo(
                name="eicu-demo",
                description=(
                    "eICU Collaborative Research Database, demo: deaths in hospital, 186 real hospitals as clients"
                ),
                licence="ODbL 1.0",
                origin="PhysioNet (Pollard et al. 2018); download of 2 MB",
                num_train=2_149,
                num_test=0,
                size="2,149 hospital stays, 8.5 % deaths",
                input_shape=(),
                classes=_OUTCOMES,
                client="a hospital with all its patients",
                default_clients=186,
                natural=True,
                files=EICU_FILES,
                citation="Pollard et al., The eICU Collaborative Research Database, 2018",
            ),
            schema=lambda: shipped_schema("eicu_demo"),
            load=_load_eicu,
        ),
        EhrSource(
            info=SourceInfo(
                name="ehr-synthetic",
                description="made admissions with the marginals of the papers' private database, 415 hospitals",
                licence="none needed",
                origin="made on demand from the seed; --num-records 1271733 is the papers' size",
                num_train=100_000,
                num_test=0,
                size="100,000 by default, 3.2 % deaths",
                input_shape=(),
                classes=_OUTCOMES,
                client="a made hospital with all its patients",
                default_clients=415,
                natural=True,
                stand_in_for="the papers' private hospital database",
                how_to_get="made on demand",
            ),
            schema=synthetic_schema,
            load=_load_synthetic,
        ),
    )
}
