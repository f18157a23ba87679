"""The clients' half of a simulated round: train, encode, protect, and count what would travel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from laconic.data.sparse import SparseRows, dense
from laconic.errors import ConfigError
from laconic.packing import Encoding, integers
from laconic.plan import RoundPlan
from laconic.round import client_messages, client_weight, downlink_encoding, noise_stream, uplink_encoding
from laconic.runtime import wire
from laconic.runtime.devices import choose_device, environment_of
from laconic.runtime.experiment import Experiment
from laconic.streams import Streams
from laconic.train.engine import Task, choose_engine
from laconic.train.flat import FlatModel
from laconic.train.importance import accumulated_gradient


@dataclass
class Collected:
    """The weighted sum of the codes, the weight in it, and the bytes of each message up and down."""

    total: Tensor
    weight: float = 0.0
    up: list[int] = field(default_factory=list)
    down: list[int] = field(default_factory=list)
    messages: int = 0


class SimulatedClients:
    """All clients of an experiment, on one machine."""

    def __init__(self, experiment: Experiment) -> None:
        e = self._experiment = experiment
        self.device = choose_device(e.device)
        first = e.population.records(0)
        example = (dense(first.inputs[:2]).cpu(), first.targets[:2].cpu())
        self.model = FlatModel(e.model, example=example, loss=e.loss).to(self.device)
        for records in (first, e.test, e.holdout, e.public):
            if records is not None:
                self.model.check_classes(records.targets)
        self.engine = choose_engine(
            e.engine, self.model, self.device, example, e.chunk, sparse=isinstance(first.inputs, SparseRows)
        )
        self.population = e.population.to(self.device)
        self.streams = Streams(e.seed)
        self.code_size = e.scheme.codec.code_size(self.model.size)
        self.down_size = e.scheme.codec.downlink_size(self.model.size)
        self.environment = environment_of(self.device, self.engine.name, getattr(self.engine, "chunk", None))
        self._mask: tuple[Tensor | None, Tensor | None] = (None, None)
        self._counted: set[tuple[Encoding, Encoding]] = set()

    def codes(self, plan: RoundPlan, weights: Tensor) -> Iterator[tuple[np.ndarray, Tensor, list[float]]]:
        """(clients, their codes, how much each counts), chunk by chunk."""
        scheme = self._experiment.scheme
        task = Task(
            train=scheme.train,
            weights=weights,
            population=self.population,
            clients=plan.cohort,
            streams=self.streams,
            path=("batches", plan.round, plan.attempt),
            trained=self._trained_mask(plan),
        )
        for chunk in self.engine.updates(task):
            noise = [noise_stream(self.streams, plan, int(c)) for c in chunk.clients]
            codes = client_messages(scheme, plan, chunk.updates, streams=noise)
            yield chunk.clients, codes, [client_weight(scheme, int(size)) for size in chunk.num_records]

    def collect(self, plan: RoundPlan, weights: Tensor) -> Collected:
        """Train the cohort and add up its messages."""
        scheme = self._experiment.scheme
        up_size = wire.message_size(self.code_size, uplink_encoding(scheme, self.code_size, plan))
        down_size = wire.message_size(self.down_size, downlink_encoding(scheme))
        result = Collected(torch.zeros(self.code_size, device=self.device))
        for clients, codes, counts in self.codes(plan, weights):
            if not scheme.pooled:
                self._check_counted(plan, int(clients[0]), codes[0], counts[0], weights)
                result.up += [up_size] * len(counts)
                result.down += [down_size] * len(counts)
            result.total += torch.tensor(counts, device=self.device) @ codes
            result.weight += sum(counts)
            result.messages += len(counts)
        return result

    def _check_counted(self, plan: RoundPlan, client: int, code: Tensor, weight: float, weights: Tensor) -> None:
        """Serialise a message of each direction and packing for real: the ledger's count must be its length."""
        scheme = self._experiment.scheme
        up_as, down_as = uplink_encoding(scheme, self.code_size, plan), downlink_encoding(scheme)
        if (up_as, down_as) in self._counted:
            return
        self._counted.add((up_as, down_as))
        for kind, values, encoding in (("code", code, up_as), ("weights", weights[: self.down_size], down_as)):
            message = wire.Message(kind, plan.round, plan.attempt, client, weight, plan.fingerprint, values)
            assert len(wire.encode(message, encoding)) == wire.message_size(values.numel(), encoding)

    def _trained_mask(self, plan: RoundPlan) -> Tensor | None:
        """A 0/1 mask of the weights that move; kept while the support stays the same."""
        support = self._experiment.scheme.codec.support(self.model.size, plan)
        if support is None:
            return None
        if self._mask[0] is not support:
            mask = torch.zeros(self.model.size, device=self.device)
            mask[support.to(self.device)] = 1
            self._mask = (support, mask)
        return self._mask[1]

    def shared(self) -> dict[str, Tensor]:
        """What every client is told once, before its first round."""
        run_seed = self.streams.key("public") & (2**63 - 1)
        return self._experiment.scheme.codec.shared(self.model.size, run_seed, self._importance)

    def _importance(self, steps: int) -> Tensor:
        e = self._experiment
        if e.public is None:
            raise ConfigError(
                f"{e.scheme.name} chooses its weights with public data: give --public-dataset NAME,"
                " or --public-records N to set some training records aside"
            )
        return accumulated_gradient(self.model, e.scheme.train, e.public, steps)


def shared_bytes(shared: dict[str, Tensor]) -> int:
    """What telling one client costs: the kept coordinates, as integers of 32 bits."""
    return sum(wire.message_size(values.numel(), integers(32)) for values in shared.values())
