"""CSV, gzipped CSV and Parquet, some rows at a time and only the columns that are asked for.

Cells of a CSV stay the texts that they are: a code such as 008 or 250.00 is no number.
"""

from __future__ import annotations

import contextlib
import gzip
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from laconic.errors import DataError, how_to_install, unknown

SUFFIXES = (".csv", ".csv.gz", ".parquet")
_BLOCK_BYTES, _BLOCK_ROWS = 1 << 24, 1 << 16


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
        return DataError(f"{self.table}: row {self.numbers[place]}, column '{column}': {problem}")


def read_table(path: Path, columns: Sequence[str], separator: str = ",") -> Iterator[Block]:
    """The named columns of a file, block by block."""
    suffix = next((s for s in SUFFIXES if path.name.lower().endswith(s)), None)
    if suffix is None:
        raise DataError(f"{path}: a table is expected, a file that ends in {', '.join(SUFFIXES)}")
    if not path.is_file():
        raise DataError(f"{path}: {'is a folder' if path.is_dir() else 'does not exist'}; a file is expected")
    if suffix == ".parquet":
        yield from _parquet(path, columns)
        return
    with path.open("rb") as plain, contextlib.ExitStack() as stack:
        stream: Any = stack.enter_context(gzip.GzipFile(fileobj=plain)) if suffix == ".csv.gz" else plain
        yield from read_csv(stream, str(path), columns, separator)


def read_csv(stream: Any, name: str, columns: Sequence[str], separator: str = ",") -> Iterator[Block]:
    """The named columns of an open CSV file as texts."""
    csv = _arrow("pyarrow.csv")
    bad_rows: list[int] = []

    def remember(row: Any) -> str:
        bad_rows.append(row.number)
        return "error"

    parse = csv.ParseOptions(delimiter=separator, newlines_in_values=True, invalid_row_handler=remember)
    # Without threads, or a bad row would have no number.
    read = csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES)
    binary = _arrow("pyarrow").binary()
    with _explained(name, bad_rows):
        header = _header(stream, name, separator)
        check_columns(name, columns, header)
        convert = csv.ConvertOptions(
            column_types=dict.fromkeys(columns, binary),
            include_columns=list(columns),
            null_values=[],
            strings_can_be_null=False,
            check_utf8=False,
        )
        reader = csv.open_csv(stream, read_options=read, parse_options=parse, convert_options=convert)
    first = 1
    while True:
        with _explained(name, bad_rows):
            batch = next(reader, None)
        if batch is None:
            return
        numbers = np.arange(first, first + batch.num_rows)
        yield _as_text(Block(name, dict(zip(batch.schema.names, batch.columns, strict=True)), numbers))
        first += batch.num_rows


def _header(stream: Any, name: str, separator: str) -> list[str]:
    """The names of the columns; the stream is put back to its beginning."""
    csv = _arrow("pyarrow.csv")
    line = stream.readline().removeprefix(b"\xef\xbb\xbf")
    stream.seek(0)
    if not line.strip():
        raise DataError(f"{name}: is empty; a header with the names of the columns is expected")
    parse = csv.ParseOptions(delimiter=separator)
    names = csv.read_csv(_arrow("pyarrow").py_buffer(line.rstrip(b"\r\n") + b"\n"), parse_options=parse).column_names
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice is not None:
        raise DataError(f"{name}: the header has the column '{twice}' twice; rename one")
    return list(names)


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
    with path.open("rb") as opened:  # a path would make columns out of folders called like 'site=3'
        with _explained(str(path), []):
            file = parquet.ParquetFile(opened)
            names = list(file.schema_arrow.names)
        check_columns(str(path), columns, names)
        batches = file.iter_batches(batch_size=_BLOCK_ROWS, columns=list(columns))
        first = 1
        while True:
            with _explained(str(path), []):
                batch = next(batches, None)
            if batch is None:
                return
            numbers = np.arange(first, first + batch.num_rows)
            yield Block(str(path), dict(zip(batch.schema.names, batch.columns, strict=True)), numbers)
            first += batch.num_rows


def check_columns(table: str, wanted: Sequence[str], there: Sequence[str]) -> None:
    """Refuse a table that lacks a column; the nearest name that it has comes first."""
    for column in wanted:
        if column not in there:
            raise DataError(f"{table}: " + unknown("column", column, there))


@contextlib.contextmanager
def _explained(name: str, bad_rows: list[int]) -> Iterator[None]:
    """What the reader raises, without the values that it quotes."""
    pa = _arrow("pyarrow")
    try:
        yield
    except DataError:
        raise
    except (pa.ArrowException, OSError, EOFError, zlib.error, ValueError) as error:
        if bad_rows:
            # The reader counts the header as row 1.
            raise DataError(
                f"{name}: row {bad_rows[0] - 1} has more or fewer cells than the header has columns; check its quotes"
            ) from None
        raise DataError(f"{name}: damaged, or not the table that its name says ({type(error).__name__})") from None


def _arrow(module: str) -> Any:
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError:
        raise DataError(f"reading tables of health records needs pyarrow: {how_to_install('tables')}") from None


Reader = Callable[[Sequence[str]], Iterator[Block]]
"""Gives the named columns of a table, block by block."""
