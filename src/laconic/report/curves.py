"""The curve of one run, for `RunResult.plot`. Needs matplotlib."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from laconic.errors import ConfigError, how_to_install, unknown

OVER = {"round": "round", "bytes": "bytes sent up, all clients", "epsilon": "ε against an outsider"}


def plot_run(history: list[dict[str, Any]], metric: str, over: str, label: str, axes: Any) -> Any:
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
