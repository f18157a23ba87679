"""Pictures of runs. Needs matplotlib, which nothing else does."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from laconic.errors import ConfigError, RunFolderError
from laconic.report.page.metrics import curve, sent_up


def read_history(folder: Path) -> list[dict[str, Any]]:
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


COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Okabe and Ito's, which also people who see few colours tell apart."""
_MARKERS = "os^Dv*X"


def plot_curves(histories: Mapping[str, list[dict[str, Any]]], out: Path, metric: str = "accuracy") -> None:
    """The metric of several runs, against rounds and against the bytes that went up."""
    plt = pyplot()
    figure, (by_round, by_bytes) = plt.subplots(1, 2, figsize=(11, 4), sharey=True, layout="constrained")
    for place, (name, history) in enumerate(histories.items()):
        points, sent = curve(history, metric), sent_up(history)
        look: dict[str, Any] = {
            "color": COLOURS[place % 7],
            "marker": _MARKERS[(place + place // 7) % 7],
            "label": name,
        }
        look |= {"markersize": 4, "markevery": max(1, len(points) // 12)}
        values = [value for _, value in points]
        by_round.plot([number for number, _ in points], values, **look)
        by_bytes.plot([sent[number] / 1e6 for number, _ in points], values, **look)
    by_round.set(xlabel="round", ylabel=metric.replace("_", " "))
    by_bytes.set(xlabel="MB sent up by all clients so far", xscale="log" if _any_sent(histories) else "linear")
    if histories:
        by_round.legend(loc="best", fontsize="small")
    for axes in (by_round, by_bytes):
        axes.grid(alpha=0.3)
    try:
        figure.savefig(out, dpi=120)
    except (OSError, ValueError) as error:
        raise ConfigError(f"--plot {out}: {error}") from None
    plt.close(figure)


def _any_sent(histories: Mapping[str, list[dict[str, Any]]]) -> bool:
    return any(total > 0 for history in histories.values() for total in sent_up(history).values())


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
