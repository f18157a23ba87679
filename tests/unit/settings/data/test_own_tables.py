"""One table of the user's own: dealt out where it does not say whose a record is; refused for all columns at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from messy_table import write_messy_table

from laconic.data.federated import FederatedData
from laconic.errors import ConfigError, DataError
from laconic.options.sections import DataSection
from laconic.settings.build import settle
from laconic.settings.config import RunConfig
from laconic.settings.data.datasets import load_federation
from laconic.streams import Streams


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rows = "".join(f"{i % 7},{i},c{i % 5},{i % 2}\n" for i in range(300))
    (tmp_path / "stays.csv").write_text("x,z,site,died\n" + rows)
    return tmp_path / "stays.csv"


def load(path: Path, **options: object) -> FederatedData:
    section = DataSection(dataset=str(path), target="died", **options)  # type: ignore[arg-type]
    return load_federation(section, holdout=0, streams=Streams(0))


def numbers(table: Path) -> Path:
    table.write_text(table.read_text().replace(",c", ","))
    return table


def test_a_table_without_a_client_column_is_dealt_out(table: Path) -> None:
    numbers(table)
    assert load(table).population.num_clients == 24  # a tenth of 240 training records
    found = load(table, num_clients=12)
    assert found.population.num_clients == 12 and found.dealt and found.client == "a random shard of records"
    assert found.features == ("x", "z", "site")


@pytest.mark.parametrize("partition", ["dirichlet", "labels"])
def test_it_honours_the_partition(table: Path, partition: str) -> None:
    found = load(numbers(table), num_clients=6, partition=partition, alpha=0.05, labels_per_client=1)
    shares = [found.population.records(c).targets.float().mean().item() for c in range(6)]
    assert min(shares) < 0.3 and max(shares) > 0.7  # an iid division has 0.5 everywhere
    even = load(table, num_clients=6)
    assert all(0.3 < even.population.records(c).targets.float().mean().item() < 0.7 for c in range(6))


def test_with_a_client_column_it_goes_by_that_unless_a_number_is_given(table: Path) -> None:
    assert load(table, client_column="site").population.num_clients == 5
    dealt = load(table, client_column="site", num_clients=9)
    assert dealt.population.num_clients == 9 and dealt.dealt
    with pytest.raises(ConfigError, match="name the column with --client-column"):
        load(table, partition="column")
    with pytest.raises(ConfigError, match="leave out --num-clients"):
        load(table, partition="column", client_column="site", num_clients=3)


def test_texts_without_a_client_column_are_dealt_out_too(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("words,died\n" + "".join(f"word{i % 3} b,{i % 2}\n" for i in range(50)))
    assert load(tmp_path / "t.csv", text_column="words", num_clients=4).population.num_clients == 4


def test_text_and_gaps_of_all_columns_are_said_at_once_with_counts_and_the_way_out(tmp_path: Path) -> None:
    table = write_messy_table(tmp_path / "messy.csv", rows=50, columns=["age", "sex", "smoker", "died"])
    with pytest.raises(DataError) as caught:
        load(table)
    lines = str(caught.value).splitlines()
    assert lines[0].endswith("messy.csv: 4 columns to mend:")
    assert any("column 'sex': not a number, in 50 rows" in line for line in lines)
    assert any("'smoker': not a number (besides" in line for line in lines)
    assert "laconic schema init messy.csv --target died" in lines[-1]
    assert "> 89" not in str(caught.value) and "yes" not in str(caught.value)  # never a value


def test_a_schema_says_all_gaps_at_once(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b,died\n,x,1\n,2,0\n1,,\n")
    entries = "".join(f'[[numeric]]\ncolumn = "{name}"\n' for name in "ab")
    (tmp_path / "s.toml").write_text('label = "died"\npositive = 1\n' + entries)
    section = DataSection(dataset=str(tmp_path / "t.csv"), schema=str(tmp_path / "s.toml"))
    with pytest.raises(DataError) as caught:
        load_federation(section, holdout=0, streams=Streams(0))
    lines = str(caught.value).splitlines()
    assert lines[0].endswith("3 columns to mend:")
    assert "  - row 1, column 'a': no value, in 2 rows" in lines
    assert "  - row 3, column 'died': no value, but it is the label" in lines
    assert 'fill = "median"' in lines[-1] and "[[filter]]" in lines[-1]


def test_a_wrong_target_gets_a_suggestion(table: Path) -> None:
    with pytest.raises(DataError, match="no column 'dyed' .did you mean 'died'"):
        load_federation(DataSection(dataset=str(table), target="dyed"), holdout=0, streams=Streams(0))
    with pytest.raises(DataError, match="no column 'target' .name the right one with --target"):
        load_federation(DataSection(dataset=str(table)), holdout=0, streams=Streams(0))


def refusal(changes: dict[str, object]) -> str:
    with pytest.raises(ConfigError) as caught:
        settle(RunConfig().with_values(changes))
    return str(caught.value)


def test_a_file_that_is_not_there_is_said_as_such(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(table.parent)
    assert refusal({"data.dataset": "stay.csv"}) == (
        "--dataset stay.csv: no such file or folder; did you mean stays.csv?"
    )
    assert "there is no folder elsewhere" in refusal({"data.dataset": "elsewhere/stays.csv"})
    assert "unknown dataset 'digitz'" in refusal({"data.dataset": "digitz"})
    both = refusal({"data.dataset": "stay.csv", "data.schema": "s.toml", "data.public_dataset": "p.npz"})
    assert "--schema s.toml: no such file" in both and "--public-dataset p.npz: no such file" in both


def test_target_and_client_column_mean_nothing_beside_a_schema(table: Path) -> None:
    (table.parent / "s.toml").write_text('label = "died"\npositive = 1\n[[numeric]]\ncolumn = "x"\n')
    said = refusal(
        {
            "data.dataset": str(table),
            "data.schema": str(table.parent / "s.toml"),
            "data.target": "died",
            "data.client_column": "site",
        }
    )
    assert 'write label = "died"' in said and 'write client = "site"' in said
