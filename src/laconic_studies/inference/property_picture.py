"""Property inference as a table and as a picture: how often the attacker is right, by scheme, view and feature map."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from laconic.errors import ConfigError
from laconic.report.plots import pyplot

Row = Mapping[str, Any]
_COLOURS = {"absolute": "#E69F00", "signed": "#0072B2"}
_MARKERS = {"absolute": "s", "signed": "o"}
_TITLES = {"single": "one client's code", "others": "sum of the others", "model": "change of the model"}


def write_rows(rows: Sequence[Row], path: Path) -> None:
    """As CSV, one line for each figure."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
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
        for features in _COLOURS:
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
                fmt=_MARKERS[features],
                color=_COLOURS[features],
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
