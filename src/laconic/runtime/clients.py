"""The clients' half of a simulated round: train, encode, protect, and count what would travel."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from laconic.data.sparse import SparseRows, dense
from laconic.errors import ConfigError
from laconic.packing import Encoding, integers
from laconic.plan import RoundPlan
from laconic.round import (
    bounded_codes,
    client_weight,
    downlink_encoding,
    noise_stream,
    noisy_codes,
    uplink_encoding,
)
from laconic.runtime import wire
from laconic.runtime.devices import choose_device, environment_of, wait_for
from laconic.runtime.experiment import Experiment
from laconic.stopwatch import Stopwatch
from laconic.streams import Streams
from laconic.train.choose import choose_engine
from laconic.train.engine import Task, Trained, Updates
from laconic.train.flat import FlatModel
from laconic.train.importance import accumulated_gradient
from laconic.train.local import LocalSGD


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
            e.engine,
            self.model,
            self.device,
            example,
            chunk=e.chunk,
            workers=e.workers,
            precision=e.precision,
            sparse=isinstance(first.inputs, SparseRows),
            num_records=self._records_trained_on(len(first.targets)),
            per_record=e.scheme.record_level,
        )
        self.population = e.population.to(self.device)
        self.streams = Streams(e.seed)
        self.code_size = e.scheme.codec.code_size(self.model.size)
        self.down_size = e.scheme.codec.downlink_size(self.model.size)
        way = f"{self.engine.name}, {self.engine.at_once} at once, {e.precision} precision"
        self.environment = environment_of(self.device, way)
        self.clock = Stopwatch(on=e.profile, wait=functools.partial(wait_for, self.device))
        self._support: tuple[Tensor | None, Tensor | None] = (None, None)
        self._counted: set[tuple[Encoding, Encoding]] = set()

    def _records_trained_on(self, held: int) -> int | None:
        """By a client that holds so many, in all steps of a round; None if factors are of no use.

        They are of none with other optimisers, if only some weights are trained, and if every update is looked at.
        """
        train, size = self._experiment.scheme.train, np.array([held])
        if not isinstance(train, LocalSGD):
            return None
        some = getattr(self._experiment.scheme.codec, "train_only_kept", False)
        useful = train.optimizer == "sgd" and not some and self._sums_only
        return int((train.steps_of(size) * train.batch_of(size))[0]) if useful else None

    @property
    def _sums_only(self) -> bool:
        """Whether nobody looks at single codes: a linear code of a sum is the sum of the codes, so one is enough."""
        scheme = self._experiment.scheme
        return scheme.codec.linear and not scheme.clip.bounded and not scheme.noise.private

    def codes(self, plan: RoundPlan, weights: Tensor) -> Iterator[Updates]:
        """The cohort's codes, chunk by chunk."""
        yield from self._each(
            plan, weights, lambda trained: Updates(trained.clients, self._encoded(plan, trained), trained.num_records)
        )

    def _encoded(self, plan: RoundPlan, trained: Trained) -> Tensor:
        """What the clients send."""
        scheme = self._experiment.scheme
        streams = [noise_stream(self.streams, plan, int(c)) for c in trained.clients]
        with self.clock("encode"):
            codes = bounded_codes(scheme, plan, trained.values, streams=streams)
        with self.clock("noise"):
            return noisy_codes(scheme, plan, codes, streams=streams)

    def _each(self, plan: RoundPlan, weights: Tensor, then: Callable[[Trained], Updates]) -> Iterator[Updates]:
        """What `then` makes of the cohort, chunk by chunk."""
        task = Task(
            train=self._experiment.scheme.train,
            weights=weights,
            population=self.population,
            clients=plan.cohort,
            streams=self.streams,
            path=("batches", plan.round, plan.attempt),
            trained=self._trained(plan),
            clock=self.clock,
        )
        # With a running clock, one thing after another: otherwise nobody could say what took how long.
        chunks = self.engine.updates(task if self.clock.on else replace(task, then=then))
        if self.clock.on:
            chunks = map(then, chunks)
        while True:
            with self.clock("train"):
                chunk = next(chunks, None)
            if chunk is None:
                return
            yield chunk

    def collect(self, plan: RoundPlan, weights: Tensor) -> Collected:
        """Train the cohort and add up its messages."""
        scheme = self._experiment.scheme
        up_size = wire.message_size(self.code_size, uplink_encoding(scheme, self.code_size, plan))
        down_size = wire.message_size(self.down_size, downlink_encoding(scheme))
        on_sum = self._sums_only

        def summed(trained: Trained) -> Updates:
            counts = torch.tensor([client_weight(scheme, int(n)) for n in trained.num_records], device=self.device)
            codes = None if on_sum else self._encoded(plan, trained)
            with self.clock("sum"):
                total = trained.weighted_sum(counts) if codes is None else counts @ codes
            return Updates(trained.clients, total[None], trained.num_records)

        result = Collected(torch.zeros(self.model.size if on_sum else self.code_size, device=self.device))
        for chunk in self._each(plan, weights, summed):
            result.total += chunk.values[0]
            counts = [client_weight(scheme, int(size)) for size in chunk.num_records]
            if not scheme.pooled:
                result.up += [up_size] * len(counts)
                result.down += [down_size] * len(counts)
            result.weight += sum(counts)
            result.messages += len(counts)
        if on_sum:
            with self.clock("encode"):
                result.total = scheme.codec.encode(result.total[None], plan, [])[0]
        if not scheme.pooled:
            self._check_counted(plan, int(plan.cohort[0]), result.total, weights)
        return result

    def _check_counted(self, plan: RoundPlan, client: int, code: Tensor, weights: Tensor) -> None:
        """Serialise values of each direction and packing for real: the ledger's count must be the message's length."""
        scheme = self._experiment.scheme
        up_as, down_as = uplink_encoding(scheme, self.code_size, plan), downlink_encoding(scheme)
        if (up_as, down_as) in self._counted:
            return
        self._counted.add((up_as, down_as))
        for kind, values, encoding in (("code", code, up_as), ("weights", weights[: self.down_size], down_as)):
            message = wire.Message(kind, plan.round, plan.attempt, client, 1.0, plan.fingerprint, values)
            assert len(wire.encode(message, encoding)) == wire.message_size(values.numel(), encoding)

    def _trained(self, plan: RoundPlan) -> Tensor | None:
        """The weights that move, on the device; the same tensor while the support stays the same."""
        support = self._experiment.scheme.codec.support(self.model.size, plan)
        if support is not None and self._support[0] is not support:
            self._support = (support, support.to(self.device))
        return None if support is None else self._support[1]

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
        assert isinstance(e.scheme.train, LocalSGD)  # `Scheme` refuses a chosen support with other training
        return accumulated_gradient(self.model, e.scheme.train, e.public, steps)


def shared_bytes(shared: dict[str, Tensor]) -> int:
    """What telling one client costs: the kept coordinates, as integers of 32 bits."""
    return sum(wire.message_size(values.numel(), integers(32)) for values in shared.values())
