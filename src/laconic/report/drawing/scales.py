"""Axes: from values to places, and round numbers on the way."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Axis:
    """An axis with a name (and unit), its ends, and how its numbers are written."""

    label: str
    low: float
    high: float
    log: bool = False
    whole: bool = False
    """Whether only whole numbers make sense."""
    written: Callable[[float], str] = lambda value: f"{value:g}"
    """How a value of a point is written."""
    marked: Callable[[float], str] = lambda value: f"{value:,.10g}"
    """How the round numbers along the axis are written."""

    def place(self, value: float) -> float:
        """0 at the lower end, 1 at the upper one."""
        if self.log:
            span = math.log(self.high) - math.log(self.low)
            return (math.log(value) - math.log(self.low)) / span
        return (value - self.low) / (self.high - self.low)

    @property
    def ticks(self) -> list[float]:
        if self.log:
            return _log_ticks(self.low, self.high)
        return [value for value in _ticks(self.low, self.high) if not self.whole or value == int(value)]


_LARGEST, _SMALLEST = 1e100, 1e-100


def drawable(value: float, log: bool = False) -> bool:
    """Whether a value has a place on an axis: it is finite, and no power of it leaves the range of floats."""
    return abs(value) <= _LARGEST and (value >= _SMALLEST or not log)


def axis_for(
    label: str,
    values: Iterable[float],
    *,
    log: bool = False,
    whole: bool = False,
    low: float | None = None,
    high: float | None = None,
    written: Callable[[float], str] | None = None,
    marked: Callable[[float], str] | None = None,
) -> Axis:
    """An axis on which all values have a place; logarithmic only where all are positive."""
    known = [value for value in values if drawable(value)]
    log = log and bool(known) and all(drawable(value, log=True) for value in known)
    least = min(known, default=0.0) if low is None else low
    most = max(known, default=1.0) if high is None else high
    if log and most / least < 1.5:
        least, most = least / 1.3, most * 1.3
    elif most - least <= 1e-12 * max(abs(most), abs(least), _SMALLEST):
        room = max(0.5, abs(least) / 10)  # next to 1e18 a half is nothing
        least, most = least - (room if low is None else 0.0), least + (room if low is None else 2 * room)
    writing = {key: value for key, value in (("written", written), ("marked", marked)) if value is not None}
    return Axis(label=label, low=least, high=most, log=log, whole=whole, **writing)


def _ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Multiples of 1, 2, 2.5 or 5 times a power of ten."""
    rough = (high - low) / about
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * nice for nice in (1, 2, 2.5, 5, 10) if power * nice >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    count = math.floor(high / step + 1e-9) - first + 1
    return [round((first + number) * step, 12) for number in range(count)]


def _log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten; with 2 and 5 of each where there are few."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1,), (1, 3), (1, 2, 5)):
        found = [d * 10.0**p for p in powers for d in digits if low * 0.999 <= d * 10.0**p <= high * 1.001]
        if len(found) >= 3:
            break
    if len(found) < 2:
        return _ticks(low, high, 4)
    return found if len(found) <= 7 else found[:: -(-len(found) // 6)]
