"""Who holds which records under an attack: classes that clients do not have, and labels that attackers change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from laconic.data.inputs import concatenated
from laconic.data.population import PooledPopulation, Population, Records, patients_of
from laconic.errors import DataError

Dropped = Callable[[int], tuple[int, ...]]
"""The classes that a client does not hold."""
Relabel = Callable[[int, Tensor], Tensor]
"""A client's targets as it trains on them."""


def without_classes(population: Population, dropped: Dropped) -> Population:
    """The same clients without the records of some classes; a pool of records stays the pool it is."""
    if not isinstance(population, PooledPopulation):
        return Thinned(population, dropped)
    rows = []
    for client in range(population.num_clients):
        held = np.asarray(population.rows(client))
        keep = _kept(population.targets(client), dropped(client))
        rows.append(held[keep.cpu().numpy()])
        _check(client, len(rows[-1]))
    return population.with_rows(rows)


def _kept(targets: Tensor, dropped: tuple[int, ...]) -> Tensor:
    return ~torch.isin(targets, torch.tensor(dropped, dtype=targets.dtype, device=targets.device))


def _check(client: int, left: int) -> None:
    if not left:
        raise DataError(
            f"client {client} holds nothing but classes that the attack removes: use ⟨partition⟩ iid, fewer clients, or"
            " remove fewer classes"
        )


@dataclass(frozen=True)
class Thinned:
    """Clients that are made or read on demand, without the records of some classes."""

    population: Population
    dropped: Dropped

    @property
    def num_clients(self) -> int:
        return self.population.num_clients

    def size(self, client: int) -> int:
        return len(self.records(client).targets)

    def records(self, client: int) -> Records:
        records = self.population.records(client)
        kept = torch.nonzero(_kept(records.targets, self.dropped(client)))[:, 0]
        _check(client, len(kept))
        return records.some(kept)

    def patients(self, client: int) -> np.ndarray | None:
        whose = patients_of(self.population, client)
        kept = _kept(self.population.records(client).targets, self.dropped(client))
        return None if whose is None else whose[kept.cpu().numpy()]

    def to(self, device: torch.device) -> Thinned:
        return Thinned(self.population.to(device), self.dropped)


@dataclass(frozen=True)
class Relabelled:
    """Clients that train on other labels than their records have."""

    population: Population
    relabel: Relabel

    @property
    def num_clients(self) -> int:
        return self.population.num_clients

    def size(self, client: int) -> int:
        return self.population.size(client)

    def records(self, client: int) -> Records:
        inputs, targets = self.population.records(client)
        return Records(inputs, self.relabel(client, targets))

    def to(self, device: torch.device) -> Relabelled:
        return Relabelled(self.population.to(device), self.relabel)


def union(population: Population, clients: np.ndarray, relabel: Relabel | None) -> PooledPopulation:
    """One client that holds all records of these, ∪_k D_k, with the labels on which they train."""
    everyone = [int(client) for client in clients]
    if isinstance(population, PooledPopulation):
        pool, rows = population.pool, [np.asarray(population.rows(client)) for client in everyone]
        targets = pool.targets.clone()
        for client, held in zip(everyone, rows, strict=True):
            if relabel is not None:
                where = torch.from_numpy(held).to(targets.device)
                targets[where] = relabel(client, pool.targets[where])
        return PooledPopulation(Records(pool.inputs, targets), np.concatenate(rows)[None])
    source = population if relabel is None else Relabelled(population, relabel)
    every = [source.records(client) for client in everyone]
    records = Records(concatenated([r.inputs for r in every]), torch.cat([r.targets for r in every]))
    return PooledPopulation(records, np.arange(len(records.targets))[None])
