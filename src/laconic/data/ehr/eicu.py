"""eICU demo: one row per hospital stay, from the tables of patients, medication and diagnoses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from laconic.data.ehr.blocks import Block, check_columns, read_table
from laconic.data.files.user_file import refused

FILES = ("patient.csv.gz", "medication.csv.gz", "diagnosis.csv.gz")
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
        raise refused(path, "no rows; delete it, or point --data-dir at the original files")
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
