"""Pictures of runs. Needs matplotlib, which nothing else does."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from laconic.errors import ConfigError, RunFolderError


def read_history(folder: Path) -> list[dict[str, Any]]:
    """The rows of a run folder's rounds.jsonl."""
    path = folder / "rounds.jsonl"
    try:
        return [json.loads(line) for line in path.read_text().splitlines() if line]
    except OSError as error:
        raise RunFolderError(f"{folder} is not a run folder: {error.strerror} ({path.name})") from None
    except json.JSONDecodeError:
        raise RunFolderError(f"{path} is damaged") from None


COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Okabe and Ito's, which also people who see few colours tell apart."""
_MARKERS = "os^Dv*X"


def plot_curves(histories: Mapping[str, list[dict[str, Any]]], out: Path, metric: str = "accuracy") -> None:
    """The metric of several runs, against rounds and against the bytes that went up."""
    plt = pyplot()
    figure, (by_round, by_bytes) = plt.subplots(1, 2, figsize=(11, 4), sharey=True, layout="constrained")
    for place, (name, history) in enumerate(histories.items()):
        rows = [row for row in history if metric in row]
        total = 0
        sent = {row["round"]: (total := total + row["bytes_up"]) for row in history}
        look: dict[str, Any] = {
            "color": COLOURS[place % 7],
            "marker": _MARKERS[(place + place // 7) % 7],
            "label": name,
        }
        look |= {"markersize": 4, "markevery": max(1, len(rows) // 12)}
        values = [row[metric] for row in rows]
        by_round.plot([row["round"] for row in rows], values, **look)
        by_bytes.plot([sent[row["round"]] / 1e6 for row in rows], values, **look)
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
    return any(row["bytes_up"] for history in histories.values() for row in history)


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
