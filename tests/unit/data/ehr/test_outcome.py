"""What a schema predicts: yes or no, one of several classes, or a quantity between public bounds."""

from __future__ import annotations

import dataclasses
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris

from laconic.data.ehr.draft import draft_schema, draft_toml
from laconic.data.ehr.outcome import Outcome, Quantity
from laconic.data.ehr.schema import Numeric, Schema
from laconic.data.ehr.sources import load_table
from laconic.data.meaning import Meaning
from laconic.errors import ConfigError, DataError
from laconic.federation.node.own_records import own_records
from laconic.options.sections import DataSection
from laconic.settings.data.datasets import load_federation
from laconic.streams import Streams

AGE = (Numeric(column="age", min=0, max=100, fill=50.0),)
DAYS = Schema(label="days", low=0, high=10, numeric=AGE)
KIND = Schema(label="kind", classes=("b", "a", "c"), numeric=AGE)


def test_a_quantity_is_scaled_by_its_bounds_and_restored() -> None:
    bounds = Quantity(-5, 15)
    assert bounds.scaled(np.array([-5.0, 5.0, 15.0, 25.0])).tolist() == [-1, 0, 1, 2]
    assert bounds.restored(torch.tensor([-1.0, 0.0, 2.0])).tolist() == [-5, 5, 25]
    assert bounds.half == 10


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("", "say what is predicted of 'days', one of three"),
        ("positive = 1\nlow = 0\nhigh = 1", "one of three"),
        ('classes = ["a", "b"]\npositive = "a"', "one of three"),
        ("low = 0", "give low and high"),
        ("low = 3\nhigh = 3", "low 3 must be below high 3"),
        ("low = 0\nhigh = 1\nprevalence = 0.1", "goes with positive"),
        ("positive = 1\nprevalence = 1.5", "prevalence must be"),
        ('classes = ["a"]', "two values of the label, or more"),
        ('classes = ["a", "b", "a"]', "'a' is there twice"),
        ("low = nan\nhigh = 3", "low must be a finite number"),
    ],
)
def test_a_schema_predicts_one_thing(key: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(f'label = "days"\n{key}\n[[numeric]]\ncolumn = "age"\n')
    with pytest.raises(ConfigError, match=words):
        Schema.from_toml(tmp_path / "s.toml")


@pytest.mark.parametrize("schema", [DAYS, KIND])
def test_it_is_written_and_read_back(schema: Schema, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(schema.to_toml())
    assert Schema.from_toml(tmp_path / "s.toml") == schema


def test_classes_are_numbered_as_the_schema_says(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("age,kind\n1,a\n2,b\n3,c\n")
    assert load_table(KIND, tmp_path / "t.csv").labels.tolist() == [1, 0, 2]  # type: ignore[union-attr]
    (tmp_path / "t.csv").write_text("age,kind\n1,a\n2,d\n3,\n")
    with pytest.raises(DataError) as caught:
        load_table(KIND, tmp_path / "t.csv")
    assert "row 2, column 'kind': a value that is none of the schema's classes" in str(caught.value)
    assert "row 3, column 'kind': no value, but it is the label" in str(caught.value)


def test_quantities_are_read_like_other_numbers(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("age;days\n1;2,5\n2;12\n")
    labels = load_table(DAYS, tmp_path / "t.csv").labels
    assert labels is not None and labels.tolist() == [2.5, 12]
    assert DAYS.outcome.targets(labels).tolist() == [-0.5, 1.0]
    # Only in training is a value cut to the bounds: a test that hid it would flatter bounds that are too narrow.
    assert DAYS.outcome.targets(labels, cut=np.array([True, False])).tolist() == [-0.5, pytest.approx(1.4)]
    (tmp_path / "t.csv").write_text("age,days\n1,\n2,word\n")
    with pytest.raises(DataError, match="row 1, column 'days': no value, but it is the label") as caught:
        load_table(DAYS, tmp_path / "t.csv")
    assert "row 2, column 'days': not a number" in str(caught.value)


def test_machines_must_agree_on_bounds_and_classes() -> None:
    others = [
        dataclasses.replace(DAYS, high=11.0),
        dataclasses.replace(KIND, classes=("a", "b", "c")),
        dataclasses.replace(KIND, classes=("b", "a", "c", "d")),
    ]
    digests = {Meaning.of_schema(schema).digest for schema in (DAYS, KIND, *others)}
    assert len(digests) == 5
    assert set(Outcome("died", positive=("1",)).to_meaning()) == {"label", "positive"}  # as it always was


@pytest.mark.parametrize(("schema", "classes"), [(DAYS, 1), (KIND, 3)])
def test_nodes_have_the_targets_of_a_simulation(schema: Schema, classes: int, tmp_path: Path) -> None:
    rows = [f"{n},{n % 13},{'abc'[n % 3]}" for n in range(40)]
    (tmp_path / "t.csv").write_text("\n".join(["age,days,kind", *rows]) + "\n")
    (tmp_path / "s.toml").write_text(dataclasses.replace(schema, test_fraction=0.0).to_toml())
    section = DataSection(dataset=str(tmp_path / "t.csv"), schema=str(tmp_path / "s.toml"), num_clients=1)
    data = load_federation(section, holdout=0, streams=Streams(0))
    held = own_records({"data": str(tmp_path / "t.csv"), "schema": str(tmp_path / "s.toml")}).records
    simulated = data.population.records(0).targets
    assert data.num_classes == classes and simulated.dtype == held.targets.dtype
    assert sorted(simulated.tolist()) == sorted(held.targets.tolist())
    assert data.classes == (KIND.classes if classes == 3 else ())
    with pytest.raises((ConfigError, DataError), match="Dirichlet") if classes == 1 else nullcontext():
        skewed = dataclasses.replace(section, partition="dirichlet", num_clients=3)
        load_federation(skewed, holdout=0, streams=Streams(0))


def made(path: Path, label: str, values: list[str], extra: dict[str, list[str]] | None = None) -> Path:
    rng = np.random.default_rng(0)
    columns = {"x": [f"{v:.3f}" for v in rng.random(len(values))], label: values, **(extra or {})}
    lines = [",".join(columns), *(",".join(row) for row in zip(*columns.values(), strict=True))]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["0", "1"] * 50, "yes-no"),
        (["home", "ward", "icu"] * 40, "classes"),
        (["0", "2", "1"] * 40, "classes"),
        ([str(n % 30) for n in range(120)], "quantity"),
        ([f"{n % 3}.5" for n in range(120)], "quantity"),
    ],
)
def test_the_kind_follows_from_the_values_and_can_be_said(values: list[str], kind: str, tmp_path: Path) -> None:
    draft = draft_schema(made(tmp_path / "t.csv", "outcome", values), target="outcome")
    assert draft.kind == kind
    (tmp_path / "s.toml").write_text(draft_toml(draft))
    assert Schema.from_toml(tmp_path / "s.toml") == draft.schema
    assert {"yes-no": "positive", "classes": "classes", "quantity": "low and high"}[kind] in draft.schema.drafted


def test_whole_numbers_in_a_column_that_is_called_like_codes_are_classes(tmp_path: Path) -> None:
    values = [str(n % 30) for n in range(120)]
    assert draft_schema(made(tmp_path / "t.csv", "ward_id", values), target="ward_id").kind == "classes"
    assert draft_schema(made(tmp_path / "t.csv", "days", values), target="days").kind == "quantity"


def test_classes_are_in_an_order_that_tells_no_counts_and_bounds_are_round(tmp_path: Path) -> None:
    table = made(tmp_path / "t.csv", "y", ["10", "9", "9", "2"] * 30)
    assert draft_schema(table, target="y").schema.classes == ("2", "9", "10")
    as_quantity = draft_schema(table, target="y", kind="quantity").schema
    assert (as_quantity.low, as_quantity.high) == (2, 10)
    lengths = draft_schema(made(tmp_path / "t.csv", "y", [f"{v}" for v in np.linspace(-3.2, 47.1, 99)]), target="y")
    assert (lengths.schema.low, lengths.schema.high) == (-10, 50)
    with pytest.raises(DataError, match="holds texts, no quantity"):
        draft_schema(made(tmp_path / "t.csv", "y", ["a", "b", "c"] * 9), target="y", kind="quantity")
    with pytest.raises(ConfigError, match="--positive is for yes or no"):
        draft_schema(table, target="y", kind="quantity", positive=("2",))


def test_what_tells_all_classes_is_a_leak_and_what_tells_one_is_not(tmp_path: Path) -> None:
    flowers = load_iris()
    kinds = [str(flowers.target_names[n]) for n in flowers.target]
    columns = {name: [str(v) for v in flowers.data[:, n]] for n, name in enumerate(["sl", "sw", "pl", "pw"])}
    codes = {"code": [str(n) for n in flowers.target]}
    draft = draft_schema(made(tmp_path / "t.csv", "kind", kinds, columns | codes), target="kind")
    roles = {finding.column: finding.role for finding in draft.findings}
    assert roles["code"] == "left out"
    assert all(roles[name] == "numeric" for name in columns)  # petals tell one kind from the others without an error
