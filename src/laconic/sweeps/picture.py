"""The picture of a sweep: the metric against one axis, a line for each combination of the others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from laconic.errors import ConfigError, unknown
from laconic.report.page.metrics import NAMES
from laconic.report.plots import line_style, plot_curves, pyplot
from laconic.sweeps.grid import value_text
from laconic.sweeps.table import Mean, Table

_LINES = 7
"""In one panel; more lines get a panel of their own."""
_PANELS = 4
_WIDE = 10.0
"""Values that span this factor or more stand on a logarithmic axis."""


def draw(table: Table, out: Path, against: str | None = None) -> str | None:
    """Draw the last metric of finished runs; returns what a user should know, if anything."""
    if table.metric is None or not table.finished:
        return "no picture: no finished run was evaluated"
    axis = _axis(table, against)
    if axis is None:
        few = table.finished[:_LINES]
        plot_curves({line.point.name: line.rows for line in few}, out, table.metric)
        return None
    means = [mean for mean in table.means() if "last" in mean.figures]
    lines: dict[str, list[Mean]] = {}
    for mean in means:
        others = {option: value for option, value in mean.values.items() if option != axis}
        lines.setdefault(table.grid.text(others), []).append(mean)
    shown = dict(list(lines.items())[: _LINES * _PANELS])
    _panels(table, axis, shown, out)
    left = len(lines) - len(shown)
    return f"the picture shows {len(shown)} of {len(lines)} lines: choose fewer values, or --against" if left else None


def _axis(table: Table, asked: str | None) -> str | None:
    """The option of the horizontal axis: the one that is asked for, else the one with most numbers; None if none."""
    labels = table.grid.labels
    if asked is not None:
        found = [option for option, label in labels.items() if asked in (option, label)]
        if not found:
            raise ConfigError(f"--against: {unknown('axis', asked, labels.values())}")
        return found[0]
    distinct = {option: _values(table, option) for option in labels}
    several = {option: values for option, values in distinct.items() if len(values) > 1}
    return max(several, key=lambda option: (_numbers(several[option]), len(several[option])), default=None)


def _values(table: Table, option: str) -> list[Any]:
    found = [line.point.values[option] for line in table.lines]
    return [value for place, value in enumerate(found) if value not in found[:place]]


def _numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _panels(table: Table, axis: str, lines: dict[str, list[Mean]], out: Path) -> None:
    assert table.metric is not None
    plt, values = pyplot(), _values(table, axis)
    count = -(-len(lines) // _LINES)
    figure, panels = plt.subplots(
        1, count, figsize=(6.4 * count, 4.4), sharey=True, squeeze=False, layout="constrained"
    )
    numbers = _numbers(values)
    for place, (label, means) in enumerate(lines.items()):
        panel, style = panels[0][place // _LINES], line_style(place % _LINES)
        at = [mean.values[axis] if numbers else values.index(mean.values[axis]) for mean in means]
        points = sorted(zip(at, (mean.figures["last"] for mean in means), strict=True), key=lambda point: point[0])
        panel.errorbar(
            [x for x, _ in points],
            [mean for _, (mean, _) in points],
            yerr=[deviation or 0.0 for _, (_, deviation) in points],
            label=label or None,
            capsize=2,
            linewidth=1.5,
            markersize=5,
            **style,
        )
    for panel in panels[0]:
        panel.set_xlabel(table.grid.labels[axis].replace("_", " "))
        panel.grid(alpha=0.3)
        if not numbers:
            panel.set_xticks(range(len(values)), [value_text(value) for value in values])
        elif min(values) > 0 and max(values) >= _WIDE * min(values):
            panel.set_xscale("log")
        if any(lines):
            panel.legend(fontsize="small", frameon=False)
    bars = ", bars: standard deviation over seeds" if len(table.grid.seeds) > 1 else ""
    panels[0][0].set_ylabel(f"{NAMES[table.metric]} after the last round")
    figure.suptitle(f"{len(table.finished)} runs{bars}", fontsize="medium")
    figure.savefig(out, dpi=120, metadata={"Software": None})
    plt.close(figure)
