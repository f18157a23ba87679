"""Damaged files of the user's own: refused by name, with row and column where there are any, and no values shown."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from laconic.data.files.folder import FolderPopulation
from laconic.errors import DataError

pytestmark = pytest.mark.filterwarnings("error")

FRAME = pd.DataFrame({"age": [40, 50, 60], "dose": [0.5, 1.5, 2.5], "target": [0, 1, 1]})
INPUTS, TARGETS = FRAME[["age", "dose"]].to_numpy(np.float32), FRAME["target"].to_numpy()


def write(path: Path) -> Path:
    """The same three records in the format that the name asks for."""
    if path.suffix == ".npz":
        np.savez(path, inputs=INPUTS, targets=TARGETS)
    elif path.suffix == ".parquet":
        FRAME.to_parquet(path)
    else:
        FRAME.to_csv(path, index=False)
    return path


BAD_CSV = {
    "empty file": ("", "a.csv: damaged, empty"),
    "header only": ("x,target\n", "a.csv: no rows below the header"),
    "text": ("x,name,target\n1,2,0\n1,Smith,0\n", "a.csv: row 2, column 'name': not a number"),
    "text as target": ("x,target\n1,yes\n", "a.csv: row 1, column 'target': not a number"),
    "missing": ("x,z,target\n1,2,0\n1,,0\n", "a.csv: row 2, column 'z': missing, NaN or infinite"),
    "cut off": ("x,z,target\n1,2,0\n1,2", "a.csv: row 2, column 'target': missing"),
    "infinite": ("x,target\n1,0\n2,0\ninf,0\n", "a.csv: row 3, column 'x': missing, NaN or infinite"),
    "too large": ("x,target\n1,0\n1e300,0\n", "a.csv: NaN or infinity in the inputs of record 1"),
    "surplus in all rows": ("x,target\n1,2,0\n1,2,0\n", "a.csv: row 1 has more values than the header"),
    "surplus in one row": ("x,target\n1,0\n1,0,5\n", "a.csv: damaged.*line 3"),
    "only the target": ("target\n1\n", "a.csv: no columns besides the target"),
    "no target": ("x,z\n1,2\n", "a.csv: no column 'target'"),
    "binary": ("\udcff\udcfe\udc80x", "a.csv: damaged"),
}


@pytest.mark.parametrize(("text", "message"), BAD_CSV.values(), ids=BAD_CSV)
def test_bad_csv(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.csv").write_text(text, errors="surrogateescape")
    with pytest.raises(DataError, match=message) as caught:
        FolderPopulation(tmp_path).records(0)
    assert "Smith" not in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"features": INPUTS, "targets": TARGETS}, r"holds \['features', 'targets'\]; expected arrays 'inputs'"),
        ({"inputs": INPUTS, "targets": TARGETS[:2]}, "3 inputs but 2 targets"),
        ({"inputs": INPUTS * np.nan, "targets": TARGETS}, "NaN or infinity in the inputs of record 0"),
        ({"inputs": INPUTS[:0], "targets": TARGETS[:0]}, "has no records"),
        ({"inputs": INPUTS.astype(str), "targets": TARGETS}, "'inputs' holds <U32, not numbers"),
        ({"inputs": INPUTS * 1j, "targets": TARGETS}, "'inputs' holds complex64"),
        ({"inputs": INPUTS, "targets": np.array([{}, 1, 2])}, "Python objects, and a pickle is never opened"),
    ],
)
def test_bad_npz(tmp_path: Path, arrays: dict[str, np.ndarray], message: str) -> None:
    np.savez(tmp_path / "a.npz", **arrays)  # type: ignore[arg-type]
    with pytest.raises(DataError, match=f"a.npz: .*{message}"):
        FolderPopulation(tmp_path).records(0)


def test_an_array_alone_is_no_npz(tmp_path: Path) -> None:
    with (tmp_path / "a.npz").open("wb") as file:
        np.save(file, INPUTS)
    with pytest.raises(DataError, match="a.npz: damaged, empty or not a .npz file"):
        FolderPopulation(tmp_path).records(0)


def test_a_pipe_is_refused_before_anybody_waits_for_it(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv.gz", "c.npz", "d.parquet"):
        os.mkfifo(tmp_path / name)
    with pytest.raises(DataError, match="4 bad files") as caught:
        FolderPopulation(tmp_path).validate()
    assert str(caught.value).count("is a pipe or a device") == 4


def test_links_are_followed_and_dead_ones_named(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    write(tmp_path / "elsewhere.csv")
    (tmp_path / "data/a.csv").symlink_to(tmp_path / "elsewhere.csv")
    assert FolderPopulation(tmp_path / "data").records(0).targets.tolist() == [0, 1, 1]
    (tmp_path / "elsewhere.csv").unlink()
    with pytest.raises(DataError, match="a.csv: damaged.*No such file"):
        FolderPopulation(tmp_path / "data").records(0)


def test_files_that_may_not_be_read_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.csv", "b.npz", "c.parquet"):
        write(tmp_path / name)

    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    population = FolderPopulation(tmp_path)
    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(DataError, match="3 bad files") as caught:
        population.validate()
    assert str(caught.value).count("Permission denied") == 3
    monkeypatch.setattr(Path, "iterdir", denied)
    with pytest.raises(DataError, match="cannot be read .Permission denied"):
        FolderPopulation(tmp_path)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").mkdir()
    with pytest.raises(DataError, match="a.parquet: damaged.*directory"):
        FolderPopulation(tmp_path).records(0)


@pytest.mark.parametrize("name", ["a.npz", "a.csv.gz", "a.parquet"])
def test_truncated_files(tmp_path: Path, name: str) -> None:
    whole = write(tmp_path / name).read_bytes()
    for end in [0, 1, 2, *range(10, len(whole), 97), len(whole) - 9, len(whole) - 1]:
        (tmp_path / name).write_bytes(whole[:end])
        with pytest.raises(DataError, match=f"{name}: damaged"):
            FolderPopulation(tmp_path).records(0)


@pytest.mark.parametrize("name", ["a.npz", "a.csv.gz", "a.parquet"])
def test_flipped_bytes_never_escape_as_another_error(tmp_path: Path, name: str) -> None:
    whole, refused = write(tmp_path / name).read_bytes(), 0
    for at in np.random.default_rng(4).integers(len(whole), size=150):
        (tmp_path / name).write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            FolderPopulation(tmp_path).records(0)
        except DataError as error:
            refused += 1
            assert name in str(error)
    assert refused > 30


def test_dates_are_no_numbers(tmp_path: Path) -> None:
    FRAME.assign(day=pd.Timestamp("2020-01-01")).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(DataError, match="a.parquet: column 'day': not a number"):
        FolderPopulation(tmp_path).records(0)


def test_validate_lists_every_bad_file(tmp_path: Path) -> None:
    for number in range(30):
        write(tmp_path / f"c{number:02}.csv")
    (tmp_path / "c00.csv").write_bytes(b"")
    (tmp_path / "c07.csv").write_text("age,dose,target\n1,x,0\n")
    np.savez(tmp_path / "test.npz", inputs=np.ones((1, 3)), targets=[1])
    population = FolderPopulation(tmp_path)
    with pytest.raises(DataError) as caught:
        population.validate()
    lines = str(caught.value).splitlines()
    assert lines[0] == f"{tmp_path}: 3 bad files" and len(lines) == 4
    assert "c00.csv: damaged, empty" in lines[1]
    assert "c07.csv: row 1, column 'dose': not a number" in lines[2]
    assert "test.npz: inputs of shape (3,) per record, but (2,) in c01.csv" in lines[3]


def test_validate_lists_the_first_twenty(tmp_path: Path) -> None:
    for number in range(23):
        (tmp_path / f"{number:02}.npz").write_bytes(b"")
    with pytest.raises(DataError, match="23 bad files") as caught:
        FolderPopulation(tmp_path).validate()
    lines = str(caught.value).splitlines()
    assert len(lines) == 22 and lines[20].strip().startswith(str(tmp_path / "19.npz")) and "3 more" in lines[21]
