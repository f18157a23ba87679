"""The user's own data: a folder with one file per client, read when its client is asked for; or one table.

Messages name files, rows and columns but never values: the values are what is to be kept private.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from laconic.data.files.frames import first_bad, need_column, read_frame, records_of
from laconic.data.files.npz import read_arrays, read_npz
from laconic.data.files.user_file import SUFFIXES, listed, named, refused, suffix
from laconic.data.inputs import dense
from laconic.data.population import Records
from laconic.errors import ConfigError, DataError, one_line

if TYPE_CHECKING:
    import pandas as pd

_MOST_LISTED = 20


class _Content(NamedTuple):
    """What a file holds; `columns` are the names of the features, if it is a table."""

    path: Path
    records: Records
    columns: tuple[str, ...] | None
    patients: np.ndarray | None = None

    def layout(self) -> _Content:
        """The same without any records (nor a view of them): what all files must have in common."""
        empty = Records(*(t.new_empty(0, *t.shape[1:]) for t in self.tensors))
        return self._replace(records=empty, patients=None)

    @property
    def tensors(self) -> tuple[Tensor, Tensor]:
        return dense(self.records.inputs), self.records.targets


class FolderPopulation:
    """Clients from a folder: one `.npz`, `.csv`, `.csv.gz` or `.parquet` file each, numbered by sorted name.

    In an `.npz` the arrays are `inputs` and `targets` (or `x` and `y`); in a table the column `target` is the label
    and all others are features, but for `patient`, the column (or array) that says whose each is. `names` are the
    clients' file names without suffix. A file `test` with one of the suffixes is no client but the test set. Every file
    must look like the first client's.
    """

    def __init__(self, path: str | Path, *, target: str = "target", patient: str | None = None) -> None:
        self._folder = Path(path).expanduser()
        self._target, self._patient = target, patient
        self._patients: dict[int, np.ndarray | None] = {}
        self._files, self._test = client_files(self._folder)
        self.names = [stem(file) for file in self._files]
        self._sizes: dict[int, int] = {}
        self._layout: _Content | None = None

    @property
    def num_clients(self) -> int:
        return len(self._files)

    @property
    def files(self) -> list[Path]:
        """The clients' files, in their order: for messages."""
        return list(self._files)

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the columns that are learnt from, once the files were read; none if they are arrays."""
        return self._layout.columns or () if self._layout else ()

    @property
    def test_file(self) -> Path | None:
        return self._test

    def size(self, client: int) -> int:
        if client not in self._sizes:
            self.records(client)
        return self._sizes[client]

    def records(self, client: int) -> Records:
        if not 0 <= client < len(self._files):
            raise IndexError(f"client {client}: the clients are 0 to {len(self._files) - 1}")
        records, self._patients[int(client)] = self._read(self._files[client])
        self._sizes[int(client)] = len(records.targets)
        return records

    def patients(self, client: int) -> np.ndarray | None:
        """Whose each record of the file is, as numbers of its own; None if no column was named."""
        if client not in self._patients:
            self.records(client)
        return self._patients[client]

    def test_records(self) -> Records | None:
        """The records of the test file, or `None` if there is none."""
        return self._read(self._test)[0] if self._test else None

    def to(self, device: torch.device) -> FolderPopulation:
        return self

    def validate(self) -> None:
        """Read every file once; one `DataError` lists all the bad ones."""
        bad, layout = [], None
        for client, file in enumerate([*self._files, *([self._test] if self._test else [])]):
            try:
                found = _read_content(file, self._target, self._patient)
                # A bad first file must not hide the others: the first good one is what the rest is compared with.
                layout = layout or found.layout()
                size = len(_alike(found, layout).targets)
                if file != self._test:
                    self._sizes[client] = size
            except DataError as error:
                bad.append(str(error))
        if bad:
            rest = [f"and {len(bad) - _MOST_LISTED} more"] if len(bad) > _MOST_LISTED else []
            lines = "\n  ".join(bad[:_MOST_LISTED] + rest)
            raise DataError(f"{one_line(self._folder)}: {len(bad)} bad file{'s' * (len(bad) > 1)}\n  {lines}")
        self._layout = layout

    def _read(self, file: Path) -> tuple[Records, np.ndarray | None]:
        found, first = _read_content(file, self._target, self._patient), self._files[0]
        if self._layout is None:
            self._layout = (found if file == first else _read_content(first, self._target, self._patient)).layout()
        return _alike(found, self._layout), found.patients


def load_table(
    path: str | Path, target: str, client_column: str | None = None, patient_column: str | None = None
) -> tuple[Records, np.ndarray | None, tuple[str, ...], np.ndarray | None]:
    """One CSV or Parquet table for all clients: its records, the column that says at which client each is, the
    features' names, and whose each is, as numbers.

    Without a client column they are at none, and have to be dealt out.
    """
    file = Path(path).expanduser()
    if target == client_column:
        raise ConfigError(f"'{target}' cannot be both the target and the client column")
    if patient_column is not None and patient_column in (target, client_column):
        raise ConfigError(f"'{patient_column}' cannot be the patient column and another one: name the right one")
    if suffix(file) in (None, ".npz"):
        raise refused(file, "a table is expected, a file that ends in .csv, .csv.gz or .parquet")
    frame, patients = _apart_from_patients(file, read_frame(file), patient_column)
    if client_column is None:
        records, names = records_of(file, frame, target)
        return records, None, names, patients
    need_column(file, frame, client_column, "⟨client-column⟩")
    owner = frame[client_column]
    if owner.isna().any():
        raise refused(file, f"row {first_bad(owner.isna())}, column {named(client_column)}: no value, so no client")
    records, names = records_of(file, frame.drop(columns=client_column), target)
    return records, np.asarray(owner.to_numpy()), names, patients


def _apart_from_patients(file: Path, frame: pd.DataFrame, column: str | None) -> tuple[pd.DataFrame, np.ndarray | None]:
    """The table without the column that says whose each record is, and that column as numbers."""
    if column is None:
        return frame, None
    need_column(file, frame, column, "⟨patient-column⟩")
    whose = frame[column]
    if whose.isna().any():
        raise refused(file, f"row {first_bad(whose.isna())}, column {named(column)}: no value, so it has no owner")
    numbers: np.ndarray = whose.astype("category").cat.codes.to_numpy(dtype=np.int64)
    return frame.drop(columns=column), numbers


def load_file(path: str | Path, target: str = "target") -> Records:
    """The records of one file of the kinds that a client's may be."""
    return load_file_of_patients(path, target, None)[0]


def load_file_of_patients(
    path: str | Path, target: str = "target", patient: str | None = None
) -> tuple[Records, np.ndarray | None]:
    """The same, and whose each record is, as numbers: by the column or array `patient`."""
    file = Path(path).expanduser()
    if suffix(file) is None:
        raise refused(file, f"expected a file that ends in {', '.join(SUFFIXES)}")
    found = _read_content(file, target, patient)
    return found.records, found.patients


def client_files(folder: Path) -> tuple[list[Path], Path | None]:
    """The clients' files, sorted by name, and the test file."""
    if not folder.is_dir():
        raise refused(folder, f"{'is a file' if folder.exists() else 'does not exist'}; a folder is expected")
    try:
        files = sorted(file for file in folder.iterdir() if suffix(file) and not file.name.startswith("."))
    except OSError as error:
        raise refused(folder, f"cannot be read ({error.strerror or error})") from None
    by_name: dict[str, Path] = {}
    for file in files:
        # The same client in two formats would count twice, and what is promised to one client would be given to two.
        other = by_name.setdefault(stem(file), file)
        if other != file:
            raise refused(folder, f"both {other.name} and {file.name}; keep one file per client")
    test = by_name.pop("test", None)
    if not by_name:
        raise refused(
            folder,
            f"no client files; expected one {', '.join(SUFFIXES)} file per client, or pictures as CLIENT/CLASS/PICTURE",
        )
    return [by_name[name] for name in sorted(by_name)], test


def stem(file: Path) -> str:
    return file.name[: -len(suffix(file) or "")]


def _alike(found: _Content, layout: _Content) -> Records:
    """The records, if they look like those in the layout's file."""
    file, first = found.path, layout.path.name
    if found.columns and layout.columns and found.columns != layout.columns:
        ours, theirs = set(found.columns), set(layout.columns)
        missing, extra = (listed(map(repr, sorted(names))) for names in (theirs - ours, ours - theirs))
        how = f"lacks [{missing}], adds [{extra}]" if missing or extra else "has them in another order"
        raise refused(file, f"not the feature columns of {first}: {how}")
    tensors = []
    for what, tensor, like in zip(("inputs", "targets"), found.tensors, layout.tensors, strict=True):
        shape, expected = tuple(tensor.shape[1:]), tuple(like.shape[1:])
        if shape != expected:
            raise refused(file, f"{what} of shape {shape} per record, but {expected} in {first}")
        # A client whose real-valued numbers all happen to be whole is no mistake; the other way round may be one.
        if tensor.is_floating_point() and not like.is_floating_point():
            raise refused(file, f"{what} are fractions, but whole in {first}; if rightly so, write 1.0 for 1 there")
        tensors.append(tensor.to(like.dtype))
    return Records(*tensors)


def _read_content(file: Path, target: str, patient: str | None = None) -> _Content:
    if suffix(file) == ".npz":
        records = read_npz(file)
        return _Content(file, records, None, None if patient is None else _array_of_patients(file, patient, records))
    frame, patients = _apart_from_patients(file, read_frame(file), patient)
    return _Content(file, *records_of(file, frame, target), patients)


def _array_of_patients(file: Path, name: str, records: Records) -> np.ndarray:
    """The array of an .npz that says whose each record is, as numbers."""
    (values,) = read_arrays(file, (name,)).values()
    if values.shape != records.targets.shape[:1]:
        raise refused(file, f"'{name}' has the shape {values.shape}, and there are {len(records.targets)} records")
    if values.dtype.kind == "f" and np.isnan(values).any():
        raise refused(file, f"'{name}' has no number for record {np.isnan(values).argmax()}, so it has no owner")
    numbers: np.ndarray = np.unique(values, return_inverse=True)[1]
    return numbers
