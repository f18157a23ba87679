"""The user's own files: read when asked for, and every kind of damage reported by name."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from laconic.data.files import folder as module
from laconic.data.files.folder import FolderPopulation, load_table
from laconic.data.partition import ByColumn
from laconic.data.population import PooledPopulation, Population, Records, gather
from laconic.errors import ConfigError, DataError

pytestmark = pytest.mark.filterwarnings("error")

FRAME = pd.DataFrame({"age": [40, 50, 60], "dose": [0.5, 1.5, 2.5], "target": [0, 1, 1]})
INPUTS, TARGETS = FRAME[["age", "dose"]].to_numpy(np.float32), FRAME["target"].to_numpy()


@pytest.fixture(autouse=True)
def warn_always() -> Iterator[None]:
    """Otherwise torch warns of read-only arrays once, in whichever test comes first."""
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(False)


def write(path: Path) -> Path:
    """The same three records in the format that the name asks for."""
    if path.suffix == ".npz":
        np.savez(path, inputs=INPUTS, targets=TARGETS)
    elif path.suffix == ".parquet":
        FRAME.to_parquet(path)
    else:
        FRAME.to_csv(path, index=False)
    return path


@pytest.mark.parametrize("name", ["a.npz", "a.csv", "a.csv.gz", "a.parquet", "A.CSV"])
def test_reads_every_format(tmp_path: Path, name: str) -> None:
    write(tmp_path / name)
    population = FolderPopulation(tmp_path)
    assert isinstance(population, Population)
    records = population.records(0)
    assert records.inputs.dtype == torch.float32 and records.targets.dtype == torch.int64
    np.testing.assert_array_equal(records.inputs, INPUTS)
    np.testing.assert_array_equal(records.targets, TARGETS)
    assert population.names == [name.split(".")[0]] and population.size(0) == 3
    population.validate()


def test_npz_with_x_and_y_of_any_shape(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", x=np.ones((2, 1, 4, 4)), y=np.array([1, 0], dtype=np.uint8), extra=1)
    records = FolderPopulation(str(tmp_path)).records(0)
    assert records.inputs.shape == (2, 1, 4, 4) and records.targets.dtype == torch.int64


def test_clients_are_the_sorted_files(tmp_path: Path) -> None:
    for name in ("c.csv", "a.parquet", "b.npz", "test.csv.gz"):
        write(tmp_path / name)
    for name in ("README.txt", "._a.npz", "notes.csv.bak"):
        (tmp_path / name).write_text("not a client")
    (tmp_path / "subfolder").mkdir()
    population = FolderPopulation(tmp_path)
    assert population.names == ["a", "b", "c"] and population.num_clients == 3
    test = population.test_records()
    assert test is not None and test.targets.tolist() == TARGETS.tolist()
    assert gather(population, [2, 0, 1], torch.device("cpu")).inputs.shape == (3, 3, 2)
    assert population.to(torch.device("cpu")) is population
    for client in (-1, 3):
        with pytest.raises(IndexError, match="clients are 0 to 2"):
            population.size(client)


def test_no_test_file(tmp_path: Path) -> None:
    write(tmp_path / "a.npz")
    assert FolderPopulation(tmp_path).test_records() is None


def test_reads_lazily_and_remembers_sizes(tmp_path: Path) -> None:
    for name in "abc":
        write(tmp_path / f"{name}.npz")
    (tmp_path / "b.npz").write_bytes(b"damaged")
    population = FolderPopulation(tmp_path)
    assert population.records(2).inputs.shape == (3, 2)
    assert population.size(0) == 3
    assert population._layout is not None  # it keeps shapes and types, but no client's records
    assert population._layout.records.inputs.untyped_storage().nbytes() == 0
    (tmp_path / "c.npz").unlink()
    assert population.size(2) == 3
    with pytest.raises(DataError, match="b.npz: damaged"):
        population.size(1)


def test_another_target_column(tmp_path: Path) -> None:
    FRAME.rename(columns={"target": "died"}).to_csv(tmp_path / "a.csv", index=False)
    assert FolderPopulation(tmp_path, target="died").records(0).targets.tolist() == [0, 1, 1]
    with pytest.raises(
        DataError, match="no column 'target' .name the right one with --target.; its columns: age, dose, died"
    ):
        FolderPopulation(tmp_path).records(0)


def test_a_folder_called_like_a_partition_adds_no_column(tmp_path: Path) -> None:
    folder = tmp_path / "site=3"
    folder.mkdir()
    write(folder / "a.parquet")
    assert FolderPopulation(folder).records(0).inputs.shape == (3, 2)


def test_whole_and_true_false_features_are_floats(tmp_path: Path) -> None:
    pd.DataFrame({"n": [1, 2], "smokes": [True, False], "target": [True, False]}).to_csv(
        tmp_path / "a.csv", index=False
    )
    frame = pd.DataFrame({"n": [1, None], "smokes": [True, False], "target": [1, 0]}).convert_dtypes()
    frame.to_parquet(tmp_path / "b.parquet")
    population = FolderPopulation(tmp_path)
    assert population.records(0).inputs.tolist() == [[1.0, 1.0], [2.0, 0.0]]
    assert population.records(0).targets.tolist() == [1, 0]
    with pytest.raises(DataError, match="b.parquet: row 2, column 'n': missing"):
        population.records(1)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (FRAME.drop(columns="dose"), r"not the feature columns of a.csv: lacks \['dose'\], adds \[\]"),
        (FRAME.rename(columns={"dose": "mg"}), r"lacks \['dose'\], adds \['mg'\]"),
        (FRAME[["dose", "age", "target"]], "has them in another order"),
        (FRAME.assign(target=0.5), "targets are fractions, but whole in a.csv"),
    ],
)
def test_clients_that_differ(tmp_path: Path, changed: pd.DataFrame, message: str) -> None:
    write(tmp_path / "a.csv")
    changed.to_csv(tmp_path / "b.csv", index=False)
    with pytest.raises(DataError, match=f"b.csv: .*{message}"):
        FolderPopulation(tmp_path).records(1)


def test_shapes_that_differ(tmp_path: Path) -> None:
    write(tmp_path / "a.csv")
    np.savez(tmp_path / "b.npz", inputs=np.ones((2, 5)), targets=[0, 1])
    np.savez(tmp_path / "test.npz", inputs=np.ones((2, 2)), targets=[[0, 1], [1, 0]])
    population = FolderPopulation(tmp_path)
    with pytest.raises(DataError, match=r"b.npz: inputs of shape \(5,\) per record, but \(2,\) in a.csv"):
        population.records(1)
    with pytest.raises(DataError, match=r"test.npz: targets of shape \(2,\) per record, but \(\) in a.csv"):
        population.test_records()


def test_whole_numbers_among_real_ones_are_real(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", inputs=INPUTS, targets=np.array([0.5, 1.5, 2.0]))
    np.savez(tmp_path / "b.npz", inputs=INPUTS.astype(int), targets=np.array([1, 2, 3]))
    records = FolderPopulation(tmp_path).records(1)
    assert records.inputs.dtype == records.targets.dtype == torch.float32


def test_validate_reads_every_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "test"):
        write(tmp_path / f"{name}.npz")
    read: list[str] = []
    original = module.read_npz

    def counted(file: Path) -> Records:
        read.append(file.name)
        return original(file)

    monkeypatch.setattr(module, "read_npz", counted)
    population = FolderPopulation(tmp_path)
    population.validate()
    assert read == ["a.npz", "b.npz", "test.npz"]
    assert [population.size(0), population.size(1)] == [3, 3] and len(read) == 3


def test_folders_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no client files; expected one .npz"):
        FolderPopulation(tmp_path)
    with pytest.raises(DataError, match="nowhere: does not exist"):
        FolderPopulation(tmp_path / "nowhere")
    with pytest.raises(DataError, match="a.csv: is a file; a folder is expected"):
        FolderPopulation(write(tmp_path / "a.csv"))
    write(tmp_path / "a.npz")
    with pytest.raises(DataError, match="both a.csv and a.npz; keep one file per client"):
        FolderPopulation(tmp_path)


def test_without_pandas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a.csv")
    write(tmp_path / "b.npz")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(DataError, match="pip install pandas pyarrow"):
        FolderPopulation(tmp_path).records(0)
    (tmp_path / "a.csv").unlink()
    assert FolderPopulation(tmp_path).size(0) == 3


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet"])
def test_one_table_for_all_clients(tmp_path: Path, name: str) -> None:
    frame = FRAME.assign(hospital=["north", "south", "north"])
    path = tmp_path / name
    frame.to_parquet(path) if path.suffix == ".parquet" else frame.to_csv(path, index=False)
    records, column, names, _ = load_table(path, "target", "hospital")
    assert names == ("age", "dose")
    assert records.inputs.shape == (3, 2) and column.tolist() == ["north", "south", "north"]
    rows = ByColumn(column="hospital").rows(records.targets.numpy(), np.random.default_rng(0), column)
    population = PooledPopulation(records, rows)
    assert population.num_clients == 2
    assert population.records(0).inputs.tolist() == [[40.0, 0.5], [60.0, 2.5]]
    assert population.records(1).targets.tolist() == [1]


def test_bad_tables(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("x,who,target\n1,a,0\n2,,1\n")
    with pytest.raises(DataError, match="t.csv: row 2, column 'who': no value, so no client"):
        load_table(path, "target", "who")
    with pytest.raises(DataError, match="t.csv: no column 'whom' .did you mean 'who'.*its columns: x, who, target"):
        load_table(path, "target", "whom")
    with pytest.raises(ConfigError, match="both the target and the client column"):
        load_table(path, "who", "who")
    with pytest.raises(DataError, match="missing.csv: damaged.*No such file"):
        load_table(tmp_path / "missing.csv", "target", "who")
    with pytest.raises(DataError, match="t.npz: a table is expected"):
        load_table(tmp_path / "t.npz", "target", "who")
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(path.read_bytes())[:-10])
    with pytest.raises(DataError, match="t.csv.gz: damaged"):
        load_table(tmp_path / "t.csv.gz", "target", "who")
