"""Accuracy and accuracy on the attacked class by round (thesis Fig. 6.1 and 6.2), from the folders of finished runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from laconic.report.plots import line_style, pyplot, read_history
from laconic_studies.reproduce.reproduction import Reproduction

Curves = dict[str, list[dict[str, Any]]]


def class_curves(reproduction: Reproduction, seed: int = 0) -> Curves:
    """The rows of every run of the table that is finished, by what it is called."""
    rows = [row for row in reproduction.table.rows if reproduction.finished(row, seed)]
    return {row.label: read_history(reproduction.run_folder(row, seed)) for row in rows}


def plot_class_curves(curves: Curves, out: Path) -> None:
    """One panel for each run: the whole test set, and the attacked class."""
    plt = pyplot()
    figure, axes = plt.subplots(1, len(curves), figsize=(5.2 * len(curves), 3.8), sharey=True, squeeze=False)
    for panel, (name, history) in zip(axes[0], curves.items(), strict=True):
        for place, (key, label) in enumerate((("accuracy", "all classes"), ("class_accuracy", "attacked class"))):
            known = [row for row in history if row.get(key) is not None]
            style = line_style(place) | {"markevery": max(1, len(known) // 8)}
            panel.plot([row["round"] for row in known], [row[key] for row in known], label=label, **style)
        panel.set(title=name, xlabel="round", ylim=(0, 1))
        panel.grid(alpha=0.3)
    axes[0][0].set_ylabel("accuracy, test records")
    axes[0][0].legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(out, dpi=120)
    plt.close(figure)
