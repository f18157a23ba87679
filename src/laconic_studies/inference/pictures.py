"""Pictures of membership inference, reconstructions and property inference; and property inference as a table."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from laconic.errors import ConfigError
from laconic.files import private_folder
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


_COLOUR_OF = {"absolute": "#E69F00", "signed": "#0072B2"}
_MARKER_OF = {"absolute": "s", "signed": "o"}
_TITLES = {"single": "one client's code", "others": "sum of the others", "model": "change of the model"}


def write_rows(rows: Sequence[Row], path: Path) -> None:
    """As CSV, one line for each figure."""
    try:
        private_folder(path.parent)
        with path.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.DictWriter(stream, rows[0].keys(), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    except OSError as error:
        raise ConfigError(f"--out {path.parent}: {error.strerror}") from None


def draw_property(rows: Sequence[Row], path: Path) -> None:
    """AUC with its 95 % interval, one panel for each view; of several classifiers the first one.

    A coin has 0.5. To take the better of two classifiers would make coins look better than they are.
    """
    plt = pyplot()
    views = [view for view in _TITLES if any(row["view"] == view for row in rows)]
    names = list(dict.fromkeys(_label(row) for row in rows))
    figure, axes = plt.subplots(
        1, len(views), figsize=(3.2 * len(views) + 1.4, 0.42 * len(names) + 1.6), sharey=True, squeeze=False
    )
    for panel, view in zip(axes[0], views, strict=True):
        for features in _COLOUR_OF:
            found = [_row(rows, name, view, features) for name in names]
            places = [place for place, row in enumerate(found) if row is not None]
            shown = [row for row in found if row is not None]
            values = [float(row["auc"]) for row in shown]
            reach = [
                [value - float(row["auc_low"]) for value, row in zip(values, shown, strict=True)],
                [float(row["auc_high"]) - value for value, row in zip(values, shown, strict=True)],
            ]
            shift = -0.14 if features == "absolute" else 0.14
            panel.errorbar(
                values,
                [place + shift for place in places],
                xerr=reach,
                fmt=_MARKER_OF[features],
                color=_COLOUR_OF[features],
                capsize=2,
                label=f"{features} features",
            )
        panel.axvline(0.5, color="0.5", linewidth=1, linestyle=":")
        panel.set(title=_TITLES[view], xlabel="AUC of the attacker", xlim=(0.3, 1.02))
        panel.grid(axis="x", alpha=0.3)
    axes[0][0].set_yticks(range(len(names)), names)
    axes[0][0].invert_yaxis()
    axes[0][-1].legend(fontsize="small", loc="lower right")
    first = rows[0]
    stand_in = f", a stand-in for {first['stand_in_for']}" if first["stand_in_for"] else ""
    figure.suptitle(
        f"Property '{first['property']}' in {first['dataset']}{stand_in} ({first['classifier']});"
        " bars: 95 %; dotted: a coin",
        fontsize="medium",
    )
    figure.tight_layout()
    try:
        figure.savefig(path, dpi=120)
    except OSError as error:
        raise ConfigError(f"--out {path.parent}: {error.strerror}") from None
    plt.close(figure)


def _label(row: Row) -> str:
    noise = f", σ = {float(row['noise_multiplier']):g}" if row["noise_multiplier"] != "" else ""
    clean = ", clean emulation" if row["emulation"] == "clean" else ""
    return f"{row['scheme']}{noise}{clean}"


def _row(rows: Sequence[Row], name: str, view: str, features: str) -> Row | None:
    some = (row for row in rows if _label(row) == name and row["view"] == view and row["features"] == features)
    return next((row for row in some if row["classifier"] == rows[0]["classifier"]), None)
