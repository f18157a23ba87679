"""Pictures of membership inference and of reconstructions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from laconic.report.plots import pyplot

Row = Mapping[str, Any]
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000")
_MARKERS = "os^DvPX"


def draw(name: str, rows: Sequence[Row], path: Path) -> None:
    """The picture of a kind of inference."""
    {"membership": draw_membership, "reconstruction": draw_reconstruction}[name](rows, path)


def draw_membership(rows: Sequence[Row], path: Path) -> None:
    """AUC and TPR at 1 % FPR by scheme, in two panels for each level; bars are 95 % intervals."""
    plt = pyplot()
    schemes = list(dict.fromkeys(row["scheme"] for row in rows))
    levels = list(dict.fromkeys(row["level"] for row in rows))
    height = (0.42 * len(schemes) + 1.2) * len(levels)
    figure, panels = plt.subplots(
        len(levels), 2, figsize=(10, height), sharey=True, sharex="col", layout="constrained", squeeze=False
    )
    for (left, right), level in zip(panels, levels, strict=True):
        shown = [row for row in rows if row["level"] == level]
        _by_view(left, shown, schemes, ("auc", "auc_low", "auc_high"))
        _by_view(right, shown, schemes, ("tpr_at_1%", "tpr_low_at_1%", "tpr_high_at_1%"))
        for row in shown:
            bound, place = row["gaussian_bound_at_1%"], schemes.index(row["scheme"])
            if bound is not None:
                right.plot([bound, bound], [place - 0.4, place + 0.4], color="black", linewidth=1.2)
        left.axvline(0.5, color="grey", linewidth=0.8)
        left.set(title=f"membership of a {level}", yticks=range(len(schemes)), yticklabels=schemes)
    panels[0][0].invert_yaxis()
    panels[-1][0].set(xlabel="AUC (0.5 is a coin)")
    panels[-1][1].set(xlabel="true positives at 1 % false ones (black: what the noise allows)")
    panels[0][1].legend(fontsize="small", title="view")
    _save(figure, path)


def _by_view(panel: Any, rows: Sequence[Row], schemes: list[str], keys: tuple[str, str, str]) -> None:
    """Points with intervals, those of each view a little lower than those of the one before."""
    views, (value, low, high) = list(dict.fromkeys(row["view"] for row in rows)), keys
    for number, view in enumerate(views):
        shown = [row for row in rows if row["view"] == view]
        reach = np.array([[row[value] - row[low] for row in shown], [row[high] - row[value] for row in shown]])
        places = [schemes.index(row["scheme"]) + 0.16 * (number - (len(views) - 1) / 2) for row in shown]
        style = {"fmt": _MARKERS[number], "color": _COLOURS[number], "capsize": 2, "markersize": 5}
        panel.errorbar([row[value] for row in shown], places, xerr=np.maximum(reach, 0), label=view, **style)
    panel.grid(axis="x", alpha=0.3)


def draw_reconstruction(rows: Sequence[Row], path: Path) -> None:
    """PSNR over the batch size, one line for each scheme; dashed: what one gets without any code."""
    plt = pyplot()
    figure, panel = plt.subplots(figsize=(7, 4.4), layout="constrained")
    series = list(dict.fromkeys((row["scheme"], row["view"]) for row in rows))
    for number, (scheme, view) in enumerate(series):
        shown = [row for row in rows if (row["scheme"], row["view"]) == (scheme, view)]
        label = scheme if view == "single" else f"{scheme}, sum"
        panel.errorbar(
            [row["batch"] for row in shown],
            [row["psnr"] for row in shown],
            yerr=[row["psnr_error"] for row in shown],
            label=label,
            color=_COLOURS[number % len(_COLOURS)],
            marker=_MARKERS[number % len(_MARKERS)],
            linestyle="-" if number < len(_COLOURS) else ":",
            capsize=2,
        )
    first = [row for row in rows if (row["scheme"], row["view"]) == series[0]]
    for key, label, style in (("psnr_mean", "mean picture", "--"), ("psnr_random", "random picture of the class", ":")):
        panel.plot([row["batch"] for row in first], [row[key] for row in first], style, color="grey", label=label)
    sizes = sorted({row["batch"] for row in rows})
    panel.set_xscale("log", base=2)
    panel.set(xlabel="records in the batch", ylabel="PSNR in dB (bars: standard error)", xticks=sizes)
    panel.set_xticklabels([str(size) for size in sizes])
    panel.minorticks_off()
    panel.grid(alpha=0.3)
    panel.legend(fontsize="x-small", ncols=2)
    _save(figure, path)


def draw_grid(rows: Sequence[tuple[str, np.ndarray]], path: Path) -> None:
    """Pictures side by side: a title and pictures (count, height, width) or (count, height, width, 3) for each row."""
    plt = pyplot()
    columns = max(len(pictures) for _, pictures in rows)
    figure, panels = plt.subplots(
        len(rows), columns, figsize=(0.9 * columns + 2, 0.95 * len(rows)), layout="constrained", squeeze=False
    )
    for line, (title, pictures) in zip(panels, rows, strict=True):
        for panel in line:
            panel.set_axis_off()
        for panel, picture in zip(line, pictures, strict=False):
            panel.imshow(picture, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        line[0].text(-0.15, 0.5, title, transform=line[0].transAxes, ha="right", va="center", fontsize="small")
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    from laconic.errors import ConfigError

    try:
        figure.savefig(path, dpi=120)
    except (OSError, ValueError) as error:
        raise ConfigError(f"--out {path.parent}: {error}") from None
    pyplot().close(figure)
