"""Which records belong to which unit."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

MOST_TOGETHER = 64
"""Of units with so many records or fewer all pairs of records are multiplied; others are large."""


class Groups:
    """The units of an owner, numbered from 0."""

    def __init__(self, units: Tensor | None, count: int) -> None:
        self.units = units
        self.num_units = count if units is None else (int(units.max()) + 1 if count else 0)
        numbers = np.arange(count) if units is None else units.cpu().numpy()
        self._order = np.argsort(numbers, kind="stable")
        self.sizes = np.bincount(numbers, minlength=self.num_units)
        self._starts = np.cumsum(self.sizes) - self.sizes
        self.single = units is None
        device = torch.device("cpu") if units is None else units.device
        self.large = torch.from_numpy(self.sizes > MOST_TOGETHER).to(device)[:, None]

    def rows_of(self, unit: int) -> Tensor:
        """The records of a unit."""
        start = int(self._starts[unit])
        return torch.from_numpy(self._order[start : start + int(self.sizes[unit])])

    def all_units(self, drawn: Tensor | None) -> np.ndarray:
        """The units that contribute: drawn, and with records."""
        there = self.sizes > 0
        return np.flatnonzero(there if drawn is None else there & drawn.cpu().numpy())

    def every(self, records: Tensor) -> Tensor:
        """(units, 1): whether it holds for all records of a unit."""
        assert self.units is not None
        wrong = torch.zeros(self.num_units, dtype=torch.bool, device=records.device)
        wrong[self.units[~records[:, 0]]] = True
        return ~wrong[:, None]

    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """All pairs (i, j) of records of a unit, with i before or at j; of units that are not large."""
        sizes = np.repeat(self.sizes, self.sizes)
        place = np.arange(len(sizes)) - np.repeat(self._starts, self.sizes)
        lengths = np.where(sizes <= MOST_TOGETHER, sizes - place, 0)
        first = np.repeat(np.arange(len(sizes)), lengths)
        second = first + np.arange(len(first)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return self._order[first], self._order[second]

    def records_of(self, units: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The records of some units (ascending), one unit after another, and the unit of each."""
        if self.single:
            return units, units
        chosen = np.zeros(self.num_units, dtype=bool)
        chosen[units] = True
        owners = np.repeat(np.arange(self.num_units), self.sizes)
        return self._order[chosen[owners]], owners[chosen[owners]]
