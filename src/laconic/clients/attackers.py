"""What malicious clients do in a round: they train, together or each by itself, and forge what they send."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from laconic.adversary.attack import Attack, Scene
from laconic.adversary.malicious import Relabelled, union
from laconic.clients.base import ModelView
from laconic.data.population import PooledPopulation, Population
from laconic.plan import RoundPlan
from laconic.train.engines.engine import Engine, Task, Updates
from laconic.train.local import LocalSGD, LocalTraining

_AT_ONCE = 8
"""Attackers that forge different updates: so many are held in memory together."""


@dataclass(frozen=True)
class Forged:
    """What attackers send: updates (1, n) if all send the same, else (attackers, n), and the factor on them.

    `num_records` are those that they claim to hold.
    """

    clients: np.ndarray
    updates: Tensor
    num_records: np.ndarray
    boost: float

    @property
    def values(self) -> Tensor:
        """The boosted update of each."""
        return (self.boost * self.updates).expand(len(self.clients), -1)

    def weighted_sum(self, counts: Tensor) -> Tensor:
        if len(self.updates) == 1:
            return self.boost * counts.sum() * self.updates[0]
        return self.boost * (counts @ self.updates)


class Attackers:
    """The malicious clients of an experiment. `population` is who holds which records, before labels are changed."""

    def __init__(self, view: ModelView, population: Population, attack: Attack) -> None:
        self.attack, self._view, self._population = attack, view, population

    def forged(
        self, plan: RoundPlan, attackers: np.ndarray, weights: Tensor, support: Tensor | None
    ) -> Iterator[Forged]:
        """What the attackers of a cohort send, in chunks: from these weights, of which those of `support` move."""
        # Who colludes may make one update of what all of them trained.
        together = self.attack.collude
        chunks = [attackers] if together else np.split(attackers, range(_AT_ONCE, len(attackers), _AT_ONCE))
        sizes = np.array([self._population.size(int(client)) for client in attackers], dtype=np.int64)
        claimed = dict(zip(attackers.tolist(), self.attack.claimed(sizes).tolist(), strict=True))
        for chunk in chunks:
            trained = self._trained(plan, chunk, weights, support)
            scene = Scene(
                round=plan.round,
                attempt=plan.attempt,
                attackers=chunk,
                planned_cohort=sum(one.planned_cohort for one in plan.sums),
                size=self._view.model.size,
                device=self._view.device,
                streams=self._view.streams,
            )
            held = np.array([claimed[client] for client in chunk.tolist()], dtype=np.int64)
            boost = self.attack.boost if self.attack.boost_as == "update" else 1.0
            yield Forged(chunk, self.attack.forged(trained, scene), held, boost)

    def _trained(self, plan: RoundPlan, attackers: np.ndarray, weights: Tensor, support: Tensor | None) -> Tensor:
        """The updates that attackers train, from a stream of their own."""
        if self.attack.trains == "nothing":
            return weights.new_zeros(0, len(weights))
        together = self.attack.trains == "union"
        task = Task(
            train=self._train(together),
            weights=weights,
            population=self._pooled(attackers) if together else self._poisoned,
            clients=np.zeros(1, dtype=np.int64) if together else attackers,
            streams=self._view.streams,
            path=("attack", plan.round, plan.attempt),
            trained=support,
            # A copy, as an engine may use the memory again for the next clients.
            then=lambda trained: Updates(trained.clients, trained.values.clone(), trained.num_records),
            clock=self._view.clock,
        )
        return torch.cat([chunk.values for chunk in self._engine.updates(task)])

    def _train(self, together: bool) -> LocalTraining:
        """The scheme's own local training: a pool of records is trained on in one client's batches.

        In as many steps as one client takes, or in as many passes: T_gd·|B| / |D_k| of them.
        """
        train = self._view.experiment.scheme.train.plain
        if self.attack.boost_as == "step":
            train = replace(train, local_lr=self.attack.boost * train.local_lr)
        if not together or not isinstance(train, LocalSGD):
            return train
        one = self._usual_size
        steps, batch = int(train.steps_of(one)[0]), int(train.batch_of(one)[0])
        if self.attack.steps == "client":
            return replace(train, local_steps=steps, epochs=None, batch_size=batch)
        return replace(train, local_steps=None, epochs=max(1, round(steps * batch / int(one[0]))), batch_size=batch)

    @functools.cached_property
    def _usual_size(self) -> np.ndarray:
        """How many records a malicious client holds, on average."""
        held = [self._population.size(int(client)) for client in self._view.experiment.malicious]
        return np.array([max(1, round(float(np.mean(held))))])

    @functools.cached_property
    def _engine(self) -> Engine:
        """An engine of their own: that of the honest clients stays as it is."""
        model = self._view.model
        return self._view.engine_for(model.ascending() if self.attack.ascends else model)

    def _relabel(self, client: int, targets: Tensor) -> Tensor:
        rng = self._view.streams.numpy("attack", "labels", client)
        return self.attack.relabelled(targets, self._view.model.num_classes, rng)

    @functools.cached_property
    def _poisoned(self) -> Population:
        """The records of each attacker, as it trains on them."""
        return Relabelled(self._population, self._relabel) if self.attack.relabels else self._population

    def _pooled(self, attackers: np.ndarray) -> PooledPopulation:
        """The records of all malicious clients, or of those in the cohort, as one client's."""
        return self._union_of_all if self.attack.share == "all" else self._union(attackers)

    @functools.cached_property
    def _union_of_all(self) -> PooledPopulation:
        return self._union(self._view.experiment.malicious)

    def _union(self, clients: np.ndarray) -> PooledPopulation:
        return union(self._population, clients, self._relabel if self.attack.relabels else None)
