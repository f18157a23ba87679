"""The interface of the clients of an experiment, and what all of them know: the model as one flat vector."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from laconic.audience import Sentence
from laconic.clients import wire
from laconic.data.inputs import SparseRows, dense
from laconic.data.population import Records, first_look
from laconic.errors import ConfigError
from laconic.experiment.experiment import Experiment
from laconic.experiment.identity import choose_device, wait_for
from laconic.features.population import record_features
from laconic.packing import integers
from laconic.plan import RoundPlan
from laconic.stopwatch import Stopwatch
from laconic.streams import Streams
from laconic.train.engines.choose import choose_engine
from laconic.train.engines.engine import Engine, Work
from laconic.train.flat import FlatModel
from laconic.train.importance import accumulated_gradient
from laconic.train.local import LocalSGD, UnitGradients


@dataclass
class Collected:
    """The weighted sum of the codes, the weight in it, and the bytes of each message up and down."""

    total: Tensor
    """Or, for an aggregator that looks at single codes, these (messages, m), in ascending order of the clients."""
    weight: float = 0.0
    up: list[int] = field(default_factory=list)
    down: list[int] = field(default_factory=list)
    messages: int = 0
    groups: list[int] | None = None
    """With groups: how many messages are in each group's sum, 0 if it was not opened; `total` is (groups, m)."""
    counts: Tensor | None = None
    """What each single code counts; None where there is a sum."""
    lost: str = ""
    """Why the sum was not opened; empty if it was."""
    secagg: dict[str, int] = field(default_factory=dict)
    """Bytes of a masked sum beside the masked vectors, by kind."""
    transport: dict[str, int] = field(default_factory=dict)
    """Bytes that a carrier added to all that, by exchange and direction."""


class ModelView:
    """What server and clients alike know of an experiment: its model on a device, the sizes of what travels, and the
    streams of this process."""

    def __init__(self, experiment: Experiment, streams: Streams) -> None:
        e = self.experiment = experiment
        self.streams = streams
        self.device = choose_device(e.device)
        some, self.first_targets = first_look(e.population, 2)
        self.example = record_features(some, e.front_end, self.device)
        self.model = FlatModel(e.model, example=self.example_pair, loss=e.loss).to(self.device)
        if e.scheme.private:
            self.model.check_memory()
        self.model.check_classes(self.first_targets)
        if isinstance(e.scheme.train, UnitGradients):
            e.scheme.train.check_classes(0 if self._values_as_targets else self.model.num_classes)
            if e.scheme.train.prevalence:
                self.model.start_bias(e.scheme.train.first_bias(self.model.num_outputs))
        for records in (e.test, e.holdout, e.public):
            if records is not None:
                self.model.check_classes(records.targets)
        e.scheme.codec.check_shapes(self.model.shapes)
        for query in e.scheme.asked:
            query.check(1 if self._values_as_targets else self.model.num_classes)
        self.clock = Stopwatch(on=e.profile, wait=functools.partial(wait_for, self.device))

    @property
    def _values_as_targets(self) -> bool:
        return self.first_targets.is_floating_point()

    def sizes(self, round: int | None = None) -> tuple[int, int]:
        """How many values a client sends and receives in a round: in a vote, an evaluation, or (None) in training."""
        scheme = self.experiment.scheme
        codec = scheme.codec if round is None else scheme.at(round).codec
        return codec.code_size(self.model.size), codec.downlink_size(self.model.size)

    @property
    def code_size(self) -> int:
        """How many values a client sends in training."""
        return self.sizes()[0]

    @property
    def down_size(self) -> int:
        """How many weights it receives."""
        return self.sizes()[1]

    @property
    def example_pair(self) -> tuple[Tensor, Tensor]:
        """Some inputs and targets, as the model sees them."""
        return dense(self.example.inputs).cpu(), self.example.targets.cpu()

    def engine_for(self, model: FlatModel, work: Work | None = None, *, adds_up: bool = False) -> Engine:
        """What trains clients with this model, given the work of one of them in a round, if that is known.

        `adds_up` says that no update is looked at by itself.
        """
        e, held = self.experiment, np.array([len(self.first_targets)])
        train, moves_all = e.scheme.train, e.scheme.codec.trained_share == 1
        return choose_engine(
            e.engine,
            model,
            self.device,
            self.example_pair,
            chunk=e.chunk,
            workers=e.workers,
            precision=e.precision,
            sparse=isinstance(self.example.inputs, SparseRows),
            work=work,
            per_record=e.scheme.record_level,
            batch=int(train.batch_of(held)[0]) if isinstance(train, LocalSGD) else None,
            plain_sgd=isinstance(train, LocalSGD) and train.optimizer == "sgd" and moves_all,
            adds_up=adds_up,
            held=len(self.first_targets),
        )

    def seen(self, records: Records | None) -> Records | None:
        """Public, test or held-out records as the model's inputs: through the front end, on the device."""
        return None if records is None else record_features(records, self.experiment.front_end, self.device)

    def shared(self) -> dict[str, Tensor]:
        """What every client is told once, before its first round."""
        run_seed = self.streams.public_seed("public")
        return self.experiment.scheme.codec.shared(self.model.size, run_seed, self._importance)

    def _importance(self, steps: int) -> Tensor:
        e = self.experiment
        public = self.seen(e.public)
        if public is None:
            raise ConfigError(
                f"{e.scheme.name} chooses its weights with public data: give ⟨public-dataset⟩ NAME,"
                " or ⟨public-records⟩ N to set some training records aside"
            )
        train = e.scheme.train.plain
        assert isinstance(train, LocalSGD)  # `Scheme` refuses a chosen support with other training
        return accumulated_gradient(self.model, train, public, steps)


class Clients(ModelView, ABC):
    """All clients of an experiment, as `Run` sees them: it asks for the sum of a round, and does not see single codes.

    Simulated clients and those of a federation are siblings. `environment` names what a round can be repeated in.
    """

    environment: str
    replays = True
    """Whether a round that is repeated in the same environment comes out as before, bit for bit."""
    num_ranks = 1
    """How many processes train."""
    threads: int | None = None
    """On how many threads torch computes during the run; None: as many as before."""

    @property
    def num_clients(self) -> int:
        return self.experiment.population.num_clients

    @property
    @abstractmethod
    def about_sum(self) -> str:
        """What the privacy statement says of the sums."""

    @property
    @abstractmethod
    def assumed(self) -> list[Sentence]:
        """What the privacy statement assumes of how the run was carried out."""

    @abstractmethod
    def collect(self, plan: RoundPlan, weights: Tensor) -> Collected:
        """Have the cohort train, and the sum of what it sends."""

    def recall(self, finished: list[RoundPlan]) -> None:
        """The rounds that were finished before this process, in a run that goes on."""


def shared_bytes(shared: dict[str, Tensor]) -> int:
    """What telling one client costs: the kept coordinates, as integers of 32 bits."""
    return sum(wire.message_size(values.numel(), integers(32)) for values in shared.values())
