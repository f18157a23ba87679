"""The files of a reproduced table: table.md, table.csv, and pictures.

There are pictures of accuracy against bytes, of accuracy on the attacked class by round (thesis Fig. 6.1 and 6.2),
and of where the weights that FL-TOP keeps are and how large they become (thesis Fig. 5.1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from laconic.errors import RunFolderError
from laconic.report.plots import bytes_axis, line_style, plots_available, pyplot, read_history
from laconic.settings.build import settle
from laconic.store.checkpoint import load_state
from laconic.store.folder import RunFolder
from laconic.train.flat import trainable_size
from laconic_studies.reproduce.comparison import Measured, Results, markdown, table_csv
from laconic_studies.reproduce.reproduction import Reproduction
from laconic_studies.reproduce.tables import BYTES, Row, Table


def write_table(reproduction: Reproduction, *, plots: bool) -> list[str]:
    """Write them from all runs that are finished; returns what could not be done."""
    results, table = reproduction.results(), reproduction.table
    text, warnings = markdown(table, results, reproduction.notes), []
    folder = RunFolder(reproduction.folder)
    folder.make()
    if plots and any(results.values()):
        drawable = plots_available()
        if not drawable:
            warnings.append("no pictures: matplotlib is not installed")
        text += _accuracy_picture(reproduction, results) if drawable and not table.of_attacks else ""
        text += _class_curves(reproduction) if drawable and table.figure == "class-curves" else ""
        text += _kept_weights(reproduction, drawable) if table.figure == "kept-weights" else ""
    folder.write("table.md", text)
    folder.write("table.csv", table_csv(table, results))
    return warnings


def _accuracy_picture(reproduction: Reproduction, results: Results) -> str:

    plot_table(reproduction.table, results, reproduction.folder / "table.png", quick=reproduction.quick)
    return "\n![Best accuracy against bytes](table.png)\n"


def _class_curves(reproduction: Reproduction) -> str:

    curves = class_curves(reproduction)
    if not curves:
        return ""
    plot_class_curves(curves, reproduction.folder / "figure.png")
    return "\n![Accuracy by round](figure.png)\n"


def _kept_weights(reproduction: Reproduction, drawable: bool) -> str:

    weights = kept_weights(reproduction, seed=0)
    if weights is None:
        return ""
    text = f"\n## The kept weights, seed 0\n\n{weights.markdown()}"
    if drawable:
        plot_kept_weights(weights.values(), reproduction.folder / "figure.png")
        text += "\n![Values of the kept weights](figure.png)\n"
    return text


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


BEFORE = "before training"
"""Stands among the schemes for the initial weights."""


@dataclass(frozen=True, kw_only=True)
class Layer:
    """The kept weights of one layer, by the scheme that trained them."""

    name: str
    shape: tuple[int, ...]
    values: Mapping[str, np.ndarray]


@dataclass(frozen=True)
class KeptByLayer:
    """The kept weights of a model, layer by layer."""

    layers: Sequence[Layer]

    def values(self) -> dict[str, np.ndarray]:
        """All kept weights, by scheme."""
        return {name: np.concatenate([layer.values[name] for layer in self.layers]) for name in self.layers[0].values}

    def markdown(self) -> str:
        """How many of each layer are kept, and their mean size under each scheme."""
        schemes = list(self.layers[0].values)
        head = ["layer", "shape", "weights", "kept", *(f"mean size, {scheme}" for scheme in schemes)]
        lines = ["| " + " | ".join(head) + " |", "| " + " | ".join("---" for _ in head) + " |"]
        whole = Layer(name="all", shape=(), values=self.values())
        total = sum(int(np.prod(layer.shape)) for layer in self.layers)
        for layer in [*self.layers, whole]:
            size = int(np.prod(layer.shape)) if layer.shape else total
            kept = len(layer.values[schemes[0]])
            sizes = [f"{np.abs(layer.values[s]).mean():.4f}" if kept else "–" for s in schemes]
            shape = "×".join(map(str, layer.shape))
            lines.append(f"| {layer.name} | {shape} | {size:,} | {kept:,} | " + " | ".join(sizes) + " |")
        norms = ", ".join(f"{name} {np.linalg.norm(values):.2f}" for name, values in self.values().items())
        return "\n".join([*lines, "", f"Euclidean norm of all kept weights: {norms}.", ""])


def kept_weights(reproduction: Reproduction, seed: int) -> KeptByLayer | None:
    """From the runs of one seed; None before all of them are finished."""
    rows = reproduction.table.rows
    if not all(reproduction.finished(row, seed) for row in rows):
        return None
    chooser = next(row for row in rows if row.scheme.startswith("fl-top"))
    config = reproduction.config(chooser, seed).with_values({"run.device": "cpu"})  # nothing is computed here
    experiment = settle(config).experiment
    state = load_state(
        RunFolder(reproduction.run_folder(chooser, seed)), trainable_size(experiment.model), torch.device("cpu")
    )
    if state is None:
        raise RunFolderError(f"{reproduction.run_folder(chooser, seed)} has no checkpoint any more: delete the folder")
    kept = state.shared["kept"]
    layers, start = [], 0
    parameters = [(name, p) for name, p in experiment.model.named_parameters() if p.requires_grad]
    final = {row.label: _weights(RunFolder(reproduction.run_folder(row, seed))) for row in rows}
    for name, parameter in parameters:
        inside = kept[(kept >= start) & (kept < start + parameter.numel())] - start
        values = {label: weights[name].reshape(-1)[inside].numpy() for label, weights in final.items()}
        values[BEFORE] = parameter.detach().reshape(-1)[inside].numpy()
        layers.append(Layer(name=name, shape=tuple(parameter.shape), values=values))
        start += parameter.numel()
    return KeptByLayer(layers)


def _weights(folder: RunFolder) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    path = folder.path / "best.safetensors"
    try:
        weights: dict[str, torch.Tensor] = load_file(path)
    except OSError as error:
        raise RunFolderError(
            f"cannot read {path}: {error.strerror}; delete the folder, and the row is run again"
        ) from None
    return weights
