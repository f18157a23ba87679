"""The clients' half of a simulated round: train, encode, protect, and count what would travel."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from laconic.clients import wire
from laconic.clients.secure_sums import Attempt, SecureSums
from laconic.codecs.subset import Subset
from laconic.data.population import Records
from laconic.data.sparse import SparseRows, dense
from laconic.errors import ConfigError
from laconic.experiment.about import about_sum
from laconic.experiment.devices import choose_device, environment_of, wait_for
from laconic.experiment.experiment import Experiment
from laconic.features.population import as_features, record_features
from laconic.packing import Encoding, integers
from laconic.plan import RoundPlan
from laconic.round import (
    bounded_codes,
    client_weight,
    downlink_encoding,
    empty_sum,
    noise_stream,
    noisy_codes,
    received,
    uplink_encoding,
)
from laconic.stopwatch import Stopwatch
from laconic.streams import Streams
from laconic.train.engines.choose import choose_engine
from laconic.train.engines.engine import Task, Trained, Updates, Work
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
    lost: str = ""
    """Why the sum was not opened; empty if it was."""
    secagg: dict[str, int] = field(default_factory=dict)
    """Bytes of a masked sum beside the masked vectors, by kind."""
    transport: dict[str, int] = field(default_factory=dict)
    """Bytes that a carrier added to all that, by exchange and direction."""


class SimulatedClients:
    """All clients of an experiment, on one machine."""

    def __init__(self, experiment: Experiment) -> None:
        e = self._experiment = experiment
        self.device = choose_device(e.device)
        first = e.population.records(0)
        seen = record_features(first.some(np.arange(min(2, len(first.targets)))), e.front_end, self.device)
        example = (dense(seen.inputs).cpu(), seen.targets.cpu())
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
            sparse=isinstance(seen.inputs, SparseRows),
            work=self._work(len(first.targets)),
            per_record=e.scheme.record_level,
        )
        self.population = as_features(e.population, e.front_end, self.device)
        self.streams = Streams(e.seed)
        self.code_size = e.scheme.codec.code_size(self.model.size)
        self.down_size = e.scheme.codec.downlink_size(self.model.size)
        way = f"{self.engine.name}, {self.engine.at_once} at once, {e.precision} precision"
        self.environment = environment_of(self.device, way)
        self.clock = Stopwatch(on=e.profile, wait=functools.partial(wait_for, self.device))
        self.secure = SecureSums(e, self.streams, self.code_size) if e.scheme.noise.private else None
        self._support: tuple[Tensor | None, Tensor | None] = (None, None)
        self._counted: set[tuple[Encoding, Encoding]] = set()

    def seen(self, records: Records | None) -> Records | None:
        """What the model sees of records that belong to no client."""
        return None if records is None else record_features(records, self._experiment.front_end, self.device)

    def _work(self, held: int) -> Work | None:
        """What a client that holds so many records does in a round; None if it needs a copy of all weights.

        It does if all are trained and either the optimiser is not SGD or its whole update is looked at.
        """
        scheme, size = self._experiment.scheme, np.array([held])
        if not isinstance(scheme.train, LocalSGD):
            return None
        codec = scheme.codec
        share = codec.ratio if isinstance(codec, Subset) and codec.train_only_kept else 1.0
        if share == 1 and not (scheme.train.optimizer == "sgd" and self._sums_only):
            return None
        steps, batch = int(scheme.train.steps_of(size)[0]), int(scheme.train.batch_of(size)[0])
        return Work(num_records=steps * batch, batch_size=batch, share=share)

    @property
    def _sums_only(self) -> bool:
        """Whether nobody looks at single codes: a linear code of a sum is the sum of the codes, so one is enough."""
        scheme = self._experiment.scheme
        return scheme.codec.linear and not scheme.clip.bounded and not scheme.noise.private

    @property
    def about_sum(self) -> str:
        """What the privacy statement says of the sums."""
        return about_sum(self._experiment)

    @property
    def assumed(self) -> list[str]:
        """What it says of the way in which all this was run."""
        seed = self._experiment.seed
        return [f"noise is drawn from a seed (simulation): whoever knows seed {seed} can subtract it"]

    def recall(self, finished: list[tuple[int, int, list[int]]]) -> None:
        """Round, attempt and cohort of what was finished before this process, in a run that goes on."""
        if self.secure is not None:
            typical = self._experiment.typical_plan()
            self.secure.recall(
                [replace(typical, round=n, attempt=a, cohort=np.array(c, dtype=np.int64)) for n, a, c in finished]
            )

    def codes(self, plan: RoundPlan, weights: Tensor, clients: np.ndarray | None = None) -> Iterator[Updates]:
        """The codes of the cohort, or of some of it, chunk by chunk."""
        some = plan.cohort if clients is None else clients
        yield from self._each(plan, some, weights, functools.partial(self._messages, plan))

    def _messages(self, plan: RoundPlan, trained: Trained) -> Updates:
        return Updates(trained.clients, self._encoded(plan, trained), trained.num_records)

    def _encoded(self, plan: RoundPlan, trained: Trained) -> Tensor:
        """What the clients send."""
        scheme = self._experiment.scheme
        streams = [noise_stream(self.streams, plan, int(c)) for c in trained.clients]
        with self.clock("encode"):
            codes = bounded_codes(scheme, plan, trained.values, streams=streams)
        with self.clock("noise"):
            return noisy_codes(scheme, plan, codes, streams=streams)

    def _each(
        self, plan: RoundPlan, clients: np.ndarray, weights: Tensor, then: Callable[[Trained], Updates]
    ) -> Iterator[Updates]:
        """What `then` makes of the trained clients, chunk by chunk."""
        task = Task(
            train=self._experiment.scheme.train,
            weights=received(self._experiment.scheme, plan, weights),
            population=self.population,
            clients=clients,
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
        """Train the cohort and add up its messages: in the open, or masked."""
        scheme = self._experiment.scheme
        attempt = self.secure.attempt(plan) if self.secure else None
        clients = plan.cohort if attempt is None else attempt.clients
        up_size = wire.message_size(self.code_size, uplink_encoding(scheme, self.code_size, plan))
        down_size = wire.message_size(self.down_size, downlink_encoding(scheme))
        masked = attempt is not None and attempt.masked is not None
        on_sum = self._sums_only
        result = Collected(empty_sum(scheme, self.model.size if on_sum else self.code_size, self.device))
        then = functools.partial(self._messages if masked else self._summed, plan)
        for chunk in self._each(plan, clients, weights, then) if len(clients) else ():
            if attempt is not None and masked:
                with self.clock("mask"):
                    attempt.upload(chunk.clients, chunk.values)
            else:
                result.total += chunk.values[0]
            result.weight += sum(client_weight(scheme, int(size)) for size in chunk.num_records)
            result.messages += len(chunk.clients)
        if on_sum:
            with self.clock("encode"):
                result.total = scheme.codec.encode(result.total[None], plan, [])[0]
        if not scheme.pooled:
            result.up = [up_size] * result.messages
            result.down = [down_size] * len(plan.cohort)
            self._check_counted(plan, int(plan.cohort[0]), result.total, weights)
        if attempt is not None:
            with self.clock("unmask" if masked else "sum"):
                self._open(attempt, result)
        return result

    def _summed(self, plan: RoundPlan, trained: Trained) -> Updates:
        """The weighted sum of the clients' codes; or of their updates, where one code of the sum does."""
        scheme = self._experiment.scheme
        counts = torch.tensor([client_weight(scheme, int(n)) for n in trained.num_records], device=self.device)
        codes = None if self._sums_only else self._encoded(plan, trained)
        with self.clock("sum"):
            if codes is None:
                total = trained.weighted_sum(counts)
            else:  # integers come from private schemes, in which clients count alike
                total = counts @ codes if codes.is_floating_point() else codes.sum(0)
        return Updates(trained.clients, total[None], trained.num_records)

    def _open(self, attempt: Attempt, result: Collected) -> None:
        """Put the opened sum in place of what was added up, or nothing if the round is lost."""
        opened = attempt.open(result.total)
        if opened.traffic:
            result.secagg = {kind: size for kind, size in opened.traffic.items() if kind != "payload_up"}
            result.up = [opened.traffic["payload_up"] // max(1, result.messages)] * result.messages
        result.lost = opened.reason
        if opened.total is None:
            result.total, result.messages = torch.zeros_like(result.total), 0
        else:
            result.total = opened.total

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
        public = self.seen(e.public)
        if public is None:
            raise ConfigError(
                f"{e.scheme.name} chooses its weights with public data: give --public-dataset NAME,"
                " or --public-records N to set some training records aside"
            )
        assert isinstance(e.scheme.train, LocalSGD)  # `Scheme` refuses a chosen support with other training
        return accumulated_gradient(self.model, e.scheme.train, public, steps)


def shared_bytes(shared: dict[str, Tensor]) -> int:
    """What telling one client costs: the kept coordinates, as integers of 32 bits."""
    return sum(wire.message_size(values.numel(), integers(32)) for values in shared.values())
