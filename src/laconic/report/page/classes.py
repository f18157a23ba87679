"""How the last model does by class: figures, who is taken for whom, ROC, calibration."""

from __future__ import annotations

import itertools
from typing import Any

from laconic.report.drawing import Axis, Markup, Series, chart, joined, table, tag
from laconic.report.page.reading import RunView, number, section

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
        " if they are the clients' own, set aside from training, these counts say something of single ones. Whoever"
        " gets this page gets the counts."
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


def _share(label: str) -> Axis:
    return Axis(label=label, low=0.0, high=1.0, written=lambda value: f"{value:.3g}")


def _roc(view: RunView, names: list[str]) -> Markup | None:
    found = section(view.figures, "roc")
    false, true = found.get("false_positive_rate"), found.get("true_positive_rate")
    if not isinstance(false, list) or not isinstance(true, list) or len(false) != len(true) or not false:
        return None
    points = [(float(a), float(b)) for a, b in zip(false, true, strict=True) if _numbers(a, b)]
    area = sum((x1 - x0) * (y0 + y1) / 2 for (x0, y0), (x1, y1) in itertools.pairwise(points))
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
    about = f"Test records in ten bins by the stated probability of {of}, and how often it was true."
    if error is not None:
        about += f" Expected calibration error {error:.3f}."
    series = [
        Series(name="model", points=points),
        Series(name="perfect", points=[(0.0, 0.0), (1.0, 1.0)], kind="limit", number=6),
    ]
    x, y = _share("stated probability"), _share("share that was true")
    return chart("calibration", "Calibration", series, x, y, about=about, note=joined(_few(bins)))


def _few(bins: list[dict[str, Any]]) -> Markup | None:
    """Bins of few records say little."""
    small = sum(1 for row in bins if (number(row, "records") or 0) < 10)
    return tag("p", f"{small} of {len(bins)} points stand for fewer than 10 records.", class_="note") if small else None
