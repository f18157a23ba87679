"""What a sweep found: a line per run, means over seeds, and a picture of the metric against one axis."""

from __future__ import annotations

import csv
import io
import json
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from laconic.errors import ConfigError, unknown
from laconic.figures import at_most
from laconic.metrics import titles
from laconic.report.ledger import human_bytes
from laconic.report.page.reading import (
    RunView,
    asked_metric,
    best,
    curve,
    number,
    section,
    short,
    smaller_is_better,
)
from laconic.report.plots import line_style, plot_curves, pyplot
from laconic.store.finished import watched_run
from laconic.store.folder import IDENTITY
from laconic.store.restore import NOISE_NAMES
from laconic.sweeps.grid import Grid, Point, value_text
from laconic.sweeps.jobs import SweepFolder

FIGURES = ("last", "best", "best_round", "epsilon", "participant_epsilon", "bytes_up", "bytes_down", "seconds")


@dataclass(frozen=True)
class Line:
    """One run: its values and seed, how it stands ('finished', 'unfinished', 'failed', 'not run'), and its figures."""

    point: Point
    state: str
    rounds: int
    figures: dict[str, float | None]
    rows: list[dict[str, Any]]
    noise: tuple[str, ...] = ()
    """Equal for runs whose noise is the same; empty where there is none."""


@dataclass(frozen=True)
class Mean:
    """Finished runs of one combination: how many seeds, and mean and standard deviation (None for one) of a figure.

    Of ε it is the largest.
    """

    values: dict[str, Any]
    seeds: int
    asked: int
    figures: dict[str, tuple[float, float | None]]


@dataclass(frozen=True)
class Table:
    """The results of the runs of a sweep. `metric` is that of `last` and `best`; None if no run was evaluated."""

    grid: Grid
    metric: str | None
    lines: list[Line]

    @property
    def finished(self) -> list[Line]:
        return [line for line in self.lines if line.state == "finished"]

    def means(self) -> list[Mean]:
        """A line per combination, in the order of the grid."""
        groups: dict[tuple[Any, ...], list[Line]] = {}
        for line in self.lines:
            groups.setdefault(line.point.place, []).append(line)
        return [_mean(lines) for lines in groups.values()]

    def csv(self) -> str:
        labels, out = self.grid.labels, io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([*labels.values(), "seed", "state", "rounds", "metric", *FIGURES, "folder"])
        for line in self.lines:
            values = [value_text(value) for value in line.point.values.values()]
            figures = ["" if line.figures[name] is None else repr(line.figures[name]) for name in FIGURES]
            about = [line.point.seed, line.state, line.rounds, self.metric or ""]
            writer.writerow([*values, *about, *figures, f"runs/{line.point.name}"])
        return out.getvalue()

    def head(self) -> list[str]:
        """The columns of the short table."""
        metric = "metric" if self.metric is None else titles()[self.metric]
        figures = [f"last {metric}", f"best {metric}", "ε outsider", "ε server", "up", "down"]
        return [*self.grid.labels.values(), "seeds", *figures]

    def cells(self) -> list[list[str]]:
        """The short table: a row per combination."""
        return [
            [
                *(value_text(value) for value in mean.values.values()),
                f"{mean.seeds}" if mean.seeds == mean.asked else f"{mean.seeds} of {mean.asked}",
                *(_spread(mean, name) for name in ("last", "best", "epsilon", "participant_epsilon")),
                *(_bytes(mean, name) for name in ("bytes_up", "bytes_down")),
            ]
            for mean in self.means()
        ]

    def remarks(self) -> list[str]:
        """What a reader of the short table must know."""
        found = ["± is the standard deviation over seeds."] if len(self.grid.seeds) > 1 else []
        if self.metric is None:
            found.append("No run was evaluated.")
        else:
            better = "Smaller" if smaller_is_better(self.metric) else "Larger"
            found.append(f"{better} is better. The best round is chosen on test records, so it is optimistic.")
        return found + self._spent_together()

    def _spent_together(self) -> list[str]:
        """A remark that ε adds up over runs on the same clients (basic composition: so does δ)."""
        known = [epsilon for line in self.lines if (epsilon := line.figures["epsilon"]) is not None]
        if len(known) < 2:
            return []
        alone = "Each ε is that of one run by itself."
        noises = Counter(line.noise for line in self.lines if line.noise)
        if again := sum(count for count in noises.values() if count > 1):
            return [
                f"{alone} {again} runs have the same noise as another one, from the same seed. The difference of what"
                " two of them release has no noise, so no bound holds for both together: give each its own seed"
                " before you show more than one."
            ]
        return [
            f"{alone} All {len(known)} runs of the same clients together, or settings that"
            f" are chosen by them, have up to ε = {at_most(sum(known))}, their sum; δ adds up, too."
        ]

    def markdown(self) -> str:
        head, cells = self.head(), self.cells()
        lines = [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *cells)]
        wrong = [line for line in self.lines if line.state != "finished"]
        parts = ["\n".join(lines), *self.remarks()]
        if wrong:
            parts.append("\n".join(f"- {line.point.name}: {line.state}" for line in wrong))
        return "\n\n".join(parts) + "\n"


def table_of(folder: SweepFolder, grid: Grid, points: Sequence[Point], metric: str | None = None) -> Table:
    """The table of all runs of the grid, as far as they are there. `metric` is one that runs have."""
    folders = [folder.run(point) for point in points]
    views = [watched_run(run) for run in folders]
    chosen, failures = asked_metric([view.rows for view in views], metric), folder.failures()
    lines = [
        Line(
            point,
            _state(view, point.name in failures),
            len(view.rows),
            _figures(view, chosen),
            view.rows,
            _noise(view, run),
        )
        for point, view, run in zip(points, views, folders, strict=True)
    ]
    return Table(grid, chosen, lines)


def _noise(view: RunView, folder: Path) -> tuple[str, ...]:
    """The name of a run's noise: of its seed, and of all that its sums depend on. Older runs have the seed alone."""
    if not view.private:
        return ()
    try:
        identity = json.loads((folder / IDENTITY).read_bytes())
    except (OSError, ValueError):
        identity = {}
    return str(section(view.config, "run").get("seed")), str(identity.get(NOISE_NAMES))


def _state(view: RunView, failed: bool) -> str:
    if view.refused:
        return "altered"
    if view.finished:
        return "finished"
    if failed:
        return "failed"
    return "unfinished" if view.rows else "not run"


def _figures(view: RunView, metric: str | None) -> dict[str, float | None]:
    found = curve(view.rows, metric) if metric else []
    top = best(view.rows, metric) if metric else None
    epsilons = view.epsilons()
    sent = {way: sum(number(row, way) or 0.0 for row in view.rows) for way in ("bytes_up", "bytes_down")}
    return {
        "last": found[-1][1] if found else None,
        "best": top[1] if top else None,
        "best_round": top[0] if top else None,
        "epsilon": epsilons[0],
        "participant_epsilon": epsilons[1],
        **sent,
        "seconds": number(view.summary, "seconds"),
    }


def _mean(lines: list[Line]) -> Mean:
    done = [line for line in lines if line.state == "finished"]
    figures: dict[str, tuple[float, float | None]] = {}
    for name in FIGURES:
        known = [value for line in done if (value := line.figures[name]) is not None]
        if known and name.endswith("epsilon"):  # a bound for all of them
            figures[name] = (max(known), None)
        elif known:
            figures[name] = (statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else None)
    return Mean(lines[0].point.values, len(done), len(lines), figures)


def _spread(mean: Mean, name: str) -> str:
    if name not in mean.figures:
        return "none" if name == "participant_epsilon" and "epsilon" in mean.figures else "–"
    value, deviation = mean.figures[name]
    shown = short(value) if name in ("last", "best") else at_most(value)
    return shown if deviation is None else f"{shown} ± {deviation:.2g}"


def _bytes(mean: Mean, name: str) -> str:
    return human_bytes(mean.figures[name][0]) if name in mean.figures else "–"


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
            raise ConfigError(f"⟨against⟩: {unknown('axis', asked, labels.values())}")
        return found[0]
    distinct = {option: _values_of(table, option) for option in labels}
    several = {option: values for option, values in distinct.items() if len(values) > 1}
    return max(several, key=lambda option: (_numbers(several[option]), len(several[option])), default=None)


def _values_of(table: Table, option: str) -> list[Any]:
    found = [line.point.values[option] for line in table.lines]
    return [value for place, value in enumerate(found) if value not in found[:place]]


def _numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _panels(table: Table, axis: str, lines: dict[str, list[Mean]], out: Path) -> None:
    assert table.metric is not None
    plt, values = pyplot(), _values_of(table, axis)
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
    panels[0][0].set_ylabel(f"{titles()[table.metric]} after the last round")
    figure.suptitle(f"{len(table.finished)} runs{bars}", fontsize="medium")
    figure.savefig(out, dpi=120, metadata={"Software": None})
    plt.close(figure)
