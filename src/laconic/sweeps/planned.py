"""What the runs of a sweep will promise and cost, before any is started (`--dry-run`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from laconic.data.sources import sources_kept
from laconic.errors import LaconicError
from laconic.settings.forecast import forecast
from laconic.sweeps.grid import Grid, Point


@dataclass(frozen=True)
class Planned:
    """A combination, how many seeds it is run with, and its costs: of one run, for all its rounds."""

    values: dict[str, Any]
    seeds: int
    problem: str | None = None
    epsilon: float | None = None
    noise_multiplier: float | None = None
    bytes_up: int = 0
    bytes_down: int = 0


def planned(grid: Grid, points: list[Point]) -> Iterator[Planned]:
    """A line per combination. The data are loaded and σ is calibrated, but nothing is trained or written."""
    first = {point.place: point for point in reversed(points)}
    with sources_kept():
        for values in grid.combinations():
            point = first[tuple(str(value) for value in values.values())]
            try:
                costs = forecast(point.config, brief=True)
            except LaconicError as error:
                yield Planned(values, len(grid.seeds), problem=str(error))
                continue
            privacy = costs["privacy"] or {}
            yield Planned(
                values,
                len(grid.seeds),
                epsilon=_epsilon(privacy),
                noise_multiplier=privacy.get("noise_multiplier"),
                bytes_up=costs["bytes_up_in_all"],
                bytes_down=costs["bytes_down_in_all"],
            )


def _epsilon(privacy: dict[str, Any]) -> float | None:
    """The outsider's, after all rounds."""
    if not privacy:
        return None
    of_all_rounds = list(privacy["released"].values())[-1]
    found: float | None = of_all_rounds[privacy["accountant"]]
    return found
