"""Pictures of a reproduced table: accuracy against bytes, and the values of kept weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from laconic.report.plots import bytes_axis, line_style, pyplot
from laconic_studies.reproduce.comparison import Measured, Results
from laconic_studies.reproduce.kept_weights import BEFORE
from laconic_studies.reproduce.tables import BYTES, Row, Table


def plot_table(table: Table, results: Results, out: Path, *, quick: bool = False) -> None:
    """Best accuracy against what a client sent and received up to then; private rows apart from the others.

    Filled marks are measured (the mean over seeds, with its deviation), hollow ones are published.
    """
    plt = pyplot()
    groups = [(title, rows) for title, rows in _groups(table) if any(results.get(row.number) for row in rows)]
    figure, axes = plt.subplots(
        1,
        max(1, len(groups)),
        figsize=(5.8 * max(1, len(groups)), 4.6),
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    both = any(row.published.down is not None for row in table.rows)
    for panel, (title, rows) in zip(axes[0], groups, strict=False):
        for place, name in enumerate(dict.fromkeys((row.scheme, row.dataset) for row in rows)):
            mine = [row for row in rows if (row.scheme, row.dataset) == name and results.get(row.number)]
            if mine:
                label = " ".join(name) if len({row.dataset for row in table.rows}) > 1 else name[0]
                style = line_style(place)
                _draw(panel, table, results, mine, both, label, style["color"], style["marker"])
        panel.set(title=title, xlabel=f"bytes per client until the best round, {'up + down' if both else 'up'}")
        bytes_axis(panel)
        panel.grid(alpha=0.3)
        panel.legend(fontsize="x-small")
    axes[0][0].set_ylabel(f"best {table.metric.replace('_', ' ')}, test records")
    figure.suptitle(
        table.title
        + (f" (here: {table.stands_in}, another data set)" if table.stands_in else "")
        + (" (quick version)" if quick else "")
        + "\nfilled: here, with the standard deviation over seeds; hollow: the paper",
        fontsize="medium",
    )
    figure.savefig(out, dpi=120)
    plt.close(figure)


def _groups(table: Table) -> list[tuple[str, list[Row]]]:
    return [
        ("not private", [row for row in table.rows if not row.private]),
        ("private", [row for row in table.rows if row.private]),
    ]


def _draw(
    panel: Any, table: Table, results: Results, rows: list[Row], both: bool, label: str, colour: str, marker: str
) -> None:
    measured = [(_bytes(results[row.number], both), row) for row in rows]
    accuracies = [[run.accuracy or 0.0 for run in results[row.number]] for _, row in measured]
    means, spreads = [np.mean(a) for a in accuracies], [np.std(a, ddof=1) if len(a) > 1 else 0.0 for a in accuracies]
    panel.errorbar([x for x, _ in measured], means, yerr=spreads, marker=marker, color=colour, label=label, lw=1)
    known = [(x, row) for x, row in measured if row.published.accuracy is not None]
    places = [_published_bytes(table, row, both) or x for x, row in known]
    panel.plot(
        places, [row.published.accuracy for _, row in known], ":",
        marker=marker, color=colour, mfc="none", lw=1,
    )  # fmt: skip


def _bytes(runs: Sequence[Measured], both: bool) -> float:
    return float(np.mean([run.bytes_up + (run.bytes_down if both else 0.0) for run in runs]))


def _published_bytes(table: Table, row: Row, both: bool) -> float | None:
    costs = [row.published.up, row.published.down] if both else [row.published.up]
    if table.unit not in BYTES or any(cost is None for cost in costs):
        return None
    return sum(cost for cost in costs if cost is not None) * BYTES[table.unit]


def plot_kept_weights(values: Mapping[str, np.ndarray], out: Path) -> None:
    """Histograms of the kept weights' values, from −0.2 to 0.2 as in thesis Fig. 5.1."""
    plt = pyplot()
    figure, panel = plt.subplots(figsize=(6.5, 4.2), layout="constrained")
    bins = np.linspace(-0.2, 0.2, 81)
    for name, weights in values.items():
        outside = float(np.mean(np.abs(weights) > 0.2)) if len(weights) else 0.0
        style = {"histtype": "step", "color": "black"} if name == BEFORE else {"alpha": 0.5}
        panel.hist(weights, bins=bins, label=f"{name} ({outside:.1%} outside)", **style)
    panel.set(xlabel="value of a kept weight", ylabel="how many")
    panel.legend(fontsize="small")
    figure.savefig(out, dpi=120)
    plt.close(figure)
