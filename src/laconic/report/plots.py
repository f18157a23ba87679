"""Pictures of runs. They need matplotlib, which nothing else does."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any

from laconic.errors import ConfigError, RunFolderError, how_to_install, unknown
from laconic.privacy.released import Row
from laconic.report.ledger import human_bytes
from laconic.report.page.reading import curve, sent_up

Histories = Mapping[str, list[dict[str, Any]]]
"""The rows of several runs, by what the runs are called."""


def read_history(folder: Path) -> list[Row]:
    """The rows of a run folder's rounds.jsonl. The last one may still be in writing: then it is left out."""
    path = folder / "rounds.jsonl"
    try:
        lines = path.read_bytes().split(b"\n")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RunFolderError(f"{folder} is not a run folder: {reason} ({path.name})") from None
    found = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line) if line else None
            if line and not (isinstance(row, dict) and isinstance(row.get("round"), int)):
                raise ValueError("not a row")
        except (ValueError, RecursionError):
            if number < len(lines):
                raise RunFolderError(
                    f"{path}, line {number}: damaged; restore the file, or leave the run out"
                ) from None
        else:
            found += [row] if row else []
    return found


def line_style(place: int) -> dict[str, Any]:
    """How the line at this place is drawn: its colour, mark and dashes all differ from those of its neighbours.

    The colours are Okabe and Ito's, which people who are colour-blind can tell apart; marks and dashes survive a black
    and white printer.
    """
    return {
        "color": COLOURS[place % len(COLOURS)],
        "marker": _MARKERS[place % len(_MARKERS)],
        "linestyle": _DASHES[place % len(_DASHES)],
    }


COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's."""
_MARKERS = "os^DvPX"
_DASHES = ("-", "--", "-.", ":")
_MARKS = 8
"""How many marks a long line has."""


def plot_curves(histories: Histories, out: Path, metric: str = "accuracy") -> None:
    """The metric of several runs, against rounds and against the bytes that went up."""
    plot_panels({"": histories}, out, metric)


def plot_panels(groups: Mapping[str, Histories], out: Path, metric: str = "accuracy") -> None:
    """`plot_curves` for several groups of runs, one row of two panels for each, with their titles."""
    plt = pyplot()
    figure, panels = plt.subplots(
        len(groups), 2, figsize=(11, 4.2 * len(groups)), sharey=True, sharex="col", squeeze=False, layout="constrained"
    )
    for (by_round, by_bytes), (title, histories) in zip(panels, groups.items(), strict=True):
        for place, (name, history) in enumerate(histories.items()):
            points, sent = curve(history, metric), sent_up(history)
            style = line_style(place) | {"markevery": max(1, len(points) // _MARKS), "markersize": 5, "linewidth": 1.5}
            by_round.plot([at for at, _ in points], [value for _, value in points], label=name, **style)
            known = [(sent[at], value) for at, value in points if sent[at]]  # 'centralized' sends nothing: no logarithm
            by_bytes.plot([total for total, _ in known], [value for _, value in known], label=name, **style)
        by_round.set(xlabel="round", ylabel=metric_name(metric), title=title)
        by_bytes.set(xlabel="bytes sent up by all clients together", title=title)
        if by_bytes.has_data() and any(len(line.get_xdata()) for line in by_bytes.get_lines()):
            bytes_axis(by_bytes)
        by_bytes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize="small", frameon=False)
        for axes in (by_round, by_bytes):
            axes.tick_params(labelbottom=True, labelleft=axes is by_round)
            axes.grid(alpha=0.3)
    try:
        figure.savefig(out, dpi=120, metadata={"Software": None} if out.suffix == ".png" else None)
    except (OSError, ValueError) as error:
        raise ConfigError(f"⟨plot⟩ {out}: {error}") from None
    plt.close(figure)


def bytes_axis(axes: Any) -> None:
    """Bytes on a logarithmic horizontal axis, with units: 1 MB, 2 MB, 5 MB, 10 MB, …"""
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set_xscale("log")
    low, high = axes.get_xlim()
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high / low < 100 else (1.0,)))
    axes.xaxis.set_major_formatter(lambda value, _: _short_bytes(value))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _short_bytes(value: float) -> str:
    number, unit = human_bytes(value).split()
    return f"{float(number):g} {unit}"


def metric_name(metric: str) -> str:
    """A metric as an axis names it."""
    words = metric.replace("_", " ").replace("auroc", "AUROC")
    return words if words.startswith("holdout") else f"{words}, test records"


def plots_available() -> bool:
    return importlib.util.find_spec("matplotlib") is not None


def pyplot() -> Any:
    try:
        import matplotlib
    except ImportError:
        raise ConfigError("plots need matplotlib: pip install matplotlib") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    return plt


OVER = {"round": "round", "bytes": "bytes sent up, all clients", "epsilon": "ε against an outsider"}


def plot_run(history: list[Row], metric: str, over: str, label: str, axes: Any) -> Any:
    """The metric over rounds, bytes or ε, on `axes` or on new ones, which are returned."""
    try:
        from matplotlib import pyplot as plt
    except ImportError:
        raise ConfigError(f"plots need matplotlib: {how_to_install('plots')}") from None
    if over not in OVER:
        raise ConfigError(unknown("axis", over, OVER))
    sent = list(accumulate(row["bytes_up"] for row in history))
    places = {"round": [row["round"] for row in history], "bytes": sent}
    places["epsilon"] = [row.get("epsilon") for row in history]
    points = [
        (x, row[metric])
        for x, row in zip(places[over], history, strict=True)
        if x is not None and row.get(metric) is not None
    ]
    if not points:
        known = sorted({name for row in history for name, value in row.items() if isinstance(value, float)})
        raise ConfigError(unknown("metric of this run", metric, known) + f" (over {over})")
    if axes is None:
        axes = plt.subplots(layout="constrained")[1]
    axes.plot(*zip(*points, strict=True), marker="o" if len(points) < 30 else None, label=label)
    axes.set(xlabel=OVER[over], ylabel=metric.replace("_", " "), xscale="log" if over == "bytes" else "linear")
    axes.grid(alpha=0.3)
    axes.legend()
    return axes
