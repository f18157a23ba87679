"""A data set as `laconic datasets NAME` shows it: a few records, and how they are divided among clients.

For a terminal, pictures are blocks of colour or characters, series are sparklines, and the rest is numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from rich.text import Text

from laconic.data.federated import FederatedData
from laconic.data.inputs import SparseRows, dense
from laconic.data.population import Population, Records, some_of, targets_of

_QUANTILES = {"least": 0.0, "lower quarter": 0.25, "median": 0.5, "upper quarter": 0.75, "most": 1.0}
_GAP = 2


def division(data: FederatedData) -> dict[str, Any]:
    """How many records, and of how many classes, the clients hold; and what was set aside."""
    population = data.population
    sizes, classes = [], []
    for client in range(population.num_clients):
        targets = targets_of(population, client).cpu().numpy()
        sizes.append(len(targets))
        if targets.dtype.kind in "iu":
            classes.append(len(np.unique(targets)))
    return {
        "client": data.client,
        "clients": population.num_clients,
        "records": int(np.sum(sizes)),
        "records_per_client": _quantiles(sizes),
        "classes_per_client": _quantiles(classes) if classes else None,
        "test_records": 0 if data.test is None else len(data.test.targets),
        "test_records_of_clients": data.test_clients is not None,
        "held_out_records": 0 if data.holdout is None else len(data.holdout.targets),
        "public_records": 0 if data.public is None else len(data.public.targets),
    }


def _quantiles(counts: Sequence[int]) -> dict[str, float]:
    return {name: float(np.quantile(counts, share)) for name, share in _QUANTILES.items()}


def division_lines(found: dict[str, Any]) -> Iterator[str]:
    yield f"{found['clients']:,} clients hold {found['records']:,} records" + (
        f"; a client is {found['client']}" if found["client"] else ""
    )
    for key, name in (("records_per_client", "records a client"), ("classes_per_client", "classes a client")):
        if found[key]:
            yield f"{name}: " + ", ".join(f"{what} {count:g}" for what, count in found[key].items())
    for key, name in (("test_records", "test"), ("held_out_records", "held-out"), ("public_records", "public")):
        if found[key]:
            own = key == "test_records" and found["test_records_of_clients"]
            yield f"{found[key]:,} {name} records, on which no client trains" + ("; they are the clients' own" * own)


def example_lines(
    data: FederatedData, classes: Sequence[str], *, width: int, colour: bool, fancy: bool
) -> list[Text | str]:
    """A few records of the first client: pictures side by side, everything else one below the other; or a few texts."""
    if data.wording is not None:
        return [f"{_name(target, classes)}: {text}" for target, text in data.wording.examples]
    if _are_pictures(data.input_shape):
        most = max(1, min(8, width // (data.input_shape[2] + _GAP)))
        some = _few(data.population, most)
        names = [_name(target, classes) for target in some.targets.tolist()]
        each = data.input_shape[2]
        caption = (" " * _GAP).join(name[:each].ljust(each) for name in names)
        return [*picture_row(list(dense(some.inputs).cpu().numpy()), colour=colour), caption.rstrip()]
    lines: list[Text | str] = []
    some = _few(data.population, 3)
    for number, target in enumerate(some.targets.tolist()):
        lines.append(f"{_name(target, classes)}:")
        lines += [f"  {line}" for line in _record_lines(data, some, number, fancy)]
    return lines


def _few(population: Population, most: int) -> Records:
    """The first client's: the first records of as many classes as can be, then the other first ones."""
    targets = targets_of(population, 0).cpu().numpy()
    _, first = np.unique(targets, return_index=True, axis=0)
    order = np.concatenate([np.sort(first), np.setdiff1d(np.arange(len(targets)), first)])
    return some_of(population, 0, order[:most])


def _are_pictures(shape: Sequence[int]) -> bool:
    return len(shape) == 3 and shape[0] in (1, 3)


def _record_lines(data: FederatedData, some: Records, number: int, fancy: bool) -> list[str]:
    if isinstance(some.inputs, SparseRows):
        row = some.inputs[np.array([number])]
        pairs = zip(row.indices.tolist(), row.entry_values().tolist(), strict=True)
        names = None if data.preprocessing is None else data.preprocessing.feature_names
        return [", ".join(f"{names[at] if names else at} {value:g}" for at, value in pairs)]
    values = dense(some.inputs)[number].cpu().numpy()
    return series_lines(values, fancy=fancy) if values.ndim == 2 else [number_line(values)]


def _name(target: Any, classes: Sequence[str]) -> str:
    return classes[target] if isinstance(target, int) and 0 <= target < len(classes) else str(target)


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
