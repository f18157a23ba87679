"""Which rows of a table `--rows` means."""

from __future__ import annotations

from collections.abc import Iterator

from laconic.errors import ConfigError, unknown
from laconic_studies.reproduce.tables import Row, Table


def choose_rows(table: Table, texts: tuple[str, ...]) -> list[Row]:
    """The rows that '3', '5-8', a scheme's name or 'headline' choose, separated by commas; all if nothing is given."""
    words = [word.strip().lower() for text in texts for word in text.split(",") if word.strip()]
    if texts and not words:
        raise ConfigError("--rows is empty: give numbers (3), ranges (5-8), schemes (fl-cs) or headline")
    chosen = {number for word in words for number in _numbers(table, word)} if words else range(1, len(table.rows) + 1)
    return [row for row in table.rows if row.number in chosen]


def _numbers(table: Table, word: str) -> Iterator[int]:
    low, dash, high = word.partition("-")
    if low.isdigit() and (not dash or high.isdigit()):
        first, last = int(low), int(high) if dash else int(low)
        if first > last:
            raise ConfigError(f"--rows {word}: a range goes from the smaller number to the larger one")
        if first < 1 or last > len(table.rows):
            raise ConfigError(f"--rows {word}: {table.name} has rows 1 to {len(table.rows)}")
        yield from range(first, last + 1)
        return
    if word == "headline":
        yield from table.headline
        return
    schemes = {row.scheme for row in table.rows}
    if word not in schemes:
        raise ConfigError("--rows: " + unknown(f"scheme in {table.name}", word, {*schemes, "headline"}))
    yield from (row.number for row in table.rows if row.scheme == word)
