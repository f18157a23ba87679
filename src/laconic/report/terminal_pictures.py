"""Records for a terminal: pictures as blocks of colour or as characters, series as sparklines, the rest as numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.text import Text

_SHADES = " .:-=+*#%@"
_LEVELS = "▁▂▃▄▅▆▇█"
_LINE = 64
_NUMBERS = 16


def picture_row(pictures: Sequence[np.ndarray], *, colour: bool) -> list[Text]:
    """Pictures (channels, height, width) with values 0 … 1, side by side. One character is two pixels, one above."""
    lines = []
    for top in range(0, pictures[0].shape[1], 2):
        line = Text()
        for picture in pictures:
            pair = picture[:, [top, min(top + 1, picture.shape[1] - 1)]]
            for column in range(picture.shape[2]):
                _append(line, pair[:, 0, column], pair[:, 1, column], colour)
            line.append("  ")
        lines.append(line)
    return lines


def _append(line: Text, upper: np.ndarray, lower: np.ndarray, colour: bool) -> None:
    if colour:
        line.append("▀", style=f"{_rgb(upper)} on {_rgb(lower)}")
    else:
        shade = float(np.clip((upper.mean() + lower.mean()) / 2, 0, 1))
        line.append(_SHADES[min(int(shade * len(_SHADES)), len(_SHADES) - 1)])


def _rgb(pixel: np.ndarray) -> str:
    red, green, blue = np.broadcast_to((np.clip(pixel, 0, 1) * 255).round().astype(int), 3)
    return f"rgb({red},{green},{blue})"


def series_lines(series: np.ndarray, *, fancy: bool) -> list[str]:
    """A window (time, channels): a line for each channel, from its least to its largest value."""
    marks = _LEVELS if fancy else _SHADES
    lines = []
    for channel in series.T:
        means = np.array([part.mean() for part in np.array_split(channel, min(_LINE, len(channel)))])
        low, high = float(means.min()), float(means.max())
        places = ((means - low) / (high - low or 1) * (len(marks) - 1)).round().astype(int)
        lines.append(f"{''.join(marks[place] for place in places)}  {low:.2f} to {high:.2f}")
    return lines


def number_line(values: np.ndarray) -> str:
    """The first numbers; of padded tokens, those that are not padding."""
    flat = values.reshape(-1)
    if flat.dtype.kind in "iu":
        flat = flat[flat != 0] if (flat != 0).any() else flat
    shown = " ".join(f"{value:g}" for value in flat[:_NUMBERS].tolist())
    return f"{shown} … ({len(flat)} numbers)" if len(flat) > _NUMBERS else shown
