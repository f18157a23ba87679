"""The result in words: how the run ended, its last and its best round, an attack if there was one."""

from __future__ import annotations

from laconic.report.drawing.markup import Markup, pairs, tag
from laconic.report.page.reading import RunView
from laconic.report.summary_lines import result_lines


def result(view: RunView) -> Markup | None:
    """The section; None while the run goes on."""
    if not view.finished:
        return None
    try:
        lines = result_lines(dict(view.summary))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):  # a summary of another version
        return None
    return tag(
        "section",
        tag("h2", "Result"),
        pairs([(heading.strip(), text) for heading, text in lines]),
        id="result",
        data_part="result",
    )
