"""HTML that cannot be forgotten to be escaped: whatever is not `Markup` already is text."""

from __future__ import annotations

import html
from collections.abc import Iterable

_EMPTY = {"meta", "br", "hr", "input", "link"}
_DRAWN = {"path", "line", "rect", "circle", "use"}


class Markup(str):
    """Text that is HTML, made by `tag`."""

    __slots__ = ()


def tag(name: str, /, *content: object, **attributes: object) -> Markup:
    """An element. `class_` is `class`, `aria_label` is `aria-label`; None and False leave an attribute out."""
    words = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        spelt = key.rstrip("_").replace("_", "-")
        words.append(spelt if value is True else f'{spelt}="{_escaped(value)}"')
    opened = " ".join(words)
    if name in _EMPTY:
        return Markup(f"<{opened}>")
    if name in _DRAWN and not content:
        return Markup(f"<{opened}/>")
    return Markup(f"<{opened}>{joined(*content)}</{name}>")


def joined(*content: object) -> Markup:
    """Elements and texts, one after the other; texts are escaped."""
    return Markup("".join(_text(part) for part in content))


def _text(part: object) -> str:
    if part is None:
        return ""
    if isinstance(part, Markup):
        return part
    if isinstance(part, list | tuple) or (isinstance(part, Iterable) and not isinstance(part, str)):
        return joined(*part)
    return _escaped(part)


def _escaped(part: object) -> str:
    """Text for HTML. Half of a surrogate pair, as in a file name that is not UTF-8, cannot be written: it is a '?'."""
    return html.escape(str(part)).encode("utf-8", "replace").decode()


def table(
    head: Iterable[object], rows: Iterable[Iterable[object]], *, caption: str, class_: str | None = None
) -> Markup:
    """A table with a caption. The first cell of every row is its heading. It scrolls sideways where it is too wide."""
    lines = [list(row) for row in rows]
    top = [tag("th", cell, scope="col") for cell in head]
    body = [tag("tr", tag("th", row[0], scope="row"), [tag("td", cell) for cell in row[1:]]) for row in lines]
    made = tag(
        "table",
        tag("caption", caption),
        tag("thead", tag("tr", top)) if top else None,
        tag("tbody", body),
        class_=class_,
    )
    return tag("div", made, class_="scroll", tabindex="0", role="group", aria_label=caption)


def pairs(lines: Iterable[tuple[object, object]]) -> Markup:
    """(heading, text) pairs, one below the other."""
    return tag("dl", [tag("div", tag("dt", heading), tag("dd", text)) for heading, text in lines])


def folded(title: str, *content: object, key: str) -> Markup:
    """What is shown on request. The key lets a live page keep it open."""
    return tag("details", tag("summary", title), content, data_key=key)
