"""Who took part, what was sent, and how long it took."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from laconic.report.drawing import Markup, Series, axis_for, bars, chart, pairs, table, tag
from laconic.report.ledger import human_bytes
from laconic.report.page.curves import curve_of, round_axis
from laconic.report.page.reading import RunView, number, section

_SHOWN = 50


def cohorts(view: RunView) -> Markup | None:
    """Cohort sizes, dropouts, discarded rounds, and what nodes of a federation did not do."""
    sizes = curve_of(view, "cohort")
    if not sizes:
        return None
    series = [Series(name="cohort", points=sizes)]
    lost = [(float(row["round"]), float(gone)) for row in view.rows if (gone := _dropouts(row))]
    if lost:
        series.append(Series(name="dropouts", points=lost, kind="points"))
    discarded = [row for row in view.rows if "discarded" in row]
    if discarded:
        points = [(float(row["round"]), number(row, "cohort") or 0.0) for row in discarded]
        series.append(Series(name="discarded rounds", points=points, kind="points", number=6))
    rounds = [row["round"] for row in view.rows]
    y = axis_for("clients", [value for one in series for _, value in one.points], low=0.0, whole=True)
    picture = chart("cohorts", "Clients in each round", series, round_axis(rounds), y)
    figures: list[tuple[object, object]] = [
        ("Rounds", f"{len(rounds):,}"),
        ("Clients in a round", f"{sum(size for _, size in sizes) / len(sizes):.1f} on average"),
        ("Dropouts", f"{sum(gone for _, gone in lost):,.0f} in {_rounds(len(lost))}" if lost else "none"),
        ("Discarded", f"{_rounds(len(discarded))}{', charged all the same' * view.private}" if discarded else "none"),
    ]
    return tag(
        "section",
        tag("h2", "Who took part"),
        pairs(figures),
        tag("div", picture, class_="charts"),
        _reasons(discarded),
        _notices(view),
        id="cohorts",
        data_part="cohorts",
    )


def _rounds(count: int) -> str:
    return "1 round" if count == 1 else f"{count:,} rounds"


def _dropouts(row: Mapping[str, Any]) -> float:
    """Clients of a cohort whose upload did not come. A round that asked no client has none."""
    asked, came = number(row, "messages_down"), number(row, "messages_up")
    cohort = number(row, "cohort")
    return max(0.0, cohort - came) if cohort and came is not None and asked else 0.0


def _reasons(discarded: list[dict[str, Any]]) -> Markup | None:
    if not discarded:
        return None
    rows = [[row["round"], row["discarded"]] for row in discarded[:_SHOWN]]
    more = f" (the first {_SHOWN} of {len(discarded):,})" if len(discarded) > _SHOWN else ""
    return table(["round", "why"], rows, caption=f"Discarded rounds{more}")


def _notices(view: RunView) -> Markup | None:
    if not view.notices:
        return None
    keys = [key for key in ("round", "client", "node", "reason") if any(key in row for row in view.notices)]
    rows = [[row.get(key, "–") for key in keys] for row in view.notices[-_SHOWN:]]
    return table(keys, rows, caption="Nodes that did not do as asked") if keys else None


_KINDS = {
    "bytes_up": "updates, up",
    "bytes_down": "models, down",
    "bytes_once": "sent once to each client",
    "secagg_keys_up": "keys, up",
    "secagg_keys_down": "keys, down",
    "secagg_shares_up": "shares of masks, up",
    "secagg_plan_down": "plans of rounds, down",
    "secagg_unmask_down": "unmasking, down",
    "secagg_unmask_up": "unmasking, up",
}


def traffic(view: RunView) -> Markup | None:
    """Bytes by kind, and those of one client in one round."""
    totals: dict[str, float] = {}
    for row in view.rows:
        for key in row:
            if key in _KINDS or key.startswith(("secagg_", "transport_")):
                totals[key] = totals.get(key, 0.0) + (number(row, key) or 0.0)
    amounts = [(_kind(key), total) for key, total in totals.items() if total > 0]
    if not amounts:
        return None
    figures: list[tuple[object, object]] = [("In all", human_bytes(sum(total for _, total in amounts)))]
    for way, what in (("up", "Update"), ("down", "Model")):
        count = sum(number(row, f"messages_{way}") or 0.0 for row in view.rows)
        if count:
            figures.append((f"{what} of a client in a round", human_bytes(totals.get(f"bytes_{way}", 0.0) / count)))
    return tag(
        "section",
        tag("h2", "What was sent"),
        pairs(figures),
        tag("div", bars("bytes", "Bytes by kind, all clients and rounds", amounts, human_bytes), class_="charts"),
        id="traffic",
        data_part="traffic",
    )


def _kind(key: str) -> str:
    if key in _KINDS:
        return _KINDS[key]
    first, _, rest = key.partition("_")
    words = rest.rpartition("_")
    return f"{'added by the carrier' if first == 'transport' else first}: {words[0]}, {words[2]}"


def timing(view: RunView) -> Markup | None:
    """Seconds of each round; by stage where the run was asked to say."""
    seconds = curve_of(view, "seconds")
    if not seconds:
        return None
    y = axis_for("seconds", [value for _, value in seconds], low=0.0)
    rounds = round_axis([row["round"] for row in view.rows])
    charts = [chart("seconds", "Seconds of each round", [Series(name="seconds", points=seconds)], rounds, y)]
    stages, note = _stages(view, sum(value for _, value in seconds))
    if stages:
        charts.append(bars("stages", "Time by stage", stages, lambda value: f"{value:.3g} s"))
    return tag(
        "section",
        tag("h2", "How long it took"),
        tag("p", note) if note else None,
        tag("div", charts, class_="charts"),
        id="timing",
        data_part="timing",
    )


def _stages(view: RunView, in_rounds: float) -> tuple[list[tuple[str, float]], str]:
    profile = section(view.summary, "profile")
    named = [(str(name), value) for name in profile if (value := number(profile, name)) is not None and value > 0]
    if named:
        return named, ""
    whole = number(view.summary, "seconds")
    if whole is None or whole < in_rounds:  # of a run that was resumed, only the last part is known
        return [], "Stages are told apart with --profile."
    stages = [("training and sums", in_rounds), ("evaluation, accounting and saving", whole - in_rounds)]
    return stages, "More stages are told apart with --profile."
