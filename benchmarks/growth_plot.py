"""The growth curves as one picture: seconds above, memory below."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def draw(curves: list[dict[str, Any]], path: Path) -> None:
    figure, axes = plt.subplots(2, len(curves), figsize=(3.2 * len(curves), 5), squeeze=False)
    for column, curve in zip(axes.T, curves, strict=True):
        x = [point["x"] for point in curve["points"]]
        for axis, key, label in zip(column, ("seconds", "peak_mb"), ("seconds a round", "peak MB"), strict=True):
            axis.loglog(x, [point[key] for point in curve["points"]], marker="o")
            axis.set_xlabel(curve["axis"])
            axis.set_ylabel(label)
            axis.set_ylim(bottom=axis.get_ylim()[0] / 2, top=axis.get_ylim()[1] * 2)  # noise must not look like a slope
            axis.grid(True, which="major", alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)
