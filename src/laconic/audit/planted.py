"""Canaries among the clients of an experiment. All that protects a client is the code that every run has.

A canary is sampled like everybody. In the place of what others train it hands a known update to the codec; encoding,
clip, noise, sum and release are not touched. What server and outsider see is taken where they see it: the opened sum,
and what the server rule gets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from laconic.aggregate.base import Aggregator
from laconic.audit.canaries import Canaries, rows_at_once
from laconic.clients.base import Collected
from laconic.clients.simulated import SimulatedClients
from laconic.clients.work import ClientWork, Tamper
from laconic.codecs.base import Codec
from laconic.codecs.sign import Sign
from laconic.data.population import Population, Records
from laconic.experiment.experiment import Experiment
from laconic.plan import RoundPlan
from laconic.round import AGGREGATOR, bounded_codes, noise_stream
from laconic.scheme import Scheme
from laconic.server.rules import ServerRule, State
from laconic.streams import Stream
from laconic.train.engines.engine import Trained, Updates

RELEASED = "audit.released"


class WithCanaries:
    """A population, and after its clients the canaries: they hold the first client's records and never look at them."""

    def __init__(self, honest: Population, canaries: int) -> None:
        self.honest, self._canaries = honest, canaries

    @property
    def num_clients(self) -> int:
        return self.honest.num_clients + self._canaries

    def size(self, client: int) -> int:
        return self.honest.size(self._holder(client))

    def records(self, client: int) -> Records:
        return self.honest.records(self._holder(client))

    def to(self, device: torch.device) -> WithCanaries:
        return WithCanaries(self.honest.to(device), self._canaries)

    def _holder(self, client: int) -> int:
        return client if client < self.honest.num_clients else 0


@dataclass(frozen=True, kw_only=True)
class SignsOrNothing(Sign):
    """As `Sign`, but an update of zeros has the code 0: that of the client that zero-out adjacency speaks of.

    No client that trains has such an update.
    """

    def encode(self, update: Tensor, plan: RoundPlan, streams: Sequence[Stream]) -> Tensor:
        nothing = (update == 0).all(dim=-1, keepdim=True)
        return super().encode(update, plan, streams).masked_fill(nothing, 0.0)


@dataclass(frozen=True, kw_only=True)
class Watched(ServerRule):
    """A rule that also remembers what it was given: the sum as it is released."""

    rule: ServerRule

    @property
    def same_step(self) -> float | None:
        return self.rule.same_step

    def init(self, size: int, code_size: int, device: torch.device) -> State:
        return self.rule.init(size, code_size, device) | {RELEASED: torch.zeros(code_size, device=device)}

    def step(self, mean_code: Tensor, state: State, codec: Codec, size: int, plan: RoundPlan) -> tuple[Tensor, State]:
        own = {name: value for name, value in state.items() if name != RELEASED}
        change, own = self.rule.step(mean_code, own, codec, size, plan)
        return change, own | {RELEASED: mean_code * plan.planned_cohort}


@dataclass(frozen=True, kw_only=True)
class Still(ServerRule):
    """The weights stay as they are: for runs in which nobody trains."""

    def step(self, mean_code: Tensor, state: State, codec: Codec, size: int, plan: RoundPlan) -> tuple[Tensor, State]:
        return mean_code.new_zeros(size), state


@dataclass(frozen=True, kw_only=True)
class WatchedGroups(Aggregator):
    """The same for a cohort that is summed in groups: the means of the groups are what the aggregator is given."""

    aggregator: Aggregator

    @property
    def least_codes(self) -> int:
        return self.aggregator.least_codes

    @property
    def remembers(self) -> bool:
        return self.aggregator.remembers

    def init(self, code_size: int, device: torch.device) -> State:
        return self.aggregator.init(code_size, device)

    def step(self, codes: Tensor, weights: Tensor, state: State) -> tuple[Tensor, State]:
        own = {name: value for name, value in state.items() if name != RELEASED}
        code, own = self.aggregator.step(codes, weights, own)
        return code, own | {RELEASED: codes}


def watched(scheme: Scheme) -> Scheme:
    """The scheme with a rule that is watched, and with a code for who contributes nothing."""
    codec = SignsOrNothing() if type(scheme.codec) is Sign else scheme.codec
    if scheme.groups > 1:
        return replace(scheme, aggregator=WatchedGroups(aggregator=scheme.aggregator), codec=codec)
    return replace(scheme, rule=Watched(rule=scheme.rule), codec=codec)


def released_sums(state: State, plan: RoundPlan) -> Tensor:
    """What an outsider sees of the last round: (sums, m)."""
    if plan.groups:
        return state[AGGREGATOR + RELEASED].double() * plan.groups[0].planned_cohort
    return state[RELEASED].double()[None]


class CanaryWork(ClientWork):
    """Honest clients train; canaries, and bystanders whose code is 0, do not. All go on as clients do."""

    canaries: Canaries
    uploaded: np.ndarray
    """Who came as far as the upload, in the last round."""
    bystanders: bool
    """Whether all that are no canaries have the code 0."""

    @property
    def known(self) -> Tensor | None:
        """The sums (sums, m) of the honest clients' codes in the last round, without noise; None if there were none."""
        return None if not self._known else torch.stack([total for _, total in sorted(self._known, key=_first)]).sum(0)

    def _held(self) -> Population:
        population = self.view.experiment.population
        return population.honest if isinstance(population, WithCanaries) else population

    def each(
        self, plan: RoundPlan, clients: np.ndarray, weights: Tensor, then: Callable[[Trained], Updates]
    ) -> Iterator[Updates]:
        self.uploaded = clients
        self._known: list[tuple[int, Tensor]] = []
        planted = self.canaries.among(clients)
        others = clients[~planted]
        if len(others) and not self.bystanders:
            yield from super().each(plan, others, weights, self._noting(plan, then))
        elif len(others):
            yield from self._sent(plan, others, then, lambda some: weights.new_zeros(len(some), len(weights)))
        if planted.any():
            yield from self._sent(plan, clients[planted], then, lambda some: self.canaries.updates(plan, some))

    def _noting(self, plan: RoundPlan, then: Callable[[Trained], Updates]) -> Callable[[Trained], Updates]:
        """Also note what honest clients send before noise is added: an adversary may know all about them."""

        def noting(trained: Trained) -> Updates:
            streams = [noise_stream(self.view.streams, plan, int(c)) for c in trained.clients]
            codes = bounded_codes(self.view.experiment.scheme, plan, trained.values, streams=streams)
            total = codes.new_zeros(len(plan.sums), codes.shape[1], dtype=torch.float64)
            groups = plan.group_of(trained.clients) if plan.groups else np.zeros(len(codes), dtype=np.int64)
            total.index_add_(0, torch.from_numpy(groups).to(codes.device), codes.double())
            self._known.append((int(trained.clients[0]), total))
            return then(trained)

        return noting

    def _sent(
        self,
        plan: RoundPlan,
        clients: np.ndarray,
        then: Callable[[Trained], Updates],
        updates: Callable[[np.ndarray], Tensor],
    ) -> Iterator[Updates]:
        rows = rows_at_once(self.view.model.size)
        for some in np.split(clients, range(rows, len(clients), rows)):
            yield then(Updates(some, updates(some), np.ones(len(some), dtype=np.int64)))


def _first(noted: tuple[int, Tensor]) -> int:
    return noted[0]


class CanaryClients(SimulatedClients):
    """The simulated clients of an experiment with canaries among them. `opened` are the sums that the server opened.

    They are (sums, m); NaN where one was not opened.
    """

    work: CanaryWork

    def __init__(self, experiment: Experiment, *, bystanders: bool = False) -> None:
        super().__init__(experiment)
        self.work.bystanders = bystanders
        self.opened: Tensor | None = None

    def _make_work(self, tamper: Tamper | None) -> ClientWork:
        return CanaryWork(self, tamper=tamper)

    def collect(self, plan: RoundPlan, weights: Tensor) -> Collected:
        sent = super().collect(plan, weights)
        totals = self._in_units_of_the_code(sent.total.reshape(len(plan.sums), -1), plan)
        came = torch.tensor(sent.groups if sent.groups is not None else [sent.messages], device=totals.device)
        self.opened = totals.masked_fill((came == 0)[:, None], torch.nan)
        return sent

    def _in_units_of_the_code(self, total: Tensor, plan: RoundPlan) -> Tensor:
        """What the server knows of the sums before it adds noise of its own: centred, and scaled back."""
        scheme = self.experiment.scheme
        grid = scheme.noise.grid(code_size=self.code_size, sensitivity=self.experiment.sensitivity, plan=plan)
        if grid is None:
            return total.double()
        half = 2 ** (grid.bits - 1)
        centred: Tensor = ((total + half) & (2**grid.bits - 1)) - half
        return centred.double() / grid.units
