"""A drafted schema: every column is accounted for, leaks and identifiers are left out, and a run takes it as it is."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from messy_table import write_messy_table

from laconic.cli.main import cli
from laconic.data.ehr.blocks import read_table
from laconic.data.ehr.draft import Draft, draft_schema, draft_toml
from laconic.data.ehr.look import look_at
from laconic.data.ehr.schema import Schema
from laconic.data.ehr.toml_values import toml
from laconic.errors import ConfigError, DataError
from laconic.options.sections import DataSection
from laconic.settings.data.datasets import load_federation
from laconic.streams import Streams


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_messy_table(tmp_path_factory.mktemp("draft") / "messy.csv")


@pytest.fixture(scope="module")
def draft(table: Path) -> Draft:
    return draft_schema(table)


def test_every_column_has_its_role(draft: Draft) -> None:
    roles = {finding.column: finding.role for finding in draft.findings}
    assert roles == {
        "id": "left out",
        "age": "numeric",
        "sex": "categorical",
        "income": "numeric",
        "smoker": "categorical",
        "visit": "left out",
        "ward_note": "left out",
        "icd": "codes",
        "discharge": "left out",
        "died": "label",
    }
    assert draft.schema.positive == ("yes",) and draft.schema.missing == ("", "NA")
    assert draft.schema.patient is None and draft.schema.client is None


def test_a_leak_of_the_label_is_left_out_with_the_reason(draft: Draft) -> None:
    found = {finding.column: finding for finding in draft.findings}
    assert found["discharge"].auroc is not None and found["discharge"].auroc > 0.99
    assert "tells the label (AUROC 1.00)" in found["discharge"].note
    assert "identifier" in found["id"].note and "dates" in found["visit"].note
    # Sabotaged twin: the same cells beside a label that they know nothing of are no leak.
    honest = found["sex"].auroc
    assert honest is not None and 0.5 <= honest < 0.8


def test_a_rare_level_that_is_seen_once_does_not_count_as_a_leak(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = "".join(f"n{i},{rng.integers(2)}\n" for i in range(200)) * 2  # every name twice, labels apart
    (tmp_path / "t.csv").write_text("name,died\n" + rows.replace("n1,", "n1,", 1))
    look = next(look for look in look_at(tmp_path / "t.csv", ",") if look.name == "name")
    labels = rng.random(400) < 0.5
    assert (look.auroc(labels) or 0) < 0.7


def test_gaps_and_odd_texts_and_extreme_values_are_seen(draft: Draft) -> None:
    entries = {entry.column: entry for entry in draft.schema.numeric}
    assert entries["age"].replace == {"> 89": 89.0} and entries["age"].gaps
    assert entries["income"].scale == "clipped" and (entries["income"].max or 0) < 1e6


def test_ranges_are_rounded_outwards_and_middles_fill_gaps(draft: Draft) -> None:
    """A range of two digits tells little, and people can judge it. No value needs the table to be filled in later."""
    for entry in draft.schema.numeric:
        assert entry.fixed and entry.min is not None and entry.max is not None and isinstance(entry.fill, float)
        step = 10.0 ** (math.floor(math.log10(entry.max - entry.min)) - 1)
        assert all(end / step == pytest.approx(round(end / step)) for end in (entry.min, entry.max))
        assert entry.fill == pytest.approx((entry.min + entry.max) / 2, rel=1e-4)


def test_the_file_says_what_was_read_off_the_table(draft: Draft, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(draft_toml(draft))
    schema = Schema.from_toml(tmp_path / "s.toml")
    assert schema == draft.schema
    assert not any(entry.fixed for entry in (*schema.categorical, *schema.codes))
    assert "min and max of every quantity, rounded to two digits" in schema.drafted
    text = (tmp_path / "s.toml").read_text()
    assert "not private" in text and "# seen: 18 to 89" in text
    assert '#   column = "discharge"' in text


def test_what_was_copied_from_cells_is_marked_and_listed(draft: Draft, tmp_path: Path) -> None:
    """A text such as "61 HIV+" in a column of ages becomes a key of `replace`: the owner must see that it does."""
    text = draft_toml(draft)
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    copied = [line for line in lines if line.startswith(("replace =", "drop =", "missing =", "positive ="))]
    assert copied and all(line.endswith("# drafted: from your table") for line in copied)
    assert '"> 89"' in "".join(copied)
    assert {"positive", "replace of age", "which columns are used, and as what"} <= set(draft.schema.drafted)
    cells = {"> 89", "?"}
    assert not any(cell in name for cell in cells for name in draft.schema.drafted)
    known = dataclasses.replace(draft.schema, drafted=())
    (tmp_path / "known.toml").write_text(known.to_toml())
    assert Schema.from_toml(tmp_path / "known.toml").drafted == ()


def test_what_the_owner_said_is_not_called_drafted(table: Path, draft: Draft) -> None:
    said = draft_schema(table, target=draft.schema.label, positive=draft.schema.positive)
    assert "positive" not in said.schema.drafted
    assert f"positive = {toml(said.schema.positive)}\n" in draft_toml(said)


def test_a_run_takes_the_draft_and_its_statement_names_what_was_fitted(
    draft: Draft, table: Path, tmp_path: Path
) -> None:
    (tmp_path / "s.toml").write_text(draft_toml(draft))
    section = DataSection(dataset=str(table), schema=str(tmp_path / "s.toml"), num_clients=7)
    data = load_federation(section, holdout=0, streams=Streams(0))
    assert data.population.num_clients == 7 and data.preprocessing is not None
    drafted, said = data.preprocessing.revealed
    assert "drafted from the clients' own table" in drafted and "replace of age" in drafted
    assert "> 89" not in drafted  # what stood in a cell
    assert "min and max of every quantity" in drafted and "levels of 'sex'" in said
    assert "value of 'age'" not in said and "percentile" not in said and "median" not in said  # a run reads none again
    assert any("names no patient" in note for note in data.notes)
    assert data.preprocessing.schema.fixed
    skewed = DataSection(dataset=str(table), schema=str(tmp_path / "s.toml"), num_clients=7, partition="dirichlet")
    assert load_federation(skewed, holdout=0, streams=Streams(0)).population.num_clients == 7


def test_patients_and_hospitals_are_found_by_name_and_keep_their_rows_together(tmp_path: Path) -> None:
    rows = "".join(f"p{i // 2},h{i % 3},{i * 7 % 13},{int(i % 5 == 0)}\n" for i in range(60))
    (tmp_path / "t.csv").write_text("patient_id,hospital,x,died\n" + rows)
    schema = draft_schema(tmp_path / "t.csv").schema
    assert (schema.patient, schema.client, schema.label) == ("patient_id", "hospital", "died")
    with pytest.raises(ConfigError, match="leave patient out of the schema"):
        (tmp_path / "s.toml").write_text(schema.to_toml())
        section = DataSection(dataset=str(tmp_path / "t.csv"), schema=str(tmp_path / "s.toml"), partition="labels")
        load_federation(section, holdout=0, streams=Streams(0))


def test_semicolons_parquet_and_rows_without_a_label(tmp_path: Path) -> None:
    rows = "".join(f"{i};{'' if i == 3 else i % 2};{i * 1.5}\n" for i in range(40))
    (tmp_path / "t.csv").write_text("x;died;z\n" + rows)
    draft = draft_schema(tmp_path / "t.csv")
    assert draft.schema.separator == ";" and draft.rows == 39 and draft.schema.filters[0].drop == ("",)
    columns = {"x": [i / 3 for i in range(40)], "died": [i % 2 == 0 for i in range(40)], "words": [["a"]] * 40}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    draft = draft_schema(tmp_path / "t.parquet")
    assert draft.schema.positive == ("true",) and [f.role for f in draft.findings] == ["numeric", "label", "left out"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"target": "dyed"}, "--target unknown column 'dyed': did you mean 'died'?"),
        ({"target": "icd"}, "75 values that are no numbers: say which of them counts as positive, --positive VALUE"),
        ({"target": "died", "positive": ("Yes",)}, "no value 'Yes'; did you mean 'yes'"),
        ({"target": "died", "positive": ("yes", "no")}, "every value"),
        ({"patient": "pid"}, "--patient unknown column 'pid'"),
        ({"client": "hospital"}, "--client unknown column 'hospital'"),
        ({"scale": "log"}, "unknown scale 'log'"),
    ],
)
def test_what_cannot_be_drafted_is_said_with_the_way_out(table: Path, options: dict[str, object], words: str) -> None:
    with pytest.raises((DataError, ConfigError), match=words):
        draft_schema(table, **options)  # type: ignore[arg-type]


def test_a_table_whose_label_cannot_be_guessed_names_the_columns_with_two_values(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b,c\n1,0,x\n0,1,y\n1,1,z\n")
    with pytest.raises(DataError, match="--target NAME; columns with two values: a, b"):
        draft_schema(tmp_path / "t.csv")
    (tmp_path / "empty.csv").write_text("a,b\n")
    with pytest.raises(DataError, match="no rows below the header"):
        draft_schema(tmp_path / "empty.csv")
    (tmp_path / "ids.csv").write_text("id,died\n1,0\n2,1\n3,1\n")
    with pytest.raises(DataError, match="no column to predict 'died' from"):
        draft_schema(tmp_path / "ids.csv")


def test_the_command_writes_the_file_once_and_says_what_is_not_private(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "s.toml"
    arguments = ["schema", "init", str(table), "--target", "died", "--out", str(out)]
    done = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    assert done.exit_code == 0 and "Not private" in done.output and "--schema" in done.output
    with pytest.raises(DataError, match="is there already"):
        CliRunner().invoke(cli, arguments, standalone_mode=False, catch_exceptions=False)
    done = CliRunner().invoke(cli, [*arguments, "--force", "--json"], catch_exceptions=False)
    found = json.loads(done.output)
    assert found["rows"] == 600 and {c["column"] for c in found["columns"] if c["missing"]} == {"age", "smoker"}


def test_one_level_that_gives_the_label_away_is_a_leak(tmp_path: Path) -> None:
    rows = "".join(
        f"{'gone' if i % 10 == 0 else 'here'},{i * 7 % 13},{int(i % 10 == 0 or i % 4 == 1)}\n" for i in range(400)
    )
    (tmp_path / "t.csv").write_text("unit,x,died\n" + rows)
    found = {finding.column: finding for finding in draft_schema(tmp_path / "t.csv").findings}
    assert found["unit"].role == "left out" and (found["unit"].auroc or 0) < 0.9
    assert "100% of its 40 rows with 'gone' are positive" in found["unit"].note


def test_a_column_has_one_role_and_several_missing_columns_are_named_together(table: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'sex' has two roles"):
        draft_schema(table, target="died", patient="sex", client="sex")
    (tmp_path / "t.csv").write_text("age,died\n1,1\n")
    with pytest.raises(
        DataError, match=r"missing columns 'agee' \(did you mean 'age'\?\), 'sex'; the table has: age, died"
    ):
        next(read_table(tmp_path / "t.csv", ["agee", "sex"]))


def test_there_may_be_more_clients_than_rows_with_the_outcome(draft: Draft, table: Path, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(draft_toml(draft))
    section = DataSection(dataset=str(table), schema=str(tmp_path / "s.toml"), num_clients=450)
    population = load_federation(section, holdout=0, streams=Streams(0)).population
    assert population.num_clients == 450 and {population.size(c) for c in range(450)} == {1, 2}
    with pytest.raises(ConfigError, match="--num-clients 481 .* is more than the 480 patients or rows"):
        load_federation(dataclasses.replace(section, num_clients=481), holdout=0, streams=Streams(0))
