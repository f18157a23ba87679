"""Curves of a run: the metric over rounds, ε and bytes; both ε over rounds, with the budget."""

from __future__ import annotations

from laconic.figures import at_most, rounded_up
from laconic.metrics import titles
from laconic.report.drawing import Axis, Markup, Series, axis_for, chart, tag
from laconic.report.ledger import human_bytes
from laconic.report.page.metrics import budget_of, curve, main_metric, present, sent_up, short
from laconic.report.page.reading import RunView, number

OUTSIDER, SERVER = "outsider's ε", "server's ε"


def quality(view: RunView) -> Markup | None:
    """How good the model was, and for what price."""
    metric = main_metric(view)
    if metric is None:
        return None
    charts = [_over_rounds(view), _over_epsilon(view, metric), _over_bytes(view, metric), _losses(view)]
    note = "All figures are of test records unless a name says otherwise. The best round is chosen on them, so it is"
    return tag(
        "section",
        tag("h2", "How good the model is"),
        tag("p", f"{note} optimistic.", class_="note"),
        tag("div", charts, class_="charts"),
        id="quality",
        data_part="quality",
    )


def value_axis(metric: str, values: list[float]) -> Axis:
    """Shares from 0 to 1; a loss as it comes."""
    if metric.endswith("loss"):
        return axis_for(titles()[metric], values, written=short)
    return axis_for(titles().get(metric, metric), values, low=0.0, high=1.0, written=lambda value: f"{value:.3g}")


def round_bytes(count: float) -> str:
    """10000 → '10 kB', for the numbers along an axis."""
    figure, unit = human_bytes(count).split()
    return f"{float(figure):g} {unit}"


def round_axis(rounds: list[int]) -> Axis:
    values = [float(number) for number in rounds]
    return axis_for("round", values, low=0.0, whole=True, written=lambda value: f"{value:,.0f}")


def _over_rounds(view: RunView) -> Markup:
    shown = [key for key in present(view.rows) if not key.endswith("loss")][:5]
    shown = shown or present(view.rows)[:2]
    series = [Series(name=titles()[key], points=curve(view.rows, key)) for key in shown]
    values = [value for one in series for _, value in one.points]
    y = value_axis(shown[0], values)
    if len(shown) > 1:
        y = Axis(label="metric", low=y.low, high=y.high, written=y.written)
    return chart("metric-rounds", f"{_named(shown)} over rounds", series, round_axis(_rounds(view)), y)


def _named(keys: list[str]) -> str:
    return _capital(titles()[keys[0]]) if len(keys) == 1 else "Metrics"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _rounds(view: RunView) -> list[int]:
    return [row["round"] for row in view.rows]


def _over_epsilon(view: RunView, metric: str) -> Markup | None:
    if view.broken:  # the ε of the rows do not hold
        return None
    series = []
    for key, name in (("epsilon", OUTSIDER), ("participant_epsilon", SERVER)):
        points = [(e, v) for row in view.rows if (e := number(row, key)) and (v := number(row, metric)) is not None]
        if points:
            series.append(Series(name=f"over the {name}", points=points))
    if not series:
        return None
    every = [point for one in series for point in one.points]
    x = axis_for("ε spent so far", [e for e, _ in every], log=True, written=at_most)
    title = f"{_capital(titles()[metric])} over ε"
    return chart("metric-epsilon", title, series, x, value_axis(metric, [v for _, v in every]))


def _over_bytes(view: RunView, metric: str) -> Markup | None:
    sent = sent_up(view.rows)
    points = [(sent[at], value) for at, value in curve(view.rows, metric) if sent[at] > 0]
    if not points:
        return None
    x = axis_for(
        "sent up by all clients so far", [b for b, _ in points], log=True, written=human_bytes, marked=round_bytes
    )
    title = f"{_capital(titles()[metric])} over bytes"
    y = value_axis(metric, [v for _, v in points])
    return chart("metric-bytes", title, [Series(name=titles()[metric], points=points)], x, y)


def _losses(view: RunView) -> Markup | None:
    shown = [key for key in ("loss", "holdout_loss") if curve(view.rows, key)]
    if not shown or main_metric(view) == "loss":
        return None
    series = [Series(name=titles()[key], points=curve(view.rows, key)) for key in shown]
    values = [value for one in series for _, value in one.points]
    return chart("loss-rounds", "Loss over rounds", series, round_axis(_rounds(view)), value_axis("loss", values))


def spending(view: RunView) -> Markup | None:
    """Both ε over rounds, with the limits of the budget."""
    rounds, series = _rounds(view), []
    for place, (key, name) in enumerate((("epsilon", OUTSIDER), ("participant_epsilon", SERVER))):
        if points := curve_of(view, key):
            series.append(Series(name=name, points=points, number=place))
    if not series:
        return None
    last = max(rounds[-1], view.planned or 0)
    for place, (limit, name) in enumerate(zip(budget_of(view), (OUTSIDER, SERVER), strict=True)):
        if limit is not None:
            ends = [(0.0, limit), (float(last), limit)]
            series.append(
                Series(name=f"budget of the {name}: {rounded_up(limit)}", points=ends, kind="limit", number=place)
            )
    y = axis_for("ε", [value for one in series for _, value in one.points], log=True, written=at_most)
    picture = chart("epsilon-rounds", "ε over rounds", series, round_axis([*rounds, last]), y)
    text = "Every round that is charged makes both ε larger. A run stops before the round that would exceed a budget."
    if all(limit is None for limit in budget_of(view)):
        text += " This run had none: its noise and its rounds were given."
    if view.broken:
        text += " In this run attackers left out noise, so these ε do not hold: those that do are above."
    return tag(
        "section",
        tag("h2", "How the privacy was spent"),
        tag("p", text),
        tag("div", picture, class_="charts"),
        id="spending",
        data_part="spending",
    )


def curve_of(view: RunView, key: str) -> list[tuple[float, float]]:
    return [(float(row["round"]), value) for row in view.rows if (value := number(row, key)) is not None]
