"""A chart as inline SVG: lines or steps with their points, a legend, and the same numbers as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from laconic.report.drawing.markup import Markup, folded, joined, table, tag
from laconic.report.drawing.scales import Axis, drawable

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
        [_drawn(number, s, points, x, y) for number, s, points in drawn],
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


def _drawn(number: int, series: Series, points: list[tuple[float, float]], x: Axis, y: Axis) -> Markup:
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
