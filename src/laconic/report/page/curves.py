"""Charts of a run: the metric over rounds, ε and bytes; how the model does by class; who took part, bytes and time."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from laconic.figures import at_most, rounded_up
from laconic.metrics import titles
from laconic.report.drawing import Axis, Markup, Series, axis_for, bars, chart, joined, pairs, table, tag
from laconic.report.ledger import human_bytes
from laconic.report.page.reading import RunView, budget_of, curve, main_metric, number, present, section, sent_up, short

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


_SHOWN = 20
"""A matrix of more classes is too wide to read: its largest confusions are listed instead."""


def by_class(view: RunView) -> Markup | None:
    """The section; None for a run that kept no figures by class."""
    found = view.figures
    counts = _counts(found)
    names = [str(name) for name in found.get("classes", [])] if isinstance(found.get("classes"), list) else []
    if counts is not None and len(names) != len(counts):
        names = [str(place) for place in range(len(counts))]
    parts: list[object] = []
    if counts is not None:
        tables = tag("div", _per_class(names, counts), _confusion(names, counts), class_="charts")
        parts += [_only_one(names, counts), tables]
    parts.append(tag("div", _roc(view, names), _calibration(found, names), class_="charts"))
    if counts is None and not section(found, "roc") and not section(found, "calibration"):
        return None
    rounds = number(found, "round")
    of = f"The model after round {rounds:.0f}" if rounds is not None else "The last model"
    records = number(found, "records")
    text = (
        f"{of} on {f'{records:,.0f} ' if records else ''}test records. They are evaluation data, and no ε covers them:"
        " if they are the clients' own, set aside from training, these counts say something of single ones, and"
        " this page has the counts."
    )
    return tag(
        "section", tag("h2", "By class"), tag("p", text, class_="note"), parts, id="classes", data_part="classes"
    )


def _counts(found: Any) -> list[list[int]] | None:
    rows = found.get("confusion")
    square = isinstance(rows, list) and rows and all(isinstance(row, list) and len(row) == len(rows) for row in rows)
    whole = square and all(isinstance(count, int) and count >= 0 for row in rows for count in row)
    return rows if whole else None


def _only_one(names: list[str], counts: list[list[int]]) -> Markup | None:
    """A warning where the model always says the same."""
    said = [place for place in range(len(names)) if any(row[place] for row in counts)]
    if len(said) != 1:
        return None
    text = f"The model says “{names[said[0]]}” for every test record: it has learnt nothing that tells classes apart."
    return tag("p", text, class_="box warn")


def _per_class(names: list[str], counts: list[list[int]]) -> Markup:
    """Precision, recall and F1: of what is called so, of what is so, and their harmonic mean."""
    rows = []
    for place, name in enumerate(names):
        hit, so, called = counts[place][place], sum(counts[place]), sum(row[place] for row in counts)
        f1 = 2 * hit / (so + called) if so + called else None
        shares = (hit / called if called else None, hit / so if so else None, f1)
        rows.append([name, f"{so:,}", *("–" if share is None else f"{share:.3f}" for share in shares)])
    head = ["class", "records", "precision", "recall", "F1"]
    return table(head, rows, caption="Figures by class", class_="figures")


def _confusion(names: list[str], counts: list[list[int]]) -> Markup:
    if len(names) > _SHOWN:
        return _largest(names, counts)
    rows = []
    for place, (name, row) in enumerate(zip(names, counts, strict=True)):
        total = sum(row) or 1
        cells = [
            tag("td", f"{count:,}", class_=f"heat{'-right' if place == at else ''} h{_level(count / total)}")
            for at, count in enumerate(row)
        ]
        rows.append(tag("tr", tag("th", name, scope="row"), cells))
    head = tag("tr", tag("th", "true ↓  predicted →", scope="col"), [tag("th", name, scope="col") for name in names])
    caption = "Confusion matrix: records of each class (rows) by predicted class (columns)"
    made = tag("table", tag("caption", caption), tag("thead", head), tag("tbody", rows), class_="confusion")
    return tag("div", made, class_="scroll", tabindex="0", role="group", aria_label=caption)


def _level(share: float) -> int:
    """0 to 9; 0 only for none."""
    return 0 if share == 0 else min(9, 1 + int(share * 8.999))


def _largest(names: list[str], counts: list[list[int]], most: int = 15) -> Markup:
    wrong = [(c, names[a], names[b]) for a, row in enumerate(counts) for b, c in enumerate(row) if a != b and c]
    rows = [[true, said, f"{count:,}"] for count, true, said in sorted(wrong, key=lambda w: -w[0])[:most]]
    return table(["class", "taken for", "records"], rows, caption=f"The {len(rows)} most frequent confusions")


def _share(label: str, high: float = 1.0) -> Axis:
    return Axis(label=label, low=0.0, high=high, written=lambda value: f"{value:.3g}")


def _roc(view: RunView, names: list[str]) -> Markup | None:
    found = section(view.figures, "roc")
    false, true = found.get("false_positive_rate"), found.get("true_positive_rate")
    if not isinstance(false, list) or not isinstance(true, list) or len(false) != len(true) or not false:
        return None
    points = [(float(a), float(b)) for a, b in zip(false, true, strict=True) if _numbers(a, b)]
    area = sum((x1 - x0) * (y0 + y1) / 2 for (x0, y0), (x1, y1) in itertools.pairwise(points))
    exact = section(section(view.summary, "judged"), "figures").get("auroc")  # of all points, not only of those drawn
    if isinstance(exact, list) and exact and _numbers(exact[0]):
        area = exact[0]
    second = names[1] if len(names) > 1 else "the second class"
    series = [
        Series(name=f"model, area {area:.3f}", points=points),
        Series(name="guessing", points=[(0.0, 0.0), (1.0, 1.0)], kind="limit", number=6),
    ]
    x, y = _share("false positive rate"), _share("true positive rate")
    return chart("roc", "ROC curve", series, x, y, about=f"Of test records; “{second}” is the positive class.")


def _numbers(*values: object) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _calibration(found: Any, names: list[str]) -> Markup | None:
    given = section(found, "calibration")
    rows = given.get("bins")
    bins = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    points = [
        (s, t) for row in bins if (s := number(row, "stated")) is not None and (t := number(row, "true")) is not None
    ]
    if not points:
        return None
    error = number(given, "error")
    of = f"“{names[1]}”" if given.get("of") == "second class" and len(names) > 1 else "the predicted class"
    about = f"Test records in ten bins of like size by the stated probability of {of}, and how often it was true."
    if error is not None:
        about += f" Expected calibration error {error:.3f}."
    series = [Series(name="model", points=points)]
    for number_of, (name, end) in enumerate((("95 % from", "low"), ("95 % to", "high")), 1):
        ends = [
            (s, t) for row in bins if (s := number(row, "stated")) is not None and (t := number(row, end)) is not None
        ]
        series += [Series(name=name, points=ends, kind="limit", number=number_of)] if ends else []
    top = min(1.0, 1.1 * max(value for one in series for point in one.points for value in point) or 1.0)
    series.append(Series(name="perfect", points=[(0.0, 0.0), (top, top)], kind="limit", number=6))
    x, y = _share("stated probability", top), _share("share that was true", top)
    return chart("calibration", "Calibration", series, x, y, about=about, note=joined(_few(bins)))


def _few(bins: list[dict[str, Any]]) -> Markup | None:
    """Bins of few records say little."""
    small = sum(1 for row in bins if (number(row, "records") or 0) < 10)
    return tag("p", f"{small} of {len(bins)} points stand for fewer than 10 records.", class_="note") if small else None


_ROWS_SHOWN = 50


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
        ("Dropouts", f"{sum(gone for _, gone in lost):,.0f} in {_so_many_rounds(len(lost))}" if lost else "none"),
        (
            "Discarded",
            f"{_so_many_rounds(len(discarded))}{', charged all the same' * view.private}" if discarded else "none",
        ),
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


def _so_many_rounds(count: int) -> str:
    return "1 round" if count == 1 else f"{count:,} rounds"


def _dropouts(row: Mapping[str, Any]) -> float:
    """Clients of a cohort whose upload did not come. A round that asked no client has none."""
    asked, came = number(row, "messages_down"), number(row, "messages_up")
    cohort = number(row, "cohort")
    return max(0.0, cohort - came) if cohort and came is not None and asked else 0.0


def _reasons(discarded: list[dict[str, Any]]) -> Markup | None:
    if not discarded:
        return None
    rows = [[row["round"], row["discarded"]] for row in discarded[:_ROWS_SHOWN]]
    more = f" (the first {_ROWS_SHOWN} of {len(discarded):,})" if len(discarded) > _ROWS_SHOWN else ""
    return table(["round", "why"], rows, caption=f"Discarded rounds{more}")


def _notices(view: RunView) -> Markup | None:
    if not view.notices:
        return None
    keys = [key for key in ("round", "client", "node", "reason") if any(key in row for row in view.notices)]
    rows = [[row.get(key, "–") for key in keys] for row in view.notices[-_ROWS_SHOWN:]]
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
