"""Tables of attacks: figures of the attacked class, runs that do not converge, and what counts as met."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from laconic_studies.reproduce.tables import Row, Table

if TYPE_CHECKING:
    from laconic_studies.reproduce.comparison import Measured

Entry = dict[str, Any]
DIVERGES = "does not converge"
NEAR, NEAR_IN_BETWEEN = 0.03, 0.10
"""How far from the published figure one may be; an attack accuracy between 0.1 and 0.9, which one seed moves a lot."""
OF_THE_CLASS = {"class_accuracy": "attacked class", "attack_accuracy": "attack accuracy"}

ATTACKS_EXPLAINED = [
    "Both figures are those of the round with the best accuracy on the test data, as printed: means over seeds."
    " Accuracy is without the classes that honest clients do not have.",
    'The "attacked class" is the accuracy on it: low if the attack works. "Attack accuracy" is the share of that class'
    " that is taken for the target: high if it works.",
    'The last ten rounds are "at least, on average" for the attacked class and the attack accuracy: the best round'
    " hides what oscillates.",
    f'"{DIVERGES}": weights that are no longer finite, or a best round, or the last ten on average, within 0.015 of'
    " always saying one class; of most seeds.",
]


def attack_figures(row: Row, runs: Sequence[Measured]) -> Entry:
    """What a row of attacks has beside its accuracy; nothing for other rows."""
    if not row.attacked:
        return {}
    entry: Entry = {
        "malicious": row.settings["attack"]["fraction"],
        "boost": row.settings["attack"].get("boost"),
        "diverged": sum(not run.converged for run in runs) * 2 > len(runs),
    }
    of_class = [field for name in OF_THE_CLASS for field in (name, f"{name}_last_min", f"{name}_last_mean")]
    for field in (*of_class, "epsilon_attacked"):
        known = [value for run in runs if (value := getattr(run, field)) is not None]
        entry[field] = statistics.fmean(known) if known else None
    entry["agrees"] = _agrees(row, runs, entry) if runs else {}
    return entry


def _agrees(row: Row, runs: Sequence[Measured], entry: Entry) -> dict[str, bool]:
    """Which of the published figures are met."""
    published = row.published
    if not published.converges:
        return {"converges": entry["diverged"]}
    found: dict[str, bool] = {}
    known = [run.accuracy for run in runs if run.accuracy is not None]
    measured = {"accuracy": statistics.fmean(known) if known and not entry["diverged"] else None}
    measured |= {name: entry[name] for name in OF_THE_CLASS}
    for name, value in measured.items():
        wanted = getattr(published, name)
        if wanted is not None:
            near = NEAR_IN_BETWEEN if name == "attack_accuracy" and 0.1 < wanted < 0.9 else NEAR
            found[name] = value is not None and abs(value - wanted) <= near + 1e-9
    return found


def agreement_text(entries: Sequence[Entry]) -> str:
    """How many of the published figures that were measured are met."""
    every = [met for entry in entries for met in entry.get("agrees", {}).values()]
    not_run = sum(not entry.get("agrees") and not entry["seeds"] for entry in entries)
    text = (
        f"{sum(every)} of {len(every)} figures are within {NEAR} of the published one ({NEAR_IN_BETWEEN} for attack"
        " accuracies between 0.1 and 0.9)."
    )
    return text + (f" {not_run} rows were not run." if not_run else "")


def attack_columns(table: Table) -> list[tuple[str, Callable[[Entry], str]]]:
    """Headings and cells: the figures of the class beside the paper's, the last rounds, and whether all is met."""
    columns: list[tuple[str, Callable[[Entry], str]]] = []
    for name, heading in OF_THE_CLASS.items():
        if any(row.attacked and "source" in row.settings["attack"] for row in table.rows):
            columns += [
                (f"{heading}: paper", lambda entry, name=name: _number(entry["published"][name])),  # type: ignore[misc]
                ("here", lambda entry, name=name: _number(entry[name], 4)),  # type: ignore[misc]
                ("last ten", lambda entry, name=name: last_text(entry, name)),  # type: ignore[misc]
            ]
    return [*columns, ("met", met_text)]


def last_text(entry: Entry, name: str) -> str:
    """'0.12, 0.55': at least, on average."""
    low, mean = entry[f"{name}_last_min"], entry[f"{name}_last_mean"]
    return "–" if low is None or mean is None else f"{low:.2f}, {mean:.2f}"


def met_text(entry: Entry) -> str:
    """'yes', or what is not met; a dash where nothing can be compared."""
    agrees = entry.get("agrees", {})
    if not agrees:
        return "–"
    missed = [name.replace("_", " ") for name, met in agrees.items() if not met]
    return f"not {', '.join(missed)}" if missed else "yes"


def _number(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:.{digits}f}"
