"""What the readers of a user's file share: which files there are, what separates cells, how files are refused.

`Problems` collects what is wrong with the cells of a table, column by column, and says it at once with counts.
Messages name files, rows and columns, never values: the values are what is to be kept private.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
import stat
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from laconic.errors import DataError, nearest, one_line

SUFFIXES = (".npz", ".csv", ".csv.gz", ".parquet")

# A few kilobytes can unpack to more than the memory holds. Tables and arrays of real records are rarely packed 50-fold.
MOST_TIMES = 200
MOST_UNPACKED = 1 << 29
MOST_TEXT = 1 << 26  # less, as a table takes some ten times the memory of its text while it is parsed
LONGEST_TEXT = 1 << 20  # of one record; the longest review or comment that is known has some ten thousand characters
_NAME, _NAMES, _REASON, _MOST_MISSING = 60, 10, 200, 40


def suffix(file: Path) -> str | None:
    return next((ending for ending in SUFFIXES if file.name.lower().endswith(ending)), None)


def looks_like_a_path(name: str) -> bool:
    """Whether the text means a file or a folder, and not a name that the program knows."""
    endings = (*SUFFIXES, ".toml", ".txt", ".tsv", ".gz", ".zip", ".json", ".xlsx", ".xls", ".png", ".jpg", ".jpeg")
    return "/" in name or "\\" in name or name.startswith(("~", ".")) or name.lower().endswith(endings)


def no_such_file(name: str) -> str:
    """The message for a path that leads nowhere, with the nearest name that is there."""
    path = Path(name).expanduser()
    folder = path.parent
    if not folder.is_dir():
        return one_line(f"{name}: no such file or folder, since there is no folder {folder}")
    try:
        near = nearest(path.name, (entry.name for entry in folder.iterdir()))
    except OSError:
        near = None
    where = "here" if str(folder) == "." else f"in {folder}"
    hint = f"; did you mean {folder / near}?" if near else f" (looked {where})"
    return one_line(f"{name}: no such file or folder{hint}")


def refused(file: Path | str, problem: str) -> DataError:
    """The error for a file; one line, for any names in it."""
    return DataError(one_line(f"{file}: {problem}"))


def unreadable(file: Path, error: BaseException) -> DataError:
    if isinstance(error, MemoryError):
        return refused(file, "needs more memory than there is; split it, or use a larger machine")
    reason = one_line(" ".join(str(error).split()) or type(error).__name__, _REASON)
    if isinstance(error, UnicodeDecodeError):
        return refused(file, f"damaged, or text that is not UTF-8 ({reason}); save it as UTF-8")
    return refused(file, f"damaged, empty or not a {suffix(file)} file ({reason})")


def named(name: object) -> str:
    """A name out of the file, in quotes and not too long."""
    return f"'{one_line(name, _NAME)}'"


def listed(names: Iterable[object]) -> str:
    """The first names of many."""
    shown = [one_line(name, _NAME) for name in names]
    more = len(shown) - _NAMES
    return ", ".join(shown[:_NAMES]) + (f" and {more:,} more" if more > 0 else "")


def missing_columns(names: Sequence[str], there: Collection[object]) -> str:
    """'missing columns 'agee' (did you mean 'age'?), 'sex'': the nearest name that is there beside each."""
    hints = []
    for name in names:
        near = nearest(name, map(str, there))
        hints.append(f"{named(name)} (did you mean {named(near)}?)" if near else named(name))
    more = f" and {len(hints) - _MOST_MISSING} more" if len(hints) > _MOST_MISSING else ""
    return f"missing column{'s' * (len(hints) > 1)} {', '.join(hints[:_MOST_MISSING])}{more}"


def open_file(file: Path) -> BinaryIO:
    """The file, unless it is a pipe or a device: that may never end, or never begin."""
    mode = file.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise refused(file, "is a pipe or a device; a regular file is expected")
    return file.open("rb")


def arrow_file(file: Path) -> Any:
    """The file, opened by Arrow. A Python file would be read by Arrow's threads, and what it gave be freed by them.

    Python stops a thread that asks for its lock while the interpreter ends, and C++ aborts the process for that.
    """
    import pyarrow as pa

    open_file(file).close()
    return pa.OSFile(str(file))


def lines_of(file: Path, opened: BinaryIO, way_out: str) -> Iterator[bytes]:
    """Its lines, of which none is read whole where it cannot be one record."""
    row = 0
    while line := opened.readline(LONGEST_TEXT + 1):
        row += 1
        if len(line) > LONGEST_TEXT:
            raise refused(file, f"line {row} is longer than {LONGEST_TEXT >> 20} MiB; {way_out}")
        yield line


def too_much(unpacked: int, packed: int, most: int = MOST_UNPACKED) -> bool:
    """Whether so small a file cannot be meant to hold so much."""
    return unpacked > most and unpacked > MOST_TIMES * packed


def refused_as_too_much(file: Path | str, way_out: str, most: int = MOST_UNPACKED) -> DataError:
    return refused(file, f"unpacks to more than {MOST_TIMES} times its size and {most >> 20} MiB; {way_out}")


def gunzipped(file: Path, opened: BinaryIO) -> BinaryIO:
    """What a gzipped file unpacks to, as it is read; a `DataError` once that is too much."""
    return io.BufferedReader(_Unpacked(file, opened), 1 << 18)


class _Unpacked(io.RawIOBase):
    def __init__(self, file: Path, opened: BinaryIO) -> None:
        self._file, self._packed = file, file.stat().st_size
        self._stream = gzip.GzipFile(fileobj=opened)
        self._count = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._count = self._stream.seek(offset, whence)
        return self._count

    def tell(self) -> int:
        return self._stream.tell()

    def readinto(self, buffer: Any) -> int:
        count = self._stream.readinto(buffer)
        self._count += count
        if too_much(self._count, self._packed, MOST_TEXT):
            raise refused_as_too_much(self._file, "if that is right, unpack it: a plain .csv is read", MOST_TEXT)
        return count


_MOST_LISTED = 20


@dataclass
class _Found:
    first: int | None
    count: int
    way_out: str


class Problems:
    """Bad cells by column and by what is wrong with them."""

    def __init__(self, table: Path | str) -> None:
        self._table = table
        self._found: dict[tuple[str, str], _Found] = {}

    def add(self, column: object, what: str, rows: np.ndarray | None, way_out: str) -> None:
        """`rows` are the numbers of the bad rows as a person counts them; None if the whole column is bad."""
        first, count = (None, 0) if rows is None else (int(rows[0]), len(rows))
        found = self._found.setdefault((str(column), what), _Found(first, 0, way_out))
        found.count += count

    def __bool__(self) -> bool:
        return bool(self._found)

    def error(self, advice: str = "") -> DataError:
        """One error for all of them; `advice` is a way out of several at once."""
        lines = [_line(column, what, found) for (column, what), found in self._found.items()]
        more = f"; {advice}" if advice else ""
        if len(lines) == 1:
            (found,) = self._found.values()
            return refused(self._table, f"{lines[0]}; {found.way_out}{more}")
        ways = dict.fromkeys(found.way_out for found in self._found.values())
        rest = [f"and {len(lines) - _MOST_LISTED} more"] if len(lines) > _MOST_LISTED else []
        shown = [f"\n  - {one_line(line)}" for line in [*lines[:_MOST_LISTED], *rest]]
        columns = len({column for column, _ in self._found})
        head = one_line(f"{self._table}: {columns} column{'s' * (columns > 1)} to mend:")
        return DataError(head + "".join(shown) + f"\n  {one_line('; '.join(ways) + more)}")


def _line(column: str, what: str, found: _Found) -> str:
    row = "" if found.first is None else f"row {found.first}, "
    count = f", in {found.count:,} rows" if found.count > 1 else ""
    return f"{row}column {named(column)}: {what}{count}"


SEPARATORS = (",", ";", "\t", "|")
_COMMA = re.compile(r"\s*[+-]?\d*,\d+([eE][+-]?\d+)?\s*")
_POINT = re.compile(r"\s*[+-]?\d*\.\d+([eE][+-]?\d+)?\s*")
_THOUSANDS = re.compile(r"\s*[+-]?[1-9]\d{0,2},\d{3}\s*")
MIXED = "some numbers have a decimal comma, others a decimal point"
UNCLEAR = "a comma among digits, which may stand for decimals or for thousands"
WAY_OUT = "write decimals with a point, and thousands without a mark"


def separator_in(header: str) -> str:
    """The character that cuts a header into most names; a comma where none does."""
    first = header.lstrip("\ufeff").splitlines()[:1]
    try:
        found = {mark: len(next(csv.reader(first, delimiter=mark), [])) for mark in SEPARATORS}
    except csv.Error:  # said again, with its reason, when the table is read
        return ","
    best = max(found, key=lambda mark: found[mark])
    return best if found[best] > 1 else ","


class Decimals:
    """The decimal mark of every column of one file. A column keeps its mark to the end.

    "3,5" is 3.5. Where a comma separates the cells, a column of "1,234" may as well hold thousands: that is refused.
    """

    def __init__(self, separator: str = ",") -> None:
        self._separator = separator
        self._marks: dict[str, str] = {}

    def with_points(self, column: str, texts: Sequence[str]) -> tuple[Sequence[str], str]:
        """(the texts with decimal points, what is wrong with those that have a comma; nothing if it is empty)."""
        commas, known = any(has_comma(text) for text in texts), self._marks.get(column)
        points = any(_POINT.fullmatch(text) for text in texts)
        if not commas and not points:
            return texts, ""
        if (commas and points) or known == ("." if commas else ","):
            return texts, MIXED
        perhaps = commas and known is None and self._separator == ","
        if perhaps and all(_THOUSANDS.fullmatch(text) for text in texts if has_comma(text)):
            return texts, UNCLEAR
        self._marks[column] = "," if commas else "."
        return [text.replace(",", ".") if has_comma(text) else text for text in texts], ""


def has_comma(text: str) -> bool:
    """Whether a text is a number with a comma in it."""
    return _COMMA.fullmatch(text) is not None
