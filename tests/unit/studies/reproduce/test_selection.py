"""`--rows`: numbers, ranges, schemes, the headline; and what it refuses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laconic.errors import ConfigError
from laconic_studies.reproduce.selection import choose_rows
from laconic_studies.reproduce.tables import load_table

TABLE = load_table("eurosp-table3")


def numbers(*texts: str) -> list[int]:
    return [row.number for row in choose_rows(TABLE, texts)]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ((), list(range(1, 21))),
        (("3",), [3]),
        (("5-8",), [5, 6, 7, 8]),
        (("8, 2-3",), [2, 3, 8]),
        (("fl-cs",), [3, 9, 15]),
        (("FL-CS-DP",), [6, 12, 18]),
        (("1,fl-std-dp",), [1, 20]),
        (("1", "2"), [1, 2]),
        (("headline",), [3, 6, 19, 20]),
        (("3,3,fl-cs",), [3, 9, 15]),
    ],
)
def test_rows_are_chosen_in_printed_order(texts: tuple[str, ...], expected: list[int]) -> None:
    assert numbers(*texts) == expected


@given(st.sets(st.integers(1, 20), min_size=1))
def test_any_set_of_numbers(chosen: set[int]) -> None:
    assert numbers(",".join(map(str, chosen))) == sorted(chosen)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("21", "eurosp-table3 has rows 1 to 20"),
        ("0", "has rows 1 to 20"),
        ("19-21", "has rows 1 to 20"),
        ("8-5", "from the smaller number"),
        ("fl-sc", "did you mean 'fl-cs'"),
        ("fl-top", "unknown scheme in eurosp-table3"),
        ("-3", "unknown scheme"),
        (",", "--rows is empty"),
        ("", "--rows is empty"),
    ],
)
def test_bad_rows_are_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        numbers(text)
