"""How sure the figures of the last model are, whether its probabilities can be believed, and for whom it is good."""

from __future__ import annotations

from typing import Any

from laconic.metrics import titles
from laconic.report.drawing import Markup, table, tag
from laconic.report.page.reading import RunView, number, section


def how_sure(view: RunView) -> Markup | None:
    """Figures with intervals, calibration, thresholds and subgroups; None where nothing was judged."""
    judged = section(view.summary, "judged")
    parts = [
        _intervals(judged),
        _believable(section(view.figures, "probabilities")),
        _thresholds(view.figures.get("thresholds")),
        *_subgroups(section(view.figures, "subgroups")),
    ]
    if not any(parts):
        return None
    text = (
        "The last model on test records, with 95 % intervals: of 100 such intervals, 95 hold the figure of all records"
        " to come. They take records for independent: where a person has several, they are too narrow. No ε covers"
        " them."
    )
    return tag("section", tag("h2", "How sure"), tag("p", text, class_="note"), parts, id="sure", data_part="sure")


def _intervals(judged: Any) -> Markup | None:
    found = section(judged, "figures")
    known = titles()
    rows = [[known.get(name, name), *_ends(figure)] for name, figure in found.items() if _ends(figure)]
    return table(["metric", "value", "interval"], rows, caption="Figures on test records") if rows else None


def _ends(figure: object) -> list[str]:
    """A value and its interval as texts; nothing where there is none."""
    if not isinstance(figure, list) or len(figure) != 3 or not all(isinstance(end, int | float) for end in figure):
        return []
    value, low, high = (f"{end:.3f}" if abs(end) < 100 else f"{end:.4g}" for end in figure)
    return [value, f"{low} to {high}"]


def _believable(found: Any) -> Markup | None:
    """Slope, intercept and Brier score of stated probabilities."""
    share = number(found, "brier_of_the_share")
    about = {
        "brier": "Brier score" + ("" if share is None else f" (always stating the share of positives has {share:.3f})"),
        "slope": "calibration slope (1 is right; less: too sure of itself)",
        "intercept": "calibration intercept, log odds (0 is right; more: too small probabilities)",
    }
    rows = [[text, *_ends(found.get(name))] for name, text in about.items() if _ends(found.get(name))]
    mean, true = number(found, "mean"), number(found, "true")
    if mean is not None and true is not None:
        rows.append(["mean probability, and share of positives", f"{mean:.3f}", f"{true:.3f}"])
    return (
        table(["calibration", "value", "interval"], rows, caption="How far probabilities can be believed")
        if rows
        else None
    )


def _thresholds(rows: object) -> Markup | None:
    names = ("sensitivity", "specificity", "ppv", "npv")
    shown = []
    for row in rows if isinstance(rows, list) else []:
        flagged = number(row, "flagged") if isinstance(row, dict) else None
        if flagged is not None:
            at = number(row, "probability")
            ends = [" (".join(_ends(row.get(name))) + ")" if _ends(row.get(name)) else "–" for name in names]
            shown.append(["–" if at is None else f"{at:.3g}", f"{flagged:.1%}", *ends])
    head = ["probability from", "flagged", "sensitivity", "specificity", "PPV", "NPV"]
    return table(head, shown, caption="What a threshold would do") if shown else None


def _subgroups(found: Any) -> list[Markup | None]:
    tables: list[Markup | None] = []
    for column, groups in found.items():
        kept = [group for group in groups if isinstance(group, dict)] if isinstance(groups, list) else []
        names = list(dict.fromkeys(name for group in kept for name in section(group, "figures")))
        head = ["group", "records", *(titles().get(name, name) for name in names), "positive", "mean probability"]
        rows = [
            [
                str(group.get("group")),
                f"{number(group, 'records') or 0:,.0f}",
                *(" (".join(ends) + ")" if (ends := _ends(section(group, "figures").get(n))) else "–" for n in names),
                *("–" if (share := number(group, key)) is None else f"{share:.3f}" for key in ("true", "mean")),
            ]
            for group in kept
        ]
        tables.append(table(head, rows, caption=f"By {column}") if rows else None)
    return tables
