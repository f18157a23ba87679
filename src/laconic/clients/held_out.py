"""Records that a client sets aside to measure the model on; it never trains on them in the same run.

Which they are follows from the public seed of the run, the client's number and how many records it has. So they are the
same in every round, after a restart, and on a node as in a simulation.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from laconic.data.population import PooledPopulation, Population, Records

_PURPOSE = int.from_bytes(b"held out")
"""Keeps these draws apart from whatever else follows from the same numbers."""


def split_rows(size: int, fraction: float, run_seed: int, client: int) -> tuple[np.ndarray, np.ndarray]:
    """(rows to train on, rows to measure on), each sorted. One of two records or more is always left to train on."""
    count = min(round(fraction * size), size - 1)
    if fraction > 0 and size > 1:
        count = max(1, count)
    generator = np.random.Generator(np.random.Philox(np.random.SeedSequence([_PURPOSE, run_seed, client])))
    held = np.zeros(size, dtype=bool)
    held[generator.permutation(size)[:count]] = True
    return np.flatnonzero(~held), np.flatnonzero(held)


def trained_and_held(population: Population, fraction: float, run_seed: int) -> tuple[Population, Population]:
    """The same clients twice: with the records that they train on, and with those that they set aside."""

    def split(client: int) -> tuple[np.ndarray, np.ndarray]:
        return split_rows(population.size(client), fraction, run_seed, client)

    if type(population) is PooledPopulation:
        rows = [population.rows(client) for client in range(population.num_clients)]
        parts = [tuple(held[some] for some in split(client)) for client, held in enumerate(rows)]
        return population.with_rows([part[0] for part in parts]), population.with_rows([part[1] for part in parts])
    return _Some(population, lambda client: split(client)[0]), _Some(population, lambda client: split(client)[1])


class _Some:
    """Some records of every client."""

    def __init__(self, population: Population, rows: Callable[[int], np.ndarray]) -> None:
        self._population, self._rows = population, rows

    @property
    def num_clients(self) -> int:
        return self._population.num_clients

    def size(self, client: int) -> int:
        return len(self._rows(client))

    def records(self, client: int) -> Records:
        return self._population.records(client).some(self._rows(client))

    def to(self, device: torch.device) -> Population:
        return _Some(self._population.to(device), self._rows)
