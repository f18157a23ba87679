"""Horizontal bars: a few amounts of one kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from laconic.report.drawing.markup import Markup, tag

_WIDTH, _LINE = 480, 34


def bars(key: str, title: str, amounts: Sequence[tuple[str, float]], written: Callable[[float], str]) -> Markup:
    """A figure with one bar per amount; every bar has its name and its number beside it, so no axis is needed."""
    most = max((amount for _, amount in amounts), default=0) or 1
    rows = []
    for number, (name, amount) in enumerate(amounts):
        top = number * _LINE
        width = max(1.0, amount / most * (_WIDTH - 4))
        rows.append(tag("text", f"{name}: {written(amount)}", x=2, y=top + 13, class_="tick"))
        rows.append(tag("rect", x=2, y=top + 18, width=round(width, 1), height=10, class_="bar"))
    picture = tag(
        "svg",
        tag("title", title, id=f"{key}-title"),
        tag("desc", "; ".join(f"{name}: {written(amount)}" for name, amount in amounts), id=f"{key}-about"),
        rows,
        viewBox=f"0 0 {_WIDTH} {len(amounts) * _LINE}",
        role="img",
        aria_labelledby=f"{key}-title {key}-about",
    )
    return tag("figure", tag("figcaption", tag("strong", title)), picture, class_="chart bars", data_bars=key)
