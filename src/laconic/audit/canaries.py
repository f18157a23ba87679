"""Canaries: clients whose code is known beforehand, and who are in or out by a coin.

A canary that is in has a code along its own direction, a hundred times longer than the clip allows. One that is out has
the code that the claim compares with: 0 for zero-out adjacency, the opposite one for replace-one. Both are clients like
all others: they are sampled, clipped, and add their share of the noise.

In an experiment a canary hands a known update to the codec, in the place of what others train; encoding, clip, noise,
sum and release are not touched. What server and outsider see is taken where they see it: the opened sum, and what the
server rule gets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from laconic.aggregate.base import Aggregator
from laconic.clients.base import Collected, ModelView
from laconic.clients.simulated import SimulatedClients
from laconic.clients.work import ClientWork, HeldUnits, Tamper, coins_stream, drawn_units
from laconic.codecs.base import Codec, Sign
from laconic.codecs.dct import LowPassDCT
from laconic.codecs.solvers import Adjoint
from laconic.data.population import Population, Records
from laconic.errors import ConfigError
from laconic.experiment.experiment import Experiment
from laconic.plan import RoundPlan
from laconic.privacy.accounting.releases import CLIENT, PATIENT
from laconic.privacy.accounting.sampling import REPLACE_ONE, Sampler
from laconic.round import AGGREGATOR, bounded_codes, noise_stream
from laconic.scheme import Scheme
from laconic.server.rules import ServerRule, State
from laconic.streams import Stream
from laconic.train.engines.engine import Trained, Updates
from laconic.train.local import UnitGradients
from laconic.train.units import UnitSums
from laconic.train.units.rounding import UnitGrid, on_grid

OVERSHOOT = 100.0
"""How many times longer than S a canary's code is before the clip."""
_AT_ONCE = 1 << 24
"""So many numbers of canaries' updates are held in memory at once."""
_MOST_KEPT = 1 << 26
"""So many numbers of canaries' codes are kept from round to round."""


class Directions(Protocol):
    """Where the canaries point. `codes` is what the adversary knows, `updates` what the canaries hand to the codec."""

    @property
    def size(self) -> int:
        """How many numbers of one canary are in memory while its code is made."""

    def updates(self, plan: RoundPlan, canaries: np.ndarray) -> Tensor:
        """(canaries, n)"""

    def codes(self, plan: RoundPlan, canaries: np.ndarray) -> Tensor:
        """(canaries, m), of norm 1."""


class RandomDirections:
    """A random update for each canary, from a stream of its own: codes are nearly orthogonal in high dimensions."""

    def __init__(self, view: ModelView) -> None:
        self._view = view
        self._kept: dict[int, Tensor] = {}

    @property
    def size(self) -> int:
        return self._view.model.size

    def updates(self, plan: RoundPlan, canaries: np.ndarray) -> Tensor:
        updates, codes = self._raw(plan, canaries)
        scaled: Tensor = updates * (_length(self._view) / codes.norm(dim=1, keepdim=True))
        return scaled

    def codes(self, plan: RoundPlan, canaries: np.ndarray) -> Tensor:
        """Kept for the next round where they stay the same and are not too many."""
        if self._view.experiment.scheme.codec.new_each_round:
            return self._units(plan, canaries)
        if len(missing := np.setdiff1d(canaries, list(self._kept))):
            units = self._units(plan, missing)
            if (len(self._kept) + len(missing)) * self._view.code_size > _MOST_KEPT:
                return units if len(missing) == len(canaries) else self._units(plan, canaries)
            self._kept |= dict(zip(missing.tolist(), units, strict=True))
        return torch.stack([self._kept[canary] for canary in canaries.tolist()])

    def _units(self, plan: RoundPlan, canaries: np.ndarray) -> Tensor:
        codes = self._raw(plan, canaries)[1]
        units: Tensor = codes / codes.norm(dim=1, keepdim=True)
        return units

    def _raw(self, plan: RoundPlan, canaries: np.ndarray) -> tuple[Tensor, Tensor]:
        view = self._view
        streams = [view.streams.stream("canary", int(canary)) for canary in canaries]
        updates = torch.stack([stream.normal((view.model.size,), view.device) for stream in streams])
        return updates, view.experiment.scheme.codec.encode(updates, plan, streams)


class OrthogonalDirections:
    """Rows of a Hadamard matrix: orthogonal codes of entries ±1, which sign codes can have, too.

    The rows after those of the canaries are free: what is seen along them is noise alone.
    """

    def __init__(self, view: ModelView) -> None:
        self._view, size = view, view.code_size
        order = 1 << (size.bit_length() - 1)
        rows = hadamard(order).to(view.device) / order**0.5
        self.rows = torch.nn.functional.pad(rows, (0, size - order))
        """(order, m)"""
        self._lifted: tuple[tuple[int, int], Tensor] | None = None

    @property
    def size(self) -> int:
        return self._view.code_size

    def updates(self, plan: RoundPlan, canaries: np.ndarray) -> Tensor:
        lifted = self._lift(plan)
        return _length(self._view) * lifted[torch.from_numpy(canaries).to(lifted.device)]

    def codes(self, plan: RoundPlan, canaries: np.ndarray) -> Tensor:
        return self.rows[torch.from_numpy(canaries).to(self.rows.device)]

    def _lift(self, plan: RoundPlan) -> Tensor:
        """Updates whose codes the rows are; made again only where codes mean something else in every round."""
        codec = self._view.experiment.scheme.codec
        key = (plan.run_seed, plan.round_seed if codec.new_each_round else 0)
        if self._lifted is None or self._lifted[0] != key:
            self._lifted = (key, lifted(codec, self.rows, self._view.model.size, plan))
        return self._lifted[1]


@dataclass(frozen=True)
class Canaries:
    """The clients `first` … `first + len(coins) − 1`; `out` times its direction is the code of one that is out."""

    first: int
    coins: np.ndarray
    out: float
    directions: Directions
    holders: np.ndarray | None = None
    """(canaries, h): of units inside clients, the clients at which each is; None where canaries are clients."""

    @property
    def numbers(self) -> np.ndarray:
        return np.arange(len(self.coins))

    def among(self, clients: np.ndarray) -> np.ndarray:
        """Which of the clients are canaries."""
        if self.holders is not None:
            return np.zeros(len(clients), dtype=bool)
        found: np.ndarray = (clients >= self.first) & (clients < self.first + len(self.coins))
        return found

    def updates(self, plan: RoundPlan, clients: np.ndarray) -> Tensor:
        """What canaries hand to the codec."""
        numbers = clients - self.first
        updates = self.directions.updates(plan, numbers)
        signs = np.where(self.coins[numbers], 1.0, self.out).astype(np.float32)
        return updates * torch.from_numpy(signs).to(updates.device)[:, None]

    def held_by(self, client: int) -> np.ndarray:
        """The canaries that are units of this client."""
        assert self.holders is not None
        return np.flatnonzero((self.holders == client).any(1))

    def along(self, plan: RoundPlan, values: Tensor) -> np.ndarray:
        """What a vector in code space (m) has along each canary's direction."""
        chunks = np.split(self.numbers, range(rows := rows_at_once(self.directions.size), len(self.numbers), rows))
        parts = [self.directions.codes(plan, some).double() @ values.double() for some in chunks]
        return torch.cat(parts).cpu().numpy()


def rows_at_once(size: int) -> int:
    """How many updates of this size are held in memory at once."""
    return max(1, _AT_ONCE // size)


def code_when_out(sampler: Sampler, unit: str = CLIENT) -> float:
    """The code of a canary that is out, in units of its direction: the worst neighbour by the adjacency."""
    return -1.0 if unit == CLIENT and sampler.adjacency == REPLACE_ONE else 0.0


def unit_holders(experiment: Experiment, canaries: int) -> np.ndarray | None:
    """At which clients each canary is, where units inside clients are protected: at as many as are allowed."""
    train = experiment.scheme.train
    if not isinstance(train, UnitGradients):
        return None
    first = np.arange(canaries)[:, None] + np.arange(train.max_owners)
    return first % experiment.population.num_clients


def hadamard(order: int) -> Tensor:
    """Sylvester's matrix of ±1 with orthogonal rows; `order` is a power of two."""
    rows = torch.ones(1, 1)
    while len(rows) < order:
        rows = torch.cat([torch.cat([rows, rows], 1), torch.cat([rows, -rows], 1)])
    return rows


def lifted(codec: Codec, codes: Tensor, size: int, plan: RoundPlan) -> Tensor:
    """Updates (k, n) whose codes are these (k, m), up to a factor for signs."""
    if not codec.linear:
        updates = codes
    else:
        adjoint = replace(codec, solver=Adjoint()) if isinstance(codec, LowPassDCT) else codec
        updates = torch.stack([adjoint.decode(code, size, plan) for code in codes])
    got = codec.encode(updates, plan, [Stream(0)] * len(updates))
    got = got / got.norm(dim=1, keepdim=True).clamp(min=1e-30)
    if float((got - codes).abs().max()) > 1e-4:
        raise ConfigError(f"{type(codec).__name__} does not give the codes that the canaries of short runs need")
    return updates


def _length(view: ModelView) -> float:
    """The norm of a canary's code before the clip."""
    return OVERSHOOT * view.experiment.sensitivity


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
        return change, own | {RELEASED: mean_code * plan.divisor}


@dataclass(frozen=True, kw_only=True)
class Still(ServerRule):
    """The weights stay as they are: for runs without training."""

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

    sums_together = False
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
        if self.canaries.holders is not None:
            yield from super().each(plan, clients, weights, then)
            return
        planted = self.canaries.among(clients)
        others = clients[~planted]
        if len(others) and not self.bystanders:
            yield from super().each(plan, others, weights, self._noting(plan, then))
        elif len(others):
            yield from self._sent(plan, others, then, lambda some: weights.new_zeros(len(some), len(weights)))
        if planted.any():
            yield from self._sent(plan, clients[planted], then, lambda some: self.canaries.updates(plan, some))

    def draw(self, plan: RoundPlan) -> np.ndarray:
        """The canaries that some client of the cohort draws, with units inside clients."""
        found = np.zeros(len(self.canaries.coins), dtype=bool)
        for client in plan.cohort.tolist():
            found[self._drawn_at(plan, client)] = True
        return found

    def _drawn_at(self, plan: RoundPlan, client: int) -> np.ndarray:
        """The canaries that a client draws. Among bystanders they are its only units, and its own coins are theirs."""
        planted, stream = self.canaries.held_by(client), coins_stream(self.view.streams, plan, client)
        coins = drawn_units(len(planted), self._rate, stream if self.bystanders else stream.fork("canaries"))
        return planted if coins is None else planted[coins.numpy()]

    def unit_terms(self, plan: RoundPlan, client: int, weights: Tensor) -> Tensor:
        """Canaries are units of the client: besides its own; or, among bystanders, records in the place of its own."""
        if self.bystanders:
            self._plant(plan, client, self.canaries.held_by(client))
            return super().unit_terms(plan, client, weights)
        terms = super().unit_terms(plan, client, weights)
        grid = self._grid(plan, len(terms))
        self._known.append((client, terms[None].double() / grid.steps))
        here = self._drawn_at(plan, client)
        here = here[self.canaries.coins[here]]
        if not len(here):
            return terms
        codes = self.canaries.directions.codes(plan, here).double() * _length(self.view)
        return terms + on_grid(codes, grid).sum(0).long()

    @property
    def _rate(self) -> float:
        train = self.view.experiment.scheme.train
        assert isinstance(train, UnitGradients)
        return train.rate

    def _grid(self, plan: RoundPlan, size: int) -> UnitGrid:
        """The grid of one unit at one client."""
        scheme = self.view.experiment.scheme
        sensitivity, train = scheme.clip.sensitivity(size), scheme.train
        grid = scheme.noise.grid(code_size=size, sensitivity=sensitivity, plan=plan)
        assert grid is not None
        assert isinstance(train, UnitGradients)
        return UnitGrid(train.part_of(sensitivity), grid.units)

    def _plant(self, plan: RoundPlan, client: int, planted: np.ndarray) -> None:
        """Give the client the canaries' records: of a linear model with weights 0 and the squared error.

        The gradient of a record is then −2·y·x. So x is the canary's update, y says how long it is, and 0 is nothing.
        Patients have three records.
        """
        train = self.view.experiment.scheme.train
        assert isinstance(train, UnitGradients)
        count = 3 if train.unit == PATIENT else 1
        updates = self.canaries.directions.updates(plan, planted)
        length = _length(self.view)
        targets = torch.from_numpy(self.canaries.coins[planted].astype(np.float32)) * (length / 2 / count)
        units = torch.arange(len(planted)).repeat_interleave(count)
        records = Records((updates / length)[units], targets[units][:, None]).to(self.view.device)
        made = UnitSums(self.view.model, records, units.to(self.view.device))
        self._units[np.array([client]).tobytes()] = HeldUnits(made, [made.num_units])

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
