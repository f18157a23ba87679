"""The user's own data: a folder with one file per client, read when its client is asked for; or one table.

Messages name files, rows and columns but never values: the values are what is to be kept private.
"""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from laconic.data.population import Records, as_records
from laconic.data.sparse import dense
from laconic.errors import ConfigError, DataError

if TYPE_CHECKING:
    import pandas as pd

SUFFIXES = (".npz", ".csv", ".csv.gz", ".parquet")

_MOST_LISTED = 20
# What numpy, pandas and pyarrow raise for damaged files; pandas' and pyarrow's own errors are ValueErrors.
_DAMAGED = (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error, RuntimeError)


class _Content(NamedTuple):
    """What a file holds; `columns` are the names of the features, if it is a table."""

    path: Path
    records: Records
    columns: tuple[str, ...] | None

    def layout(self) -> _Content:
        """The same without any records (nor a view of them): what all files must have in common."""
        return self._replace(records=Records(*(t.new_empty(0, *t.shape[1:]) for t in self.tensors)))

    @property
    def tensors(self) -> tuple[Tensor, Tensor]:
        return dense(self.records.inputs), self.records.targets


class FolderPopulation:
    """Clients from a folder: one `.npz`, `.csv`, `.csv.gz` or `.parquet` file each, numbered by sorted name.

    In an `.npz` the arrays are `inputs` and `targets` (or `x` and `y`); in a table the column `target` is the label
    and all others are features. `names` are the clients' file names without suffix. A file `test` with one of the
    suffixes is no client but the test set. Every file must look like the first client's.
    """

    def __init__(self, path: str | Path, *, target: str = "target") -> None:
        self._folder = Path(path).expanduser()
        self._target = target
        self._files, self._test = _list_folder(self._folder)
        self.names = [_stem(file) for file in self._files]
        self._sizes: dict[int, int] = {}
        self._layout: _Content | None = None

    @property
    def num_clients(self) -> int:
        return len(self._files)

    def size(self, client: int) -> int:
        if client not in self._sizes:
            self.records(client)
        return self._sizes[client]

    def records(self, client: int) -> Records:
        if not 0 <= client < len(self._files):
            raise IndexError(f"client {client}: the clients are 0 to {len(self._files) - 1}")
        records = self._read(self._files[client])
        self._sizes[int(client)] = len(records.targets)
        return records

    def test_records(self) -> Records | None:
        """The records of the test file, or `None` if there is none."""
        return self._read(self._test) if self._test else None

    def to(self, device: torch.device) -> FolderPopulation:
        return self

    def validate(self) -> None:
        """Read every file once; one `DataError` lists all the bad ones."""
        bad, layout = [], None
        for client, file in enumerate([*self._files, *([self._test] if self._test else [])]):
            try:
                found = _read_content(file, self._target)
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
            raise DataError(f"{self._folder}: {len(bad)} bad file{'s' * (len(bad) > 1)}\n  {lines}")
        self._layout = layout

    def _read(self, file: Path) -> Records:
        found, first = _read_content(file, self._target), self._files[0]
        if self._layout is None:
            self._layout = (found if file == first else _read_content(first, self._target)).layout()
        return _alike(found, self._layout)


def load_table(path: str | Path, target: str, client_column: str) -> tuple[Records, np.ndarray]:
    """One CSV or Parquet table for all clients: its records, and the column that says whose each is."""
    file = Path(path).expanduser()
    if target == client_column:
        raise ConfigError(f"'{target}' cannot be both the target and the client column")
    if _suffix(file) in (None, ".npz"):
        raise DataError(f"{file}: a table is expected, a file that ends in .csv, .csv.gz or .parquet")
    frame = _read_frame(file)
    _need_column(file, frame, client_column)
    owner = frame[client_column]
    if owner.isna().any():
        raise DataError(f"{file}: row {_first(owner.isna())}, column '{client_column}': no value, so no client")
    records, _ = _from_frame(file, frame.drop(columns=client_column), target)
    return records, np.asarray(owner.to_numpy())


def load_file(path: str | Path, target: str = "target") -> Records:
    """The records of one file of the kinds that a client's may be."""
    file = Path(path).expanduser()
    if _suffix(file) is None:
        raise DataError(f"{file}: expected a file that ends in {', '.join(SUFFIXES)}")
    return _read_content(file, target).records


def _list_folder(folder: Path) -> tuple[list[Path], Path | None]:
    """The clients' files, sorted by name, and the test file."""
    if not folder.is_dir():
        raise DataError(f"{folder}: {'is a file' if folder.exists() else 'does not exist'}; a folder is expected")
    files = sorted(file for file in folder.iterdir() if _suffix(file) and not file.name.startswith("."))
    named: dict[str, Path] = {}
    for file in files:
        # The same client in two formats would count twice, and what is promised to one client would be given to two.
        other = named.setdefault(_stem(file), file)
        if other != file:
            raise DataError(f"{folder}: both {other.name} and {file.name}; keep one file per client")
    test = named.pop("test", None)
    if not named:
        raise DataError(f"{folder}: no client files; expected one {', '.join(SUFFIXES)} file per client")
    return [named[name] for name in sorted(named)], test


def _suffix(file: Path) -> str | None:
    return next((suffix for suffix in SUFFIXES if file.name.lower().endswith(suffix)), None)


def _stem(file: Path) -> str:
    return file.name[: -len(_suffix(file) or "")]


def _alike(found: _Content, layout: _Content) -> Records:
    """The records, if they look like those in the layout's file."""
    file, first = found.path, layout.path.name
    if found.columns and layout.columns and found.columns != layout.columns:
        ours, theirs = set(found.columns), set(layout.columns)
        missing, extra = sorted(theirs - ours), sorted(ours - theirs)
        how = f"lacks {missing}, adds {extra}" if missing or extra else "has them in another order"
        raise DataError(f"{file}: not the feature columns of {first}: {how}")
    tensors = []
    for what, tensor, like in zip(("inputs", "targets"), found.tensors, layout.tensors, strict=True):
        shape, expected = tuple(tensor.shape[1:]), tuple(like.shape[1:])
        if shape != expected:
            raise DataError(f"{file}: {what} of shape {shape} per record, but {expected} in {first}")
        # A client whose real-valued numbers all happen to be whole is no mistake; the other way round may be one.
        if tensor.is_floating_point() and not like.is_floating_point():
            raise DataError(f"{file}: {what} are fractions, but whole in {first}; if rightly so, write 1.0 for 1 there")
        tensors.append(tensor.to(like.dtype))
    return Records(*tensors)


def _read_content(file: Path, target: str) -> _Content:
    if _suffix(file) == ".npz":
        return _Content(file, _read_npz(file), None)
    return _Content(file, *_from_frame(file, _read_frame(file), target))


def _read_npz(file: Path) -> Records:
    try:
        # Opened here, because np.load leaves a file that it opened itself open when that turns out to be damaged.
        with file.open("rb") as opened, np.load(opened, allow_pickle=False) as archive:
            names = next((pair for pair in (("inputs", "targets"), ("x", "y")) if set(pair) <= set(archive)), None)
            if names is None:
                raise DataError(f"{file}: holds {sorted(archive)}; expected arrays 'inputs' and 'targets'")
            arrays = [archive[name] for name in names]
    except (*_DAMAGED, AttributeError, TypeError) as error:
        raise _unreadable(file, error) from None
    for name, array in zip(names, arrays, strict=True):
        if array.dtype.kind not in "biuf":
            raise DataError(f"{file}: '{name}' holds {array.dtype}, not numbers")
    return as_records(tuple(arrays), str(file))


def _read_frame(file: Path) -> pd.DataFrame:
    try:
        import pandas as pd

        if _suffix(file) == ".parquet":
            # From an open file: given a path, pyarrow makes columns out of folders called like 'site=3'.
            with file.open("rb") as opened:
                return pd.read_parquet(opened, engine="pyarrow")
        zipped = "gzip" if _suffix(file) == ".csv.gz" else None
        frame = pd.read_csv(file, compression=zipped, low_memory=False)
    except ImportError:
        raise DataError(f"{file}: reading CSV and Parquet files needs pandas: pip install pandas pyarrow") from None
    except _DAMAGED as error:
        raise _unreadable(file, error) from None
    # pandas takes surplus values in front for row labels, which would shift every column by one.
    if not isinstance(frame.index, pd.RangeIndex):
        raise DataError(f"{file}: row 1 has more values than the header has columns")
    return frame


def _from_frame(file: Path, frame: pd.DataFrame, target: str) -> tuple[Records, tuple[str, ...]]:
    _need_column(file, frame, target)
    features = frame.drop(columns=target)
    if 0 in features.shape:
        raise DataError(f"{file}: no {'rows below the header' if features.shape[1] else 'columns besides the target'}")
    # Features are floats even where all are whole; in float64, as a cast to float32 here would warn of overflow.
    inputs = np.stack([_numbers(file, features[name]) for name in features], axis=1, dtype=np.float64)
    records = as_records((inputs, _numbers(file, frame[target])), str(file))
    return records, tuple(str(name) for name in features.columns)


def _numbers(file: Path, column: pd.Series[Any]) -> np.ndarray:
    """A column's finite numbers, whole ones as such; a copy, as pandas' own arrays are read-only and torch warns."""
    import pandas as pd

    types, where = pd.api.types, f"column '{column.name}'"
    if not types.is_numeric_dtype(column):
        bad = column.notna() & pd.to_numeric(column, errors="coerce").isna()
        at = f"row {_first(bad)}, " if bad.any() else ""
        raise DataError(f"{file}: {at}{where}: not a number; encode or drop the column")
    values = column.to_numpy(dtype=np.float64, na_value=np.nan, copy=True)
    bad = ~np.isfinite(values)
    if bad.any():
        raise DataError(f"{file}: row {_first(bad)}, {where}: missing, NaN or infinite; fill in or drop the row")
    whole = types.is_integer_dtype(column) or types.is_bool_dtype(column)
    return np.array(column, dtype=np.int64) if whole else values


def _first(bad: Any) -> int:
    """The first bad row, counted as a person does: from 1, below the header."""
    return int(np.asarray(bad, dtype=bool).argmax()) + 1


def _need_column(file: Path, frame: pd.DataFrame, name: str) -> None:
    if name not in frame.columns:
        raise DataError(f"{file}: no column '{name}'; its columns: {', '.join(map(str, frame.columns[:10]))}")


def _unreadable(file: Path, error: BaseException) -> DataError:
    reason = " ".join(str(error).split()) or type(error).__name__
    return DataError(f"{file}: damaged, empty or not a {_suffix(file)} file ({reason})")
