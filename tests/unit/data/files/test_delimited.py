"""Separators and decimal commas: understood where they can mean one thing only, refused otherwise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from laconic.data.ehr.schema import Categorical, Numeric, Schema
from laconic.data.ehr.sources import load_new_patients, load_table
from laconic.data.files.frames import read_frame, records_of
from laconic.data.files.user_file import MIXED, UNCLEAR, Decimals, separator_in
from laconic.errors import DataError


@pytest.mark.parametrize(
    ("header", "found"),
    [("a,b,c", ","), ("a;b;c", ";"), ("a\tb", "\t"), ('"a;b",c', ","), ("alone", ","), ("size, cm;weight", ",")],
)
def test_the_separator_is_what_cuts_the_header_into_most_names(header: str, found: str) -> None:
    assert separator_in(header) == found


@pytest.mark.parametrize(
    ("texts", "separator", "plain", "wrong"),
    [
        (["3,5", "12", ""], ",", ["3.5", "12", ""], ""),
        (["3,5", "1,234"], ",", ["3.5", "1.234"], ""),  # one cell tells how the others are meant
        (["1,234", "12"], ",", None, UNCLEAR),
        (["1,234", "12"], ";", ["1.234", "12"], ""),  # commas are free for decimals there
        (["0,234"], ",", ["0.234"], ""),  # no thousands begin with a zero
        (["1,234,567"], ",", ["1,234,567"], ""),  # not a number to anybody
        (["3,5", "3.5"], ";", None, MIXED),
        (["-,5e3", "a,b"], ",", ["-.5e3", "a,b"], ""),
    ],
)
def test_a_comma_is_a_decimal_mark_where_it_can_be_nothing_else(
    texts: list[str], separator: str, plain: list[str] | None, wrong: str
) -> None:
    found, said = Decimals(separator).with_points("x", texts)
    assert said == wrong and list(found) == (texts if plain is None else plain)


def test_a_column_keeps_its_mark_from_block_to_block() -> None:
    decimals = Decimals()
    assert decimals.with_points("x", ["3,5"])[1] == ""
    assert decimals.with_points("x", ["1,234"]) == (["1.234"], "")
    assert decimals.with_points("x", ["3.5"])[1] == MIXED
    assert decimals.with_points("y", ["3.5"])[1] == ""  # another column has a mark of its own


SCHEMA = Schema(
    label="died",
    positive=("1",),
    numeric=(Numeric(column="lab", min=0, max=10, fill=5.0),),
    categorical=(Categorical(column="sex", levels=("F", "M")),),
)


def test_a_table_with_semicolons_and_commas_is_read_like_its_twin(tmp_path: Path) -> None:
    (tmp_path / "en.csv").write_text("lab,sex,died\n3.5,F,0\n,M,1\n1.234,F,0\n")
    (tmp_path / "de.csv").write_text("sex;died;lab\nF;0;3,5\nM;1;\nF;0;1,234\n")
    (tmp_path / "quoted.csv").write_text('lab,sex,died\n"3,5",F,0\n,M,1\n"1,234",F,0\n')
    wanted = load_table(SCHEMA, tmp_path / "en.csv")
    assert np.array_equal(wanted.numeric["lab"], np.float32([3.5, 5.0, 1.234]))
    for name in ("de.csv", "quoted.csv"):
        for found in (load_table(SCHEMA, tmp_path / name), load_new_patients(SCHEMA, tmp_path / name)):
            assert np.array_equal(found.numeric["lab"], wanted.numeric["lab"]), name


@pytest.mark.parametrize(
    ("cells", "words"), [(['"1,234"', "2"], UNCLEAR), (['"3,5"', "3.5"], MIXED)], ids=["unclear", "mixed"]
)
def test_what_may_mean_two_numbers_is_refused_in_one_line(cells: list[str], words: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("lab,sex\n" + "".join(f"{cell},F\n" for cell in cells))
    with pytest.raises(DataError, match=f"t.csv: row 1, column 'lab': not a number: {words}; write decimals") as caught:
        load_new_patients(SCHEMA, tmp_path / "t.csv")
    assert "\n" not in str(caught.value) and "3,5" not in str(caught.value)


def test_new_records_have_the_usual_gaps_and_training_records_only_those_of_the_schema(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("lab,sex,died\nNA,F,0\n2,,1\n")
    assert load_new_patients(SCHEMA, tmp_path / "t.csv").numeric["lab"].tolist() == [5.0, 2.0]
    with pytest.raises(DataError, match="row 1, column 'lab': not a number"):
        load_table(SCHEMA, tmp_path / "t.csv")


def test_a_table_without_a_schema_is_read_with_semicolons_and_commas_too(tmp_path: Path) -> None:
    (tmp_path / "en.csv").write_text("x,z,target\n3.5,1.25,0\n1,0.5,1\n")
    (tmp_path / "de.csv").write_text("x;z;target\n3,5;1,25;0\n1;0,5;1\n")
    english, german = (records_of(tmp_path / n, read_frame(tmp_path / n), "target")[0] for n in ("en.csv", "de.csv"))
    assert english.inputs.tolist() == german.inputs.tolist() == [[3.5, 1.25], [1.0, 0.5]]
    assert english.targets.tolist() == german.targets.tolist()
    (tmp_path / "mixed.csv").write_text("x;target\n3,5;0\n3.5;1\n")
    with pytest.raises(DataError, match="column 'x': not a number; write decimals with a point"):
        records_of(tmp_path / "mixed.csv", read_frame(tmp_path / "mixed.csv"), "target")
