"""Elements, charts and bars as HTML and inline SVG, for pages that load nothing.

`tag` makes HTML that cannot be forgotten to be escaped: what is not `Markup` already is text. `axis_for` finds an
axis and the round numbers on it. `chart` draws lines or steps with their points, a legend, and the same numbers as a
table; `bars` a few amounts of one kind.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True, kw_only=True)
class Axis:
    """An axis with a name (and unit), its ends, and how its numbers are written."""

    label: str
    low: float
    high: float
    log: bool = False
    whole: bool = False
    """Whether only whole numbers make sense."""
    written: Callable[[float], str] = lambda value: f"{value:g}"
    """How a value of a point is written."""
    marked: Callable[[float], str] = lambda value: f"{value:,.10g}"
    """How the round numbers along the axis are written."""

    def place(self, value: float) -> float:
        """0 at the lower end, 1 at the upper one."""
        if self.log:
            span = math.log(self.high) - math.log(self.low)
            return (math.log(value) - math.log(self.low)) / span
        return (value - self.low) / (self.high - self.low)

    @property
    def ticks(self) -> list[float]:
        if self.log:
            return _log_ticks(self.low, self.high)
        return [value for value in _ticks(self.low, self.high) if not self.whole or value == int(value)]


_LARGEST, _SMALLEST = 1e100, 1e-100


def drawable(value: float, log: bool = False) -> bool:
    """Whether a value has a place on an axis: it is finite, and no power of it leaves the range of floats."""
    return abs(value) <= _LARGEST and (value >= _SMALLEST or not log)


def axis_for(
    label: str,
    values: Iterable[float],
    *,
    log: bool = False,
    whole: bool = False,
    low: float | None = None,
    high: float | None = None,
    written: Callable[[float], str] | None = None,
    marked: Callable[[float], str] | None = None,
) -> Axis:
    """An axis on which all values have a place; logarithmic only where all are positive."""
    known = [value for value in values if drawable(value)]
    log = log and bool(known) and all(drawable(value, log=True) for value in known)
    least = min(known, default=0.0) if low is None else low
    most = max(known, default=1.0) if high is None else high
    if log and most / least < 1.5:
        least, most = least / 1.3, most * 1.3
    elif most - least <= 1e-12 * max(abs(most), abs(least), _SMALLEST):
        room = max(0.5, abs(least) / 10)  # next to 1e18 a half is nothing
        least, most = least - (room if low is None else 0.0), least + (room if low is None else 2 * room)
    writing = {key: value for key, value in (("written", written), ("marked", marked)) if value is not None}
    return Axis(label=label, low=least, high=most, log=log, whole=whole, **writing)


def _ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Multiples of 1, 2, 2.5 or 5 times a power of ten."""
    rough = (high - low) / about
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * nice for nice in (1, 2, 2.5, 5, 10) if power * nice >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    count = math.floor(high / step + 1e-9) - first + 1
    return [round((first + number) * step, 12) for number in range(count)]


def _log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten; with 2 and 5 of each where there are few."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1,), (1, 3), (1, 2, 5)):
        found = [d * 10.0**p for p in powers for d in digits if low * 0.999 <= d * 10.0**p <= high * 1.001]
        if len(found) >= 3:
            break
    if len(found) < 2:
        return _ticks(low, high, 4)
    return found if len(found) <= 7 else found[:: -(-len(found) // 6)]


WIDTH, HEIGHT = 480, 300
LEFT, RIGHT, TOP, BOTTOM = 70, 16, 12, 48
MOST_POINTS = 160
"""More cannot be told apart at this width: of a longer series every so many is drawn, and the last."""
_FEW = 50
"""Of more points than this, each is drawn smaller."""
_SHAPES = (
    "M-3,0a3,3 0 1,0 6,0a3,3 0 1,0 -6,0",
    "M-2.7,-2.7h5.4v5.4h-5.4z",
    "M0,-3.4L3.2,2.4H-3.2z",
    "M0,-3.8L3.8,0L0,3.8L-3.8,0z",
    "M-3.2,-2.4H3.2L0,3.4z",
    "M-3.4,-1.2h2.2v-2.2h2.4v2.2h2.2v2.4h-2.2v2.2h-2.4v-2.2h-2.2z",
    "M-3,-3L3,3M-3,3L3,-3",
)


@dataclass(frozen=True, kw_only=True)
class Series:
    """Points (x, y) under one name. `kind`: 'line', 'points' alone, or 'limit', a dashed line without points."""

    name: str
    points: Sequence[tuple[float, float]]
    kind: str = "line"
    number: int | None = None
    """Which colour and marker; by default that of its place in the chart."""


def _shape(number: int) -> str:
    """Another one for every colour, and for the same colour when colours are used again."""
    return _SHAPES[(number + number // len(_SHAPES)) % len(_SHAPES)]


def chart(
    key: str, title: str, series: Sequence[Series], x: Axis, y: Axis, *, about: str = "", note: object = None
) -> Markup:
    """A figure. `about` says in a sentence what it shows; it is read aloud where the picture cannot be seen."""
    drawn = [(number if s.number is None else s.number, s, _shown(s.points, x, y)) for number, s in enumerate(series)]
    picture = tag(
        "svg",
        tag("title", title, id=f"{key}-title"),
        tag("desc", about or _described(drawn, x, y), id=f"{key}-about"),
        _grid(x, y),
        [_drawn_series(number, s, points, x, y) for number, s, points in drawn],
        tag("line", class_="cross", y1=TOP, y2=HEIGHT - BOTTOM, visibility="hidden"),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_labelledby=f"{key}-title {key}-about",
    )
    plot = tag(
        "div", picture, class_="plot", tabindex="0", role="group", aria_label=f"{title}. Arrow keys read the points."
    )
    return tag(
        "figure",
        tag("figcaption", tag("strong", title), joined(" ", tag("span", about, class_="about")) if about else None),
        _legend(drawn),
        plot,
        tag("p", class_="readout", aria_live="polite"),
        note,
        folded("The numbers as a table", _numbers(title, drawn, x, y), key=f"{key}-table"),
        class_="chart",
        data_chart=key,
    )


Drawn = tuple[int, Series, list[tuple[float, float]]]


def _shown(points: Sequence[tuple[float, float]], x: Axis, y: Axis) -> list[tuple[float, float]]:
    """What has a place on the axes, thinned out."""
    known = [(a, b) for a, b in points if drawable(a, x.log) and drawable(b, y.log)]
    if len(known) <= MOST_POINTS:
        return known
    step = -(-len(known) // MOST_POINTS)
    return [*known[:-1:step], known[-1]]


def _at(point: tuple[float, float], x: Axis, y: Axis) -> tuple[float, float]:
    across = LEFT + x.place(point[0]) * (WIDTH - LEFT - RIGHT)
    return round(across, 1), round(TOP + (1 - y.place(point[1])) * (HEIGHT - TOP - BOTTOM), 1)


def _grid(x: Axis, y: Axis) -> Markup:
    bottom, parts = HEIGHT - BOTTOM, []
    for value in y.ticks:
        height = _at((x.low, value), x, y)[1]
        parts.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=height, y2=height, class_="grid"))
        parts.append(tag("text", y.marked(value), x=LEFT - 7, y=height + 4, class_="tick end"))
    for value in x.ticks:
        across = _at((value, y.low), x, y)[0]
        parts.append(tag("line", x1=across, x2=across, y1=bottom, y2=bottom + 5, class_="axis"))
        parts.append(tag("text", x.marked(value), x=across, y=bottom + 18, class_="tick middle"))
    parts.append(tag("path", d=f"M{LEFT},{TOP}V{bottom}H{WIDTH - RIGHT}", class_="axis"))
    middle = (TOP + bottom) / 2
    parts.append(tag("text", x.label, x=(LEFT + WIDTH - RIGHT) / 2, y=HEIGHT - 8, class_="label middle x-label"))
    parts.append(
        tag("text", y.label, x=12, y=middle, class_="label middle y-label", transform=f"rotate(-90 12 {middle})")
    )
    return tag("g", parts, class_="axes")


def _drawn_series(number: int, series: Series, points: list[tuple[float, float]], x: Axis, y: Axis) -> Markup:
    places = [_at(point, x, y) for point in points]
    parts = []
    if series.kind != "points" and places:
        parts.append(tag("polyline", points=" ".join(f"{a},{b}" for a, b in places), class_="line"))
    if series.kind != "limit":
        shape, size = _shape(number), "" if len(places) <= _FEW else " scale(.6)"
        parts += [
            tag(
                "path",
                d=shape,
                transform=f"translate({a},{b}){size}",
                class_="point",
                data_x=x.written(point[0]),
                data_y=y.written(point[1]),
                data_at=a,
            )
            for (a, b), point in zip(places, points, strict=True)
        ]
    return tag("g", parts, class_=f"series s{number % len(_SHAPES)} {series.kind}", data_name=series.name)


def _legend(drawn: Sequence[Drawn]) -> Markup | None:
    """Names with colour and shape; a button hides its series."""
    if len(drawn) < 2:
        return None
    entries = []
    for number, series, _ in drawn:
        sign = tag("path", d="M-9,0H9", class_="line") if series.kind != "points" else None
        mark = tag("path", d=_shape(number), class_="point") if series.kind != "limit" else None
        picture = tag(
            "svg",
            tag("g", sign, mark, class_=f"series s{number % len(_SHAPES)} {series.kind}"),
            viewBox="-10 -6 20 12",
            class_="sign",
            aria_hidden="true",
        )
        entries.append(tag("li", tag("button", picture, series.name, type="button", aria_pressed="true")))
    return tag("ul", entries, class_="legend")


def _described(drawn: Sequence[Drawn], x: Axis, y: Axis) -> str:
    """Where each series begins and ends."""
    texts = []
    for _, series, points in drawn:
        if points:
            ends = [f"{y.written(b)} at {x.written(a)}" for a, b in (points[0], points[-1])]
            texts.append(f"{series.name}: from {ends[0]} to {ends[1]}")
    return f"{y.label} against {x.label}. {'. '.join(texts)}."


def _numbers(title: str, drawn: Sequence[Drawn], x: Axis, y: Axis) -> Markup:
    shown = [(series, dict(points)) for _, series, points in drawn if series.kind != "limit"]
    places = sorted({a for _, found in shown for a in found})
    rows = [[x.written(a), *(y.written(found[a]) if a in found else "–" for _, found in shown)] for a in places]
    return table([x.label, *(series.name for series, _ in shown)], rows, caption=title)


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
