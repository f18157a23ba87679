"""Several runs on one page: a table, and one named metric of all of them over rounds, bytes and ε."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from laconic.figures import at_most
from laconic.metrics import titles
from laconic.report.drawing import Axis, Markup, Series, axis_for, chart, joined, table, tag
from laconic.report.ledger import human_bytes
from laconic.report.page.curves import round_axis, round_bytes, value_axis
from laconic.report.page.document import document
from laconic.report.page.reading import RunView, best, curve, number, sent_up, short, smaller_is_better

_DRAWN = 21
"""More curves in one picture cannot be told apart."""


def short_names(paths: Sequence[str]) -> list[str]:
    """What tells the runs apart: their paths without the folders that all of them share."""
    parts = [Path(os.path.abspath(path)).parts for path in paths]
    if len(parts) == 1:
        return [parts[0][-1]]
    shared = 0
    while all(len(part) > shared + 1 for part in parts) and len({part[shared] for part in parts}) == 1:
        shared += 1
    return ["/".join(part[shared:]) for part in parts]


def overlay_parts(
    views: Mapping[str, RunView], metric: str | None, links: Mapping[str, str] | None = None
) -> dict[str, Markup]:
    """The sections. `links` leads from a run's name to its own page, where there is one."""
    named = "no metric yet" if metric is None else _named(metric)
    head = tag(
        "header",
        tag("p", "Laconic, several runs", class_="kicker"),
        tag("h1", f"{len(views)} runs side by side"),
        tag("p", f"Metric of all rows and curves: {named}.", class_="status"),
        data_part="head",
    )
    rows = [_row(name, view, metric, links or {}) for name, view in views.items()]
    label = "metric" if metric is None else titles().get(metric, metric)
    columns = [
        "run",
        "rounds",
        f"{label}, last",
        f"{label}, best",
        "at round",
        "outsider's ε",
        "server's ε",
        "up",
        "down",
    ]
    caption = (
        "Runs. The best round is chosen on test records, so it is optimistic. ε is of all that is known to be spent;"
        " where attackers left out noise, it is the one that holds."
    )
    listed = tag("section", tag("h2", "Table"), table(columns, rows, caption=caption, class_="runs"), data_part="table")
    return {"head": head, "table": listed, "curves": _curves(views, metric)}


def overlay_page(
    views: Mapping[str, RunView],
    metric: str | None,
    *,
    live: str | None = None,
    links: Mapping[str, str] | None = None,
) -> str:
    """The page of several runs."""
    return document(f"Laconic: {len(views)} runs", list(overlay_parts(views, metric, links).values()), live=live)


def _named(metric: str) -> str:
    better = "smaller" if smaller_is_better(metric) else "larger"
    return f"{titles().get(metric, metric)} ({better} is better)"


def _row(name: str, view: RunView, metric: str | None, links: Mapping[str, str]) -> list[object]:
    found = [] if metric is None else curve(view.rows, metric)
    top = None if metric is None else best(view.rows, metric)
    shown: object = tag("a", name, href=links[name]) if name in links else name
    state = "" if view.finished else " (running or stopped)" if view.rows else " (not begun)"
    rounds = view.rows[-1]["round"] if view.rows else 0
    return [
        joined(shown, tag("span", state, class_="note")),
        f"{rounds:,}" + (f" of {view.planned:,}" if view.planned and view.planned != rounds else ""),
        short(found[-1][1]) if found else "–",
        short(top[1]) if top else "–",
        f"{top[0]:,}" if top else "–",
        *("–" if e is None else at_most(e) for e in view.epsilons()),
        *(human_bytes(sum(number(row, f"bytes_{way}") or 0.0 for row in view.rows)) for way in ("up", "down")),
    ]


def _curves(views: Mapping[str, RunView], metric: str | None) -> Markup:
    drawn = dict(list(views.items())[:_DRAWN])
    if metric is None or not any(curve(view.rows, metric) for view in drawn.values()):
        return tag("section", tag("h2", "Curves"), tag("p", "No run was evaluated yet."), data_part="curves")
    y = value_axis(metric, [value for view in drawn.values() for _, value in curve(view.rows, metric)])
    rounds = round_axis([row["round"] for view in drawn.values() for row in view.rows])
    charts = [
        _overlaid(
            "rounds", drawn, metric, lambda view: {row["round"]: float(row["round"]) for row in view.rows}, rounds, y
        ),
        _overlaid("bytes", drawn, metric, lambda view: sent_up(view.rows), None, y),
        _overlaid("ε", drawn, metric, _spent, None, y),
    ]
    note = f"The first {_DRAWN} of {len(views)} runs." if len(views) > _DRAWN else None
    return tag(
        "section",
        tag("h2", "Curves"),
        tag("p", note) if note else None,
        tag("div", charts, class_="charts"),
        data_part="curves",
    )


def _spent(view: RunView) -> dict[int, float]:
    """The outsider's ε by round; nothing where attackers left out noise, as it does not hold there."""
    if view.broken:
        return {}
    return {row["round"]: value for row in view.rows if (value := number(row, "epsilon")) is not None}


_LABELS = {"bytes": "sent up by all clients so far", "ε": "outsider's ε spent so far"}
_KEYS = {"rounds": "overlay-rounds", "bytes": "overlay-bytes", "ε": "overlay-epsilon"}


def _overlaid(
    over: str,
    views: Mapping[str, RunView],
    metric: str,
    price: Callable[[RunView], Mapping[int, float]],
    x: Axis | None,
    y: Axis,
) -> Markup | None:
    """The metric of every run that has both; a run keeps its colour in all pictures."""
    series = []
    for place, (name, view) in enumerate(views.items()):
        paid = price(view)
        points = [(paid[at], value) for at, value in curve(view.rows, metric) if paid.get(at, 0.0) > 0]
        if points:
            series.append(Series(name=name, points=points, number=place))
    if not series:
        return None
    if x is None:
        writing = {"written": human_bytes, "marked": round_bytes} if over == "bytes" else {"written": at_most}
        values = [value for one in series for value, _ in one.points]
        x = axis_for(_LABELS[over], values, log=True, **writing)
    name = titles().get(metric, metric)
    return chart(_KEYS[over], f"{name[:1].upper()}{name[1:]} over {over}", series, x, y)
