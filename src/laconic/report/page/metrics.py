"""Metrics by name: which a run has, what they are called, which one stands for the run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from laconic.errors import ConfigError, unknown
from laconic.metrics import MAIN, columns, titles
from laconic.report.page.reading import RunView, number, section


def spelt(name: str) -> str:
    """As rows call it: 'Balanced-Accuracy' → 'balanced_accuracy'."""
    return name.strip().lower().replace("-", "_").replace(" ", "_")


def present(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """The metrics that some row has."""
    known = titles()
    found = {key for row in rows for key in known if number(row, key) is not None}
    return [key for key in known if key in found]


def smaller_is_better(metric: str) -> bool:
    found = columns().get(metric)
    return found is not None and found.smaller_is_better


def curve(rows: Iterable[Mapping[str, Any]], metric: str) -> list[tuple[int, float]]:
    """(round, value) of every evaluated round."""
    return [(row["round"], value) for row in rows if (value := number(row, metric)) is not None]


def best(rows: Iterable[Mapping[str, Any]], metric: str) -> tuple[int, float] | None:
    """(round, value) of the best evaluated round; the first of several."""
    sign = 1 if smaller_is_better(metric) else -1
    return min(curve(rows, metric), key=lambda point: sign * point[1], default=None)


def main_metric(view: RunView) -> str | None:
    """AUROC where there is one, else accuracy, else the loss."""
    return next((key for key in (*MAIN, *titles()) if key in present(view.rows)), None)


def common_metric(histories: Sequence[Sequence[Mapping[str, Any]]]) -> str | None:
    """One for all runs: the first of AUROC, accuracy and loss that every evaluated run has, else what most have."""
    found = [present(rows) for rows in histories]
    known = [names for names in found if names]
    choices = [*MAIN, *titles()]
    for metric in choices:
        if known and all(metric in names for names in known):
            return metric
    return max(choices, key=lambda metric: sum(metric in names for names in known)) if known else None


def asked_metric(histories: Sequence[Sequence[Mapping[str, Any]]], asked: str | None) -> str | None:
    """What `--metric` asks for, spelt as in the rows, if some run has it; else one for all runs."""
    if asked is None:
        return common_metric(histories)
    metric = spelt(asked)
    there = [name for name in titles() if any(name in present(rows) for rows in histories)]
    if metric not in titles():
        raise ConfigError(f"⟨metric⟩: {unknown('metric', asked, there or titles())}")
    if metric not in there:
        raise ConfigError(f"⟨metric⟩ {asked}: none of these runs has it; they have {', '.join(there) or 'none'}")
    return metric


def sent_up(rows: Iterable[Mapping[str, Any]]) -> dict[int, float]:
    """Bytes of all clients, up to and with each round."""
    total, found = 0.0, {}
    for row in rows:
        total += number(row, "bytes_up") or 0.0
        found[row["round"]] = total
    return found


def budget_of(view: RunView) -> tuple[float | None, float | None]:
    """The limits on the outsider's and the server's ε."""
    limits = section(view.statement, "budget") or section(view.config, "privacy")
    return number(limits, "epsilon"), number(limits, "participant_epsilon")


def short(value: float) -> str:
    """A figure with three digits that mean something."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    return f"{value:.3f}" if 0.001 <= abs(value) < 10 else f"{value:.3g}"
