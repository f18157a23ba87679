"""How a text table is written: which character separates its cells, and whether its numbers have a decimal comma."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence

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
