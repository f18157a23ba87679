"""Tables become features as the schema says; what cannot be is refused with row and column, never with a value."""

from __future__ import annotations

import dataclasses
import gzip
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from laconic.data.ehr import blocks
from laconic.data.ehr.features import Preprocessing, fit_preprocessing
from laconic.data.ehr.schema import Categorical, Codes, Filter, Numeric, Schema
from laconic.data.ehr.sources import load_new_patients, load_table
from laconic.data.ehr.table import EhrTable
from laconic.errors import DataError

SCHEMA = Schema(
    label="died",
    positive=("1",),
    patient="pid",
    client="ward",
    missing=("", "?"),
    numeric=(Numeric(column="age", replace={"> 89": 90.0}),),
    categorical=(Categorical(column="sex"),),
    codes=(
        Codes(name="icd", columns=("d1", "d2"), cut_at_dot=True, min_count=2),
        Codes(name="drug", columns=("drugs",), delimiter=";", min_count=1),
    ),
)
ROWS = """pid,ward,died,age,sex,d1,d2,drugs,secret
a,north,0,20,F,250.83,008.1,x; y;x,1
b,south,1,> 89,M,250,?,,2
c,north,0,55,?,V27,250.0,y,3
a,north,1,20,F,008,E9,z,4
"""


def written(tmp_path: Path, text: str = ROWS, name: str = "table.csv") -> Path:
    file = tmp_path / name
    if name.endswith(".gz"):
        file.write_bytes(gzip.compress(text.encode()))
    else:
        file.write_text(text, encoding="utf-8")
    return file


def prepared(table: EhrTable, schema: Schema = SCHEMA) -> tuple[Preprocessing, np.ndarray]:
    preprocessing = fit_preprocessing(schema, table, np.arange(len(table)))
    return preprocessing, preprocessing.transform(table).dense().numpy()


EXPECTED = {
    "age": [0, 1, 0.5, 0],
    "sex=F": [1, 0, 0, 1],
    "sex=M": [0, 1, 0, 0],
    "sex=Unknown": [0, 0, 1, 0],
    "icd:008": [1, 0, 0, 1],
    "icd:250": [1, 1, 1, 0],
    "drug:x": [1, 0, 0, 0],
    "drug:y": [1, 0, 1, 0],
    "drug:z": [0, 0, 0, 1],
}


def check(table: EhrTable) -> None:
    preprocessing, features = prepared(table)
    assert table.labels is not None and table.clients is not None
    assert table.labels.tolist() == [False, True, False, True]
    assert [table.patients.texts[n] for n in table.patients.numbers] == ["a", "b", "c", "a"]
    assert [table.clients.texts[n] for n in table.clients.numbers] == ["north", "south", "north", "north"]
    assert preprocessing.feature_names == list(EXPECTED)
    assert preprocessing.num_features == len(EXPECTED)
    assert np.allclose(features, np.array(list(EXPECTED.values())).T)


@pytest.mark.parametrize("name", ["table.csv", "table.csv.gz", "TABLE.CSV"])
def test_a_csv_becomes_features(name: str, tmp_path: Path) -> None:
    check(load_table(SCHEMA, written(tmp_path, name=name)))


def test_a_csv_is_read_block_by_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "_BLOCK_BYTES", 60)
    file = written(tmp_path)
    assert len(list(blocks.read_table(file, ["pid"]))) > 1
    check(load_table(SCHEMA, file))


def test_a_parquet_table_with_its_own_types(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "_BLOCK_ROWS", 3)
    columns = {
        "pid": pa.array(["a", "b", "c", "a"]).dictionary_encode(),
        "ward": ["north", "south", "north", "north"],
        "died": pa.array([0.0, 1.0, 0.0, 1.0]),
        "age": pa.array([20, 90, 55, 20]),
        "sex": pa.array(["F", "M", None, "F"]),
        "d1": ["250.83", "250", "V27", "008"],
        "d2": ["008.1", "?", "250.0", "E9"],
        "drugs": pa.array([["x", "y", "x"], None, ["y"], ["z"]], pa.list_(pa.string())),
    }
    pq.write_table(pa.table(columns), tmp_path / "table.parquet")
    check(load_table(SCHEMA, tmp_path / "table.parquet"))


def test_a_schema_of_truth_values(tmp_path: Path) -> None:
    columns = {"died": [True, False], "pid": [1, 2], "age": [1.5, 2.5]}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    schema = Schema.from_dict({"label": "died", "positive": True, "patient": "pid", "numeric": [{"column": "age"}]})
    table = load_table(schema, tmp_path / "t.parquet")
    assert table.labels is not None and table.labels.tolist() == [True, False]
    assert table.patients.texts == ["1", "2"]


def test_one_column_per_drug(tmp_path: Path) -> None:
    schema = dataclasses.replace(
        SCHEMA,
        codes=(Codes(name="drug", columns=("d1", "d2"), with_column=True, drop=("No",), min_count=1),),
    )
    text = "pid,ward,died,age,sex,d1,d2\na,n,0,1,F,No,Up\nb,n,1,2,F,Up,Up\n"
    assert prepared(load_table(schema, written(tmp_path, text)), schema)[0].schema.codes[0].vocabulary == (
        "d1=Up",
        "d2=Up",
    )


def test_rows_are_filtered(tmp_path: Path) -> None:
    filters = (Filter(column="sex", drop=("?",)), Filter(column="secret", min=2, max=4))
    table = load_table(dataclasses.replace(SCHEMA, filters=filters), written(tmp_path))
    assert [table.patients.texts[n] for n in table.patients.numbers] == ["b", "a"]
    keep = dataclasses.replace(SCHEMA, filters=(Filter(column="sex", keep=("F",)),))
    assert len(load_table(keep, written(tmp_path))) == 2


def test_fitting_looks_only_at_the_training_rows(tmp_path: Path) -> None:
    table = load_table(SCHEMA, written(tmp_path))
    fitted = fit_preprocessing(SCHEMA, table, np.array([1, 2]))
    assert (fitted.schema.numeric[0].min, fitted.schema.numeric[0].max) == (55, 90)
    assert fitted.schema.categorical[0].levels == ("M",)
    assert fitted.schema.codes[0].vocabulary == ("250",)
    features = fitted.transform(table).dense().numpy()
    assert features[:, 0].tolist() == [0, 1, 0, 0]  # what is below the bounds is cut off
    assert features[:, 2].tolist() == [1, 0, 1, 1]  # F was never seen: Unknown


def test_what_fitting_reveals_is_said_and_a_fixed_schema_reveals_nothing(tmp_path: Path) -> None:
    table = load_table(SCHEMA, written(tmp_path))
    fitted, _ = prepared(table)
    (sentence,) = fitted.revealed
    for part in ("smallest and largest value of 'age'", "levels of 'sex'", "2 codes of 'icd'", "3 codes of 'drug'"):
        assert part in sentence
    again = fit_preprocessing(fitted.schema, table, np.array([1]))
    assert again.schema == fitted.schema and again.revealed == ()


def test_new_patients_are_prepared_alike(tmp_path: Path) -> None:
    preprocessing, _ = prepared(load_table(SCHEMA, written(tmp_path)))
    text = "drugs,d2,d1,sex,age,pid\nz;never seen,,250.1,X,200,new\n"
    rows = load_new_patients(preprocessing.schema, written(tmp_path, text, "new.csv"))
    features = preprocessing.transform(rows).dense().numpy()
    names = np.array(preprocessing.feature_names)
    assert names[features[0] == 1].tolist() == ["age", "sex=Unknown", "icd:250", "drug:z"]
    with pytest.raises(DataError, match="fit it first"):
        Preprocessing(SCHEMA)


BAD = {
    "a missing column": ("sex,", "gender,", "missing column 'sex'"),
    "a missing number": ("0,20,F,250.83", "0,,F,250.83", "row 1, column 'age': no value; give fill"),
    "a text for a number": ("0,55,?", "0,old,?", "row 3, column 'age': not a number"),
    "a NaN": ("0,55,?", "0,nan,?", "row 3, column 'age': not a number"),
    "an infinite number": ("0,55,?", "0,inf,?", "row 3, column 'age': not a number"),
    "no label": ("b,south,1,", "b,south,?,", "row 2, column 'died': no value, but it is the label"),
    "no patient": ("b,south", ",south", "row 2, column 'pid': no value, so it is nobody's"),
    "no client": ("b,south", "b,?", "row 2, column 'ward': no value"),
    "a row too short": (",y,3\n", ",y\n", "row 3 has more or fewer cells than the header"),
    "a column twice": ("secret", "age", "the header has the column 'age' twice"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_tables_are_refused_with_row_and_column(what: str, tmp_path: Path) -> None:
    old, new, message = BAD[what]
    assert old in ROWS
    with pytest.raises(DataError, match=re.escape(message)) as caught:
        load_table(SCHEMA, written(tmp_path, ROWS.replace(old, new, 1)))
    assert "old" not in str(caught.value) and "south" not in str(caught.value)  # never a value


def test_other_things_that_are_no_table(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is empty"):
        load_table(SCHEMA, written(tmp_path, ""))
    with pytest.raises(DataError, match="no rows"):
        load_table(SCHEMA, written(tmp_path, ROWS.splitlines()[0] + "\n"))
    with pytest.raises(DataError, match="no rows that its filters keep"):
        load_table(dataclasses.replace(SCHEMA, filters=(Filter(column="sex", keep=("Q",)),)), written(tmp_path))
    with pytest.raises(DataError, match="none.csv: no such file"):
        load_table(SCHEMA, tmp_path / "none.csv")
    (tmp_path / "table.xlsx").write_bytes(b"PK")
    with pytest.raises(DataError, match="ends in .csv.*save the sheet as CSV"):
        load_table(SCHEMA, tmp_path / "table.xlsx")
    (tmp_path / "bad.csv.gz").write_bytes(gzip.compress(ROWS.encode())[:40])
    with pytest.raises(DataError, match="damaged"):
        load_table(SCHEMA, tmp_path / "bad.csv.gz")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 and nothing else")
    with pytest.raises(DataError, match="damaged"):
        load_table(SCHEMA, tmp_path / "bad.parquet")
    (tmp_path / "latin.csv").write_bytes(ROWS.replace("x; y", "é").encode("latin-1"))
    with pytest.raises(DataError, match="row 1, column 'drugs': not UTF-8"):
        load_table(SCHEMA, tmp_path / "latin.csv")
    with pytest.raises(DataError, match="row 1, column 'sex': not a number, but its filter has min or max"):
        load_table(dataclasses.replace(SCHEMA, filters=(Filter(column="sex", min=1),)), written(tmp_path))


def test_codes_read_as_floating_point_numbers(tmp_path: Path) -> None:
    """In a CSV the texts are there still; a Parquet column of doubles, or texts that end in .0, have lost zeros."""
    floats = dataclasses.replace(SCHEMA, codes=(Codes(name="icd", columns=("d1",), min_count=1),))
    text = "pid,ward,died,age,sex,d1\na,n,0,1,F,250.0\nb,n,1,2,F,8.0\n"
    with pytest.raises(DataError, match="row 1, column 'd1'.*all end in .0"):
        load_table(floats, written(tmp_path, text))
    cut = dataclasses.replace(SCHEMA, codes=(Codes(name="icd", columns=("d1",), min_count=1, cut_at_dot=True),))
    assert prepared(load_table(cut, written(tmp_path, text)), cut)[0].schema.codes[0].vocabulary == ("250", "8")
    columns = {
        "pid": ["a", "b"],
        "ward": ["n", "n"],
        "died": [0, 1],
        "age": [1, 2],
        "sex": ["F", "F"],
        "d1": [250.0, 8.5],
    }
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    with pytest.raises(DataError, match="column 'd1': codes stored as floating-point numbers"):
        load_table(cut, tmp_path / "t.parquet")
    columns["sex"] = [1.0, 1.5]
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    with pytest.raises(DataError, match="row 2, column 'sex': a fraction"):
        load_table(dataclasses.replace(SCHEMA, codes=()), tmp_path / "t.parquet")


def test_too_rare_codes_and_constant_numbers_are_refused(tmp_path: Path) -> None:
    table = load_table(SCHEMA, written(tmp_path))
    with pytest.raises(DataError, match="no code of 'icd' is in 50 or more training records: lower min_count"):
        fit_preprocessing(SCHEMA.with_min_count(50), table, np.arange(4))
    with pytest.raises(DataError, match="column 'age' has one value only"):
        fit_preprocessing(SCHEMA, table, np.array([0, 3]))
