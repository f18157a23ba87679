"""A schema says what it means, and a mistake in it is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laconic.data.ehr.schema import Categorical, Codes, Filter, Numeric, Schema
from laconic.data.ehr.sources import shipped_schema
from laconic.data.ehr.synthetic import synthetic_schema
from laconic.errors import ConfigError

GOOD = """
label = "died"
positive = 1
patient = "pid"
client = "ward"

[[numeric]]
column = "age"
replace = {"> 89" = 90}

[[categorical]]
column = "sex"

[[codes]]
name = "icd"
columns = ["d1", "d2"]
cut_at_dot = true
min_count = 2

[[filter]]
column = "kind"
drop = "elective"
"""


def parse(text: str, tmp_path: Path) -> Schema:
    file = tmp_path / "schema.toml"
    file.write_text(text, encoding="utf-8")
    return Schema.from_toml(file)


def test_a_schema_is_read(tmp_path: Path) -> None:
    schema = parse(GOOD, tmp_path)
    assert schema.positive == ("1",)
    assert schema.columns == ["died", "pid", "ward", "age", "sex", "d1", "d2", "kind"]
    assert schema.numeric[0].replace == {"> 89": 90.0}
    assert schema.filters == (Filter(column="kind", drop=("elective",)),)
    assert not schema.fixed


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("label =", "lable =", "unknown key 'lable': did you mean 'label'"),
        ('label = "died"\n', "", "the key 'label' is missing"),
        ("[[codes]]", "[[code]]", "unknown key 'code': did you mean 'codes'"),
        ("cut_at_dot", "cut_at_dots", r"\[\[codes\]\] number 1: unknown key 'cut_at_dots': did you mean 'cut_at_dot'"),
        ("min_count = 2", "min_count = 0", r"\[\[codes\]\] number 1: min_count must be a whole number that is 1"),
        ("cut_at_dot = true", 'cut_at_dot = "yes"', "cut_at_dot must be true or false, not 'yes'"),
        ('column = "age"', "column = 7", r"\[\[numeric\]\] number 1: column must be text, not 7"),
        ('column = "age"', "min = 3", "the key 'column' is missing"),
        ('column = "age"', 'column = "age"\nmin = 5\nmax = 5', "min 5 must be below max 5"),
        ('column = "age"', 'column = "died"', "column 'died' is the label, so it must not be a feature"),
        ('column = "age"', 'column = "pid"', "column 'pid' is the patient, so it must not be a feature"),
        ('column = "age"', 'column = "ward"', "column 'ward' is the client, so it must not be a feature"),
        ('column = "age"', 'column = "d2"', "feature columns: 'd2' is there twice"),
        ('client = "ward"', 'client = "ward"\nvirtual_hospitals = 4', "either client .* or virtual_hospitals"),
        ('client = "ward"', "test_fraction = 1.5", "test_fraction must be at least 0 and below 1"),
        ('client = "ward"', 'separator = "||"', "separator must be one character"),
        ("[[filter]]", "[filter]", "write \\[\\[filter\\]\\] once for every entry"),
        ('drop = "elective"', "", "a filter needs keep, drop, min or max"),
        ('label = "died"', 'label = "died', "not valid TOML"),
        ("positive = 1", "positive = []", "say what is predicted of .died., one of three"),
        ("positive = 1", "positive = 1.5", "positive must be a text or a list of texts, not 1.5"),
    ],
)
def test_mistakes_are_named(old: str, new: str, message: str, tmp_path: Path) -> None:
    assert old in GOOD
    with pytest.raises(ConfigError, match=message):
        parse(GOOD.replace(old, new, 1), tmp_path)


def test_a_schema_without_features_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing to predict from"):
        parse('label = "a"\npositive = 1\npatient = "p"\n', tmp_path)
    with pytest.raises(ConfigError, match="cannot read the schema"):
        Schema.from_toml(tmp_path / "none.toml")


texts = st.text(st.characters(blacklist_categories=("Cs",)), min_size=1, max_size=8)
names = st.lists(texts, min_size=1, max_size=4, unique=True).map(tuple)
numbers = st.floats(-1e6, 1e6).map(float)


@given(columns=st.lists(texts, min_size=6, max_size=6, unique=True), levels=names, words=names, low=numbers)
def test_what_is_written_is_read_back(
    columns: list[str], levels: tuple[str, ...], words: tuple[str, ...], low: float
) -> None:
    label, patient, client, number, level, code = columns
    schema = Schema(
        label=label,
        positive=levels,
        patient=patient,
        client=client,
        missing=words,
        numeric=(Numeric(column=number, min=low, max=low + 1, replace={words[0]: low}),),
        categorical=(Categorical(column=level, levels=levels),),
        codes=(Codes(name=code, columns=(code,), delimiter=words[0], vocabulary=words, min_count=3),),
        filters=(Filter(column=label, keep=levels, min=low),),
    )
    import tomllib

    assert Schema.from_dict(tomllib.loads(schema.to_toml())) == schema
    assert schema.fixed


TRAPS = {
    "diabetes130": {"discharge_disposition_id", "readmitted", "encounter_id", "patient_nbr"},
    "eicu_demo": {
        "hospitaldischargestatus",
        "unitdischargestatus",
        "hospitaldischargelocation",
        "unitdischargelocation",
        "hospitaldischargeoffset",
        "unitdischargeoffset",
        "actualhospitalmortality",
        "patientunitstayid",
        "patienthealthsystemstayid",
        "uniquepid",
        "hospitalid",
    },
}


@pytest.mark.parametrize("name", TRAPS)
def test_no_trap_is_a_feature_of_the_shipped_schemas(name: str) -> None:
    schema = shipped_schema(name)
    assert not TRAPS[name] & set(schema.feature_columns)
    assert all(entry.fixed for entry in (*schema.numeric, *schema.categorical))


def test_the_made_table_leaves_only_codes_to_be_fitted() -> None:
    assert [entry.columns for entry in synthetic_schema().features if not entry.fixed] == [("codes",)]
