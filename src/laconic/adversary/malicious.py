"""Who is malicious: a fixed set of clients, how many of them are in a cohort, and which records they train on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from laconic.adversary.attack import Attack
from laconic.data.inputs import concatenated
from laconic.data.population import PooledPopulation, Population, Records, patients_of
from laconic.errors import ConfigError, DataError
from laconic.streams import Streams


def malicious_clients(attack: Attack, num_clients: int, streams: Streams) -> np.ndarray:
    """𝕄, sorted: the clients that the attack names, or round(α·N) of all, drawn from a stream of their own."""
    if attack.fraction is None:
        if max(attack.malicious) >= num_clients:
            raise ConfigError(
                f"⟨attack-malicious⟩ names client {max(attack.malicious)}, but there are {num_clients}, numbered from 0"
            )
        return np.unique(np.array(attack.malicious, dtype=np.int64))
    count = round(attack.fraction * num_clients)
    if attack.fraction > 0 and count == 0:
        raise ConfigError(
            f"a fraction {attack.fraction:g} of {num_clients} clients is less than one: raise ⟨attack-fraction⟩ or"
            " ⟨num-clients⟩"
        )
    return np.sort(streams.numpy("malicious").choice(num_clients, size=count, replace=False)).astype(np.int64)


@dataclass(frozen=True)
class Infiltration:
    """Puts the wanted fraction of malicious clients into a cohort, as the thesis has it: α·|𝕂| in each.

    A cohort of a fixed size c has a = round(α·c) malicious clients and c − a honest ones, each kind drawn uniformly;
    a is rounded up where honest clients would otherwise come more often than c/N, the rate that their ε assumes.
    In a Poisson cohort the honest clients are those that were drawn, in any attack, and round(α·q·N) malicious ones
    join them in every round. Their number must not depend on who came: boosted codes would show it, and with it whether
    an honest client took part.
    """

    malicious: np.ndarray
    fraction: float
    num_clients: int
    fixed_size: bool
    planned: float
    """How large a cohort is expected to be."""

    def __call__(self, drawn: np.ndarray, exhausted: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The cohort, sorted; `exhausted` clients take part no more."""
        bad = np.isin(drawn, self.malicious)
        attacking, honest = drawn[bad], drawn[~bad]
        wanted = round(self.fraction * self.planned)
        if self.fixed_size:
            least = -(-len(drawn) * len(self.malicious) // self.num_clients)
            wanted = min(len(drawn), max(round(self.fraction * len(drawn)), least))
        attacking = self._of(attacking, wanted, np.setdiff1d(self.malicious, exhausted), rng)
        if self.fixed_size:
            others = np.setdiff1d(np.arange(self.num_clients), np.concatenate([self.malicious, exhausted]))
            honest = self._of(honest, len(drawn) - wanted, others, rng)
        return np.sort(np.concatenate([attacking, honest])).astype(np.int64)

    @staticmethod
    def _of(drawn: np.ndarray, wanted: int, everyone: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """So many clients: some of those drawn if there are too many, others beside them if there are too few."""
        if len(drawn) >= wanted:
            return rng.choice(drawn, size=wanted, replace=False)
        free = np.setdiff1d(everyone, drawn)
        more = rng.choice(free, size=min(len(free), wanted - len(drawn)), replace=False)
        return np.concatenate([drawn, more])


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
