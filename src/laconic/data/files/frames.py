"""A client's table, or one table for all: CSV, gzipped CSV and Parquet, as a frame and as records.

Messages name files, rows and columns but never values: the values are what is to be kept private.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from laconic.data.files.user_file import (
    WAY_OUT,
    Decimals,
    Problems,
    arrow_file,
    gunzipped,
    has_comma,
    listed,
    missing_columns,
    named,
    open_file,
    refused,
    refused_as_too_much,
    separator_in,
    suffix,
    too_much,
    unreadable,
)
from laconic.data.population import Records, as_records
from laconic.errors import LaconicError, nearest, one_line

if TYPE_CHECKING:
    import pandas as pd

DEFAULT_TARGET = "target"
_HEADER = 1 << 24
_REPEATED = re.compile(r"(.*)\.\d+", re.DOTALL)
"""What pandas makes of a name that is there twice: 'target' and 'target.1'."""


def read_frame(file: Path, *, text: str | None = None) -> pd.DataFrame:
    """The table in a file; every column has a name of its own. The column `text` is read as it is written."""
    try:
        if suffix(file) == ".parquet":
            return _read_parquet(file)
        # Else pandas takes surplus values in front for row labels, which would shift every column by one.
        options: dict[str, Any] = {"low_memory": False, "index_col": False}
        if text is not None:
            # With a mark in front, or else pandas takes the word NA for a gap, and digits for a number.
            options["converters"] = {text: "=".__add__}
        separator = _separator(file)
        frame = _read_csv(file, sep=separator, **options)
        _check_csv_names(file, frame, separator)
        frame = _with_points(frame, separator, {text})
        if text is None or text not in frame:
            return frame
        return frame.assign(**{text: [marked[1:] for marked in frame[text]]})
    except ImportError:
        raise refused(file, "reading CSV and Parquet files needs pandas: pip install pandas pyarrow") from None
    except LaconicError:
        raise
    except Exception as error:  # a damaged file makes pandas and pyarrow raise nearly anything
        raise unreadable(file, error) from None


def records_of(file: Path, frame: pd.DataFrame, target: str) -> tuple[Records, tuple[str, ...]]:
    """The records of a table, and the names of the features: all columns but the target."""
    need_column(file, frame, target, "⟨target⟩")
    features = frame.drop(columns=target)
    if 0 in features.shape:
        raise refused(file, f"no {'rows below the header' if features.shape[1] else 'columns besides the target'}")
    problems = Problems(file)
    columns = [_numbers(features[name], problems) for name in features]
    targets = targets_of(file, frame[target], problems)
    if problems:
        raise problems.error(_SCHEMA.format(file=file.name, target=target))
    # Features are floats even where all are whole; in float64, as a cast to float32 here would warn of overflow.
    inputs = np.stack(columns, axis=1, dtype=np.float64)
    return as_records((inputs, targets), one_line(file)), tuple(str(name) for name in features.columns)


def features_of(file: Path, frame: pd.DataFrame, names: tuple[str, ...], count: int) -> np.ndarray:
    """The named columns of a table without a target; all columns, if no names are known and there are `count`."""
    if not names and len(frame.columns) != count:
        raise refused(file, f"has {len(frame.columns)} columns, but a record has {count} numbers")
    if missing := [name for name in names if name not in frame.columns]:
        raise refused(file, f"{missing_columns(missing, frame.columns)}; the table has: {listed(frame.columns)}")
    if len(frame) == 0:
        raise refused(file, "no rows below the header")
    problems = Problems(file)
    columns = [_numbers(frame[name], problems) for name in names or frame.columns]
    if problems:
        raise problems.error()
    return np.stack(columns, axis=1)


_SCHEMA = "a schema encodes text and fills gaps: laconic schema init {file} --target {target} drafts one for --schema"


def need_column(file: Path, frame: pd.DataFrame, name: str, flag: str = "") -> None:
    if name in frame.columns:
        return
    near = None if name == DEFAULT_TARGET else nearest(name, map(str, frame.columns))
    hint = f" (did you mean {named(near)}?)" if near else f" (name the right one with {flag})" if flag else ""
    raise refused(file, f"no column {named(name)}{hint}; its columns: {listed(frame.columns)}")


def first_bad(bad: Any) -> int:
    """The first bad row, counted as a person does: from 1, below the header."""
    return int(np.asarray(bad, dtype=bool).argmax()) + 1


def _read_csv(file: Path, **options: Any) -> pd.DataFrame:
    import pandas as pd

    with open_file(file) as opened, warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        try:
            if suffix(file) == ".csv":
                return pd.read_csv(file, compression=None, **options)
            return pd.read_csv(gunzipped(file, opened), **options)
        except pd.errors.ParserWarning:  # "leads to a loss of data"
            raise refused(file, "row 1 has more values than the header has columns") from None


def _separator(file: Path) -> str:
    with open_file(file) as opened:
        line = (opened if suffix(file) == ".csv" else gunzipped(file, opened)).readline(_HEADER)
    return separator_in(line.decode(errors="replace").rstrip("\r\n"))


def _with_points(frame: pd.DataFrame, separator: str, apart: Collection[str | None]) -> pd.DataFrame:
    """The table, with numbers where a column has nothing but gaps and numbers with a decimal comma."""
    import pandas as pd

    found, decimals = {}, Decimals(separator)
    for name in frame.columns:
        if name in apart or pd.api.types.is_numeric_dtype(frame[name]):
            continue
        there = [text for text in frame[name].dropna().unique() if isinstance(text, str)]
        plain, wrong = decimals.with_points(name, there)
        numbers = pd.to_numeric(pd.Series(plain, there, dtype=object), errors="coerce")
        if not wrong and any(map(has_comma, there)) and numbers.notna().all():
            found[name] = frame[name].map(numbers.to_dict())
    return frame.assign(**found) if found else frame


def _check_csv_names(file: Path, frame: pd.DataFrame, separator: str) -> None:
    """pandas invents names where the header has none or one twice; a label would become a feature that way."""
    names = set(frame.columns)
    repeats = [match for name in names if (match := _REPEATED.fullmatch(name)) and match[1] in names]
    if not repeats and not any(name.startswith("Unnamed: ") for name in names):
        return
    header = _read_csv(file, sep=separator, header=None, nrows=1, dtype=str, keep_default_na=False).iloc[0].tolist()
    if "" in header:
        number = header.index("") + 1
        raise refused(file, f"column {number} has no name; name it, or write no row numbers (index=False in pandas)")
    _refuse_repeats(file, header)


def _refuse_repeats(file: Path, names: list[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise refused(file, f"has the column {named(name)} twice; rename or drop one")
        seen.add(name)


def _read_parquet(file: Path) -> pd.DataFrame:
    import pyarrow as pa
    import pyarrow.parquet as pq

    # From an open file: given a path, pyarrow makes columns out of folders called like 'site=3'.
    with arrow_file(file) as opened:
        parquet = pq.ParquetFile(opened)
        about = parquet.metadata
        if too_much(8 * about.num_rows * max(1, about.num_columns), file.stat().st_size):
            raise refused_as_too_much(file, "if that is right, save it as .csv or .npz")
        _refuse_repeats(file, parquet.schema_arrow.names)
        for column in parquet.schema_arrow:
            if pa.types.is_nested(column.type):
                raise refused(file, f"column {named(column.name)}: holds lists or structures; give each part a column")
        table = parquet.read()
    for place, column in enumerate(table.schema):
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if pa.types.is_decimal(kind):
            kind = pa.float64()
        # Names of clients stay a dictionary; pandas has no other way to do arithmetic with these.
        if kind != column.type and (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
            table = table.set_column(place, column.name, table.column(place).cast(kind))
    frame = table.to_pandas()
    if frame.columns.nlevels > 1:
        raise refused(file, "its columns have names of several levels; give each column one name")
    return frame


def _numbers(column: pd.Series[Any], problems: Problems) -> np.ndarray:
    """A column's finite numbers; a copy, as pandas' own arrays are read-only and torch warns."""
    import pandas as pd

    if not pd.api.types.is_numeric_dtype(column) or column.dtype.kind == "c":
        gone, texts = np.flatnonzero(column.isna().to_numpy()) + 1, _rows_of_text(column)
        if texts is None and len(gone):
            problems.add(column.name, _MISSING, gone, _FILL)
            return np.zeros(len(column))
        more = f" (besides {len(gone):,} without a value)" if len(gone) else ""
        commas = any(isinstance(text, str) and has_comma(text) for text in column)
        problems.add(column.name, f"not a number{more}", texts, WAY_OUT if commas else "encode or drop the column")
        return np.zeros(len(column))
    values: np.ndarray = column.to_numpy(dtype=np.float64, na_value=np.nan, copy=True)
    bad = ~np.isfinite(values)
    if bad.any():
        problems.add(column.name, _MISSING, np.flatnonzero(bad) + 1, _FILL)
    return values


_MISSING, _FILL = "missing, NaN or infinite", "fill in or drop the row"


def _rows_of_text(column: pd.Series[Any]) -> np.ndarray | None:
    import pandas as pd

    try:
        bad = column.notna() & pd.to_numeric(column, errors="coerce").isna()
    except TypeError:  # not even text
        return None
    return np.flatnonzero(bad.to_numpy()) + 1 if bad.any() else None


def targets_of(file: Path, column: pd.Series[Any], problems: Problems | None = None) -> np.ndarray:
    """Whole numbers with every digit kept, if that is what the column has; beyond 64 bits they would be others."""
    found = Problems(file) if problems is None else problems
    values = _numbers(column, found)
    if problems is None and found:
        raise found.error()
    if column.dtype.kind not in "iub":
        return values
    if column.max() > np.iinfo(np.int64).max:
        raise refused(file, f"column {named(column.name)}: whole numbers beyond 64 bits; renumber the classes from 0")
    return np.array(column, dtype=np.int64)
