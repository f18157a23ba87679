"""What is wrong with the cells of a table, column by column: collected, and said at once with counts.

Messages name rows and columns, never values: the values are what is to be kept private.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from laconic.data.files.user_file import named, refused
from laconic.errors import DataError, one_line

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
