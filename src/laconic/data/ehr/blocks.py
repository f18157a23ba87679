"""CSV, gzipped CSV and Parquet, some rows at a time and only the columns that are asked for.

Cells of a CSV stay the texts that they are: a code such as 008 or 250.00 is no number.
"""

from __future__ import annotations

import contextlib
import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from laconic.data.files.user_file import (
    arrow_file,
    gunzipped,
    listed,
    missing_columns,
    named,
    no_such_file,
    open_file,
    refused,
    refused_as_too_much,
    separator_in,
    too_much,
)
from laconic.errors import DataError, LaconicError, how_to_install

SUFFIXES = (".csv", ".csv.gz", ".parquet")
_BLOCK_BYTES, _BLOCK_ROWS = 1 << 24, 1 << 16
_BAD_ROW = re.compile(r"CSV parse error: Row #(\d+): Expected \d+ columns")


@dataclass(frozen=True)
class Block:
    """Some rows: an Arrow array per column, the table's name, and the number of every row as a person counts it."""

    table: str
    columns: dict[str, Any]
    numbers: np.ndarray

    def keep(self, rows: np.ndarray) -> Block:
        """Only the rows where it is true."""
        import pyarrow as pa

        if rows.all():
            return self
        mask = pa.array(rows)
        return Block(self.table, {k: v.filter(mask) for k, v in self.columns.items()}, self.numbers[rows])

    def error(self, place: int, column: str, problem: str) -> DataError:
        """Names row and column, never a value: values are what is to be kept private."""
        row = f"row {self.numbers[place]}, " if place < len(self.numbers) else ""
        return refused(self.table, f"{row}column {named(column)}: {problem}")


def read_table(path: Path, columns: Sequence[str], separator: str = ",") -> Iterator[Block]:
    """The named columns of a file, block by block."""
    suffix = _suffix(path)
    if suffix == ".parquet":
        yield from _parquet(path, columns)
        return
    with _opened(path) as plain:
        if suffix == ".csv.gz":
            yield from read_csv(gunzipped(path, plain), str(path), columns, separator)
            return
        with _explained(str(path)):
            names = header(plain, str(path), separator)
    check_columns(str(path), columns, names)
    with _explained(str(path)):
        native = arrow_file(path)
    with native:
        yield from _csv_blocks(native, str(path), columns, separator)


def column_names(path: Path, separator: str = ",") -> list[str]:
    """The names of all columns of a file."""
    suffix = _suffix(path)
    if suffix == ".parquet":
        with _explained(str(path)), arrow_file(path) as opened:
            names = list(_arrow("pyarrow.parquet").ParquetFile(opened).schema_arrow.names)
        _refuse_repeats(str(path), names)
        return names
    with _opened(path) as plain, _explained(str(path)):
        return header(gunzipped(path, plain) if suffix == ".csv.gz" else plain, str(path), separator)


def separator_of(path: Path, columns: Sequence[str] = (), usual: str = ",") -> str:
    """What stands between the cells of a file: the usual character if the header has these columns by it."""
    if columns and set(columns) <= set(column_names(path, usual)):
        return usual
    suffix = _suffix(path)
    if suffix == ".parquet":
        return usual
    with _opened(path) as plain, _explained(str(path)):
        return separator_in(_line(gunzipped(path, plain) if suffix == ".csv.gz" else plain, str(path)))


def _suffix(path: Path) -> str:
    """Which kind of table it is, of those that are read."""
    suffix = next((s for s in SUFFIXES if path.name.lower().endswith(s)), None)
    if not path.exists():
        raise DataError(no_such_file(str(path)))
    if suffix is None:
        way_out = "; save the sheet as CSV" if path.name.lower().endswith((".xlsx", ".xls", ".ods")) else ""
        raise refused(path, f"a table is expected, a file that ends in {', '.join(SUFFIXES)}{way_out}")
    if not path.is_file():
        raise refused(path, f"{'is a folder' if path.is_dir() else 'is a pipe or a device'}; a file is expected")
    _arrow("pyarrow")
    return suffix


def read_csv(stream: Any, name: str, columns: Sequence[str], separator: str = ",") -> Iterator[Block]:
    """The named columns of an open CSV file as texts."""
    with _explained(name):
        names = header(stream, name, separator)
    check_columns(name, columns, names)
    yield from _csv_blocks(stream, name, columns, separator)


def _csv_blocks(stream: Any, name: str, columns: Sequence[str], separator: str) -> Iterator[Block]:
    arrow_csv = _arrow("pyarrow.csv")
    parse = arrow_csv.ParseOptions(delimiter=separator, newlines_in_values=True)
    # Without threads, or a bad row would have no number.
    read = arrow_csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES)
    binary = _arrow("pyarrow").binary()
    with _explained(name):
        convert = arrow_csv.ConvertOptions(
            column_types=dict.fromkeys(columns, binary),
            include_columns=list(columns),
            null_values=[],
            strings_can_be_null=False,
            check_utf8=False,
        )
        reader = arrow_csv.open_csv(stream, read_options=read, parse_options=parse, convert_options=convert)
    first = 1
    while True:
        with _explained(name):
            batch = next(reader, None)
        if batch is None:
            return
        numbers = np.arange(first, first + batch.num_rows)
        yield _as_text(Block(name, dict(zip(batch.schema.names, batch.columns, strict=True)), numbers))
        first += batch.num_rows


def header(stream: BinaryIO, name: str, separator: str = ",") -> list[str]:
    """The names of the columns; the stream is put back to its beginning.

    Not parsed by Arrow: its threads would free the line, which is Python's memory, maybe while the interpreter ends
    after an error. Python stops a thread that asks for its lock then, and C++ aborts the process for that.
    """
    names = next(csv.reader([_line(stream, name)], delimiter=separator))
    _refuse_repeats(name, names)
    return names


def _line(stream: BinaryIO, name: str) -> str:
    line = stream.readline(_BLOCK_BYTES).removeprefix(b"\xef\xbb\xbf")
    stream.seek(0)
    if not line.strip():
        raise refused(name, "is empty; a header with the names of the columns is expected")
    try:
        return line.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise refused(name, "the header is not UTF-8 text; save the table as UTF-8") from None


def _refuse_repeats(table: str, names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise refused(table, f"the header has the column {named(name)} twice; rename one")
        seen.add(name)


def _as_text(block: Block) -> Block:
    pa = _arrow("pyarrow")
    columns = {}
    for name, cells in block.columns.items():
        try:
            columns[name] = cells.cast(pa.string())
        except pa.ArrowInvalid:
            place = next(i for i, cell in enumerate(cells) if not _is_utf8(cell.as_py()))
            raise block.error(place, name, "not UTF-8 text; save the table as UTF-8") from None
    return Block(block.table, columns, block.numbers)


def _is_utf8(cell: bytes) -> bool:
    try:
        cell.decode()
    except UnicodeDecodeError:
        return False
    return True


def _parquet(path: Path, columns: Sequence[str]) -> Iterator[Block]:
    parquet = _arrow("pyarrow.parquet")
    with _explained(str(path)):
        opened = arrow_file(path)  # a path would make columns out of folders called like 'site=3'
    with opened:
        with _explained(str(path)):
            file = parquet.ParquetFile(opened)
            names = list(file.schema_arrow.names)
        _refuse_repeats(str(path), names)
        check_columns(str(path), columns, names)
        if too_much(8 * file.metadata.num_rows * len(columns), path.stat().st_size):
            raise refused_as_too_much(path, "if that is right, save it as .csv")
        batches = file.iter_batches(batch_size=_BLOCK_ROWS, columns=list(columns))
        first = 1
        while True:
            with _explained(str(path)):
                batch = next(batches, None)
            if batch is None:
                return
            numbers = np.arange(first, first + batch.num_rows)
            yield Block(str(path), dict(zip(batch.schema.names, batch.columns, strict=True)), numbers)
            first += batch.num_rows


def check_columns(table: str, wanted: Sequence[str], there: Sequence[str]) -> None:
    """Refuse a table that lacks columns: all of them at once, each with the nearest name that it has."""
    missing = [column for column in wanted if column not in there]
    if missing:
        raise refused(table, f"{missing_columns(missing, there)}; the table has: {listed(sorted(there))}")


@contextlib.contextmanager
def _explained(name: str) -> Iterator[None]:
    """What the reader raises, without the values that it quotes."""
    try:
        yield
    except LaconicError:
        raise
    except Exception as error:  # a damaged file makes its readers raise nearly anything
        if bad_row := _BAD_ROW.match(str(error)):
            # The reader counts the header as row 1.
            raise refused(
                name, f"row {int(bad_row[1]) - 1} has more or fewer cells than the header has columns; check its quotes"
            ) from None
        raise refused(name, f"damaged, or not the table that its name says ({type(error).__name__})") from None


def _opened(path: Path) -> BinaryIO:
    try:
        return open_file(path)
    except OSError as error:
        raise refused(path, f"cannot be read ({error.strerror or error})") from None


def _arrow(module: str) -> Any:
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError:
        raise DataError(f"reading tables of health records needs pyarrow: {how_to_install('tables')}") from None
