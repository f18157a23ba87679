"""Elements: what is text stays text."""

from __future__ import annotations

from page_tools import HOSTILE, Elements

from laconic.report.drawing import Markup, joined, pairs, table, tag


def test_texts_and_attributes_are_escaped() -> None:
    page = tag("p", HOSTILE, tag("b", "bold"), title=HOSTILE)
    elements = Elements(page)
    assert [name for name, _ in elements.found] == ["p", "b"]
    assert elements.named("p") == [{"title": HOSTILE}]
    assert "".join(elements.text) == HOSTILE + "bold"


def test_unescaped_text_would_be_noticed() -> None:
    """Guards the test above: the same text as markup makes elements."""
    assert Elements(joined(Markup(HOSTILE))).named("script")


def test_tables_and_pairs_escape_their_cells() -> None:
    page = joined(table([HOSTILE], [[HOSTILE, HOSTILE]], caption=HOSTILE), pairs([(HOSTILE, HOSTILE)]))
    assert not Elements(page).named("script") and not Elements(page).named("img")


def test_attributes_that_are_none_or_false_are_left_out() -> None:
    assert tag("p", a=None, b=False, hidden=True, data_x=0) == '<p hidden data-x="0"></p>'
