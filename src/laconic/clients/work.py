"""What a client does in a round: train → tamper → encode → clip → noise. The simulator and every node use the same.

Clients that attack do not follow it: `Attackers` say what they train and forge in the place of an update. It is boosted
and encoded, and sent without clip and noise. `tamper` is a plain function in the same place, for tests: it changes
updates before they are encoded.

A client may set records aside to measure the model on; it never trains on them in the same run. Which they are follows
from the public seed of the run, the client's number and how many records it has; where records or patients are
protected, from coins that only the client knows. So they are the same in every round and after a restart.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, overload

import numpy as np
import torch
from torch import Tensor

from laconic.adversary.malicious import without_classes
from laconic.clients import wire
from laconic.clients.attackers import Attackers, Forged
from laconic.clients.base import ModelView
from laconic.codecs.base import Identity
from laconic.codecs.queries import Asked, Query
from laconic.data.population import (
    PooledPopulation,
    Population,
    Records,
    gather_rows,
    patients_of,
    units_of,
    whole_table,
)
from laconic.errors import ConfigError
from laconic.features.population import as_features
from laconic.packing import FLOAT32
from laconic.plan import RoundPlan
from laconic.privacy.accounting.releases import CLIENT, PATIENT, RECORD
from laconic.privacy.mechanism.clip import L2Clip
from laconic.privacy.mechanism.discrete_gaussian import DiscreteGaussian
from laconic.privacy.mechanism.gaussian import Gaussian
from laconic.round import (
    bounded_codes,
    noise_stream,
    noisy_codes,
    noisy_in_groups,
    noisy_terms,
    received,
    summed_terms,
)
from laconic.scheme import Scheme
from laconic.streams import Stream, Streams
from laconic.train.engines.engine import Task, Trained, Updates, Work, products_in, some_updates
from laconic.train.engines.linear_cohort import TrainedLinear
from laconic.train.local import LocalSGD, UnitGradients
from laconic.train.units.linear import find_layer
from laconic.train.units.sums import most_records

if TYPE_CHECKING:
    from laconic.privacy.mechanism.grid import Grid
    from laconic.train.units import UnitSums

_VALUES = 1 << 22
"""Values of updates that a CPU holds at once where only their sum is kept: so much memory is used again and again."""
_UNITS = 1 << 21
"""So many units are kept ready at once."""
_FEW_RECORDS = 256
"""Clients with so many records on average are summed together; larger ones are each kept ready."""
Tamper = Callable[[RoundPlan, Trained], Trained]


class HeldUnits(NamedTuple):
    """The units of some clients: their sum, how many each client has, and where each of them is numbered; None: in the
    order of the clients."""

    units: UnitSums
    numbers: list[int]
    places: Tensor | None = None


class ClientWork:
    """The work of any of an experiment's clients whose records are here."""

    sums_together = True
    """Whether several clients' units may be one sum."""

    def __init__(self, view: ModelView, *, tamper: Tamper | None = None, split_seed: int | None = None) -> None:
        e = view.experiment
        self.view, self.tamper = view, tamper
        self.engine = view.engine_for(view.model, self._work(len(view.first_targets)), adds_up=self.only_sums)
        self.population = as_features(self._held(), e.front_end, view.device)
        self.held_out: Population | None = None
        if any(query.held_out for query in e.scheme.asked):
            seed = split_seed or split_seed_of(view.streams, e.scheme)
            self.population, self.held_out = trained_and_held(self.population, e.held_out, seed, e.scheme.unit)
        self.attackers = None if e.attack is None else Attackers(view, self.population, e.attack)
        self.part = (0, 1)
        """Which chunks of a cohort are trained here: see `Task`."""
        self._packing_checked = False
        self._units: dict[bytes, HeldUnits] = {}
        self._support: tuple[Tensor | None, Tensor | None] = (None, None)

    def _held(self) -> Population:
        """Who holds which records: under an attack, some classes may be with attackers alone, or with no client."""
        e = self.view.experiment
        attack, malicious = e.attack, set(e.malicious.tolist())
        if attack is None or not attack.dropped(malicious=False):
            return e.population
        return without_classes(e.population, lambda client: attack.dropped(malicious=client in malicious))

    def _work(self, held: int) -> Work | None:
        """What a client that holds so many records does in a round; None if it needs a copy of all weights.

        It does if all are trained and either the optimiser is not SGD or its whole update is looked at.
        """
        scheme, size = self.view.experiment.scheme, np.array([held])
        if not isinstance(scheme.train, LocalSGD):
            return None
        share = scheme.codec.trained_share
        if share == 1 and not (scheme.train.optimizer == "sgd" and self.only_sums):
            return None
        steps, batch = int(scheme.train.steps_of(size)[0]), int(scheme.train.batch_of(size)[0])
        return Work(num_records=steps * batch, batch_size=batch, share=share)

    @property
    def only_sums(self) -> bool:
        """Whether only sums of the cohort's updates, or of their codes, are ever looked at."""
        return self._sums_only(self.view.experiment.scheme) or self.view.experiment.draws_per_sum

    def sums_only(self, plan: RoundPlan) -> bool:
        """Whether single codes are not looked at: a linear code of a sum is the sum of the codes, so one is enough."""
        return self._sums_only(self.view.experiment.scheme.at(plan.round))

    def _sums_only(self, scheme: Scheme) -> bool:
        looked_at = scheme.clip.bounded or scheme.noise.private or not scheme.aggregator.sums or self.tamper is not None
        return scheme.codec.linear and scheme.codec.packing == FLOAT32 and not looked_at

    def codes(self, plan: RoundPlan, weights: Tensor, clients: np.ndarray | None = None) -> Iterator[Updates]:
        """The codes of the cohort, or of some of it, chunk by chunk."""
        some = plan.cohort if clients is None else clients
        yield from self.each(plan, some, weights, functools.partial(self.messages, plan))

    def messages(self, plan: RoundPlan, trained: Trained) -> Updates:
        return Updates(trained.clients, self.encoded(plan, trained), trained.num_records)

    def encoded(self, plan: RoundPlan, trained: Trained) -> Tensor:
        """What the clients send."""
        scheme = self.view.experiment.scheme.at(plan.round)
        if isinstance(trained, Forged) and not self.follows_protocol:
            return self._forged_codes(plan, trained)
        streams = self._streams(plan, trained)
        if scheme.sums_units:
            with self.view.clock("noise"):
                return noisy_terms(scheme, plan, trained.values, streams=streams)
        codes = self._bounded(plan, trained, streams)
        with self.view.clock("noise"):
            if plan.groups:
                return noisy_in_groups(scheme, plan, trained.clients, codes, streams=streams)
            return noisy_codes(scheme, plan, codes, streams=streams)

    def terms(self, plan: RoundPlan, trained: Trained) -> Tensor:
        """What the clients' codes (clients, m) add to the point around which the noise of a sum is drawn at once."""
        scheme = self.view.experiment.scheme.at(plan.round)
        if isinstance(trained, Forged) and not self.follows_protocol:
            return scheme.noise.bare_terms(self._forged_codes(plan, trained))
        if scheme.sums_units:
            return trained.values
        codes = self._bounded(plan, trained, self._streams(plan, trained))
        size = codes.shape[1]
        with self.view.clock("noise"):
            return scheme.noise.terms(
                codes, code_size=size, sensitivity=scheme.clip.sensitivity(size), plan=plan.sums[0]
            )

    def summed_terms(self, plan: RoundPlan, trained: Trained) -> Tensor:
        """The sum of the clients' `terms`: (m,)."""
        if isinstance(trained, Forged) and not self.follows_protocol:
            terms = self.terms(plan, trained)
            return len(terms) * terms[0] if len(trained.updates) == 1 else terms.sum(0)
        scheme = self.view.experiment.scheme.at(plan.round)
        if isinstance(trained, _ClientUnits):
            return trained.summed()
        if scheme.sums_units:
            return trained.values.sum(0)
        if isinstance(trained, TrainedLinear) and _clips_updates(scheme):
            with self.view.clock("encode"):
                return self._linear_terms(scheme, plan, trained)
        streams, size = self._streams(plan, trained), self.view.model.size
        on_cpu = self.view.device.type == "cpu"
        total: Tensor | None = None
        with self.view.clock("encode"):
            for rows, updates in some_updates(trained, max(1, _VALUES // size) if on_cpu else len(trained.clients)):
                terms = summed_terms(scheme, plan, updates, streams=streams[rows])
                total = terms if total is None else total.add_(terms)
        assert total is not None, "a chunk has clients"
        return total

    def _linear_terms(self, scheme: Scheme, plan: RoundPlan, trained: TrainedLinear) -> Tensor:
        """The same of a linear model, whose updates need not be written down one by one."""
        size = self.view.model.size
        sensitivity = scheme.clip.sensitivity(size)
        grid = scheme.noise.grid(code_size=size, sensitivity=sensitivity, plan=plan.sums[0])
        return trained.clipped_sum(sensitivity, None if grid is None else grid.units)

    def num_shares(self, plan: RoundPlan, clients: np.ndarray) -> int:
        """How many of these clients add a share of the noise: attackers may leave theirs out."""
        asked = self.view.experiment.scheme.query(plan.round) is not None  # attackers answer as all others do
        if self.attackers is None or self.follows_protocol or asked:
            return len(clients)
        return int(np.isin(clients, self.view.experiment.attackers(plan), invert=True).sum())

    def _streams(self, plan: RoundPlan, trained: Trained) -> Sequence[Stream]:
        return _ClientStreams(self.view.streams, plan, trained.clients)

    def _bounded(self, plan: RoundPlan, trained: Trained, streams: Sequence[Stream]) -> Tensor:
        """Encoded and clipped."""
        scheme = self.view.experiment.scheme.at(plan.round)
        with self.view.clock("encode"):
            codes = bounded_codes(scheme, plan, trained.values, streams=streams)
        self._check_packing(scheme, codes)
        return codes

    @property
    def follows_protocol(self) -> bool:
        """Whether attackers clip what they send and add their noise, as all clients do."""
        e = self.view.experiment
        return e.scheme.noise.private and e.attack is not None and not e.attack.omit_noise

    def _forged_codes(self, plan: RoundPlan, forged: Forged) -> Tensor:
        """Boosted and encoded, without clip and noise: (clients, m). Who sends the same sends it to the bit.

        Signs cannot be boosted on the wire, but in a masked sum of integers it cannot be seen that they were.
        """
        scheme, streams = self.view.experiment.scheme.at(plan.round), self.view.streams
        coins = [streams.stream("attack", plan.round, plan.attempt, "code", int(c)) for c in forged.clients]
        coins = coins[: len(forged.updates)]
        if scheme.noise.private:
            codes = scheme.codec.encode(forged.updates, plan, coins)
            if scheme.sums_units:  # a mean over records becomes the sum over as many units as are claimed
                codes = codes * torch.from_numpy(forged.num_records).to(codes)[:, None]
            sensitivity = scheme.clip.sensitivity(codes.shape[-1])
            codes = scheme.noise.without_noise(codes, boost=forged.boost, sensitivity=sensitivity, plan=plan)
        else:
            codes = scheme.codec.encode(forged.boost * forged.updates, plan, coins)
        return codes.expand(len(forged.clients), -1)

    def _check_packing(self, scheme: Scheme, codes: Tensor) -> None:
        """Once, on the first code: what the codec says of its packing must be true, or nodes would send other codes."""
        if self._packing_checked or scheme.noise.private or scheme.codec.packing == FLOAT32:
            return
        self._packing_checked = True
        if not wire.survives(codes[0], scheme.codec.packing):
            packing, kind = scheme.codec.packing, type(scheme.codec).__name__
            raise ConfigError(f"{kind} packs its code as {packing.kind} of {packing.bits} bits, which changes it")

    def each(
        self, plan: RoundPlan, clients: np.ndarray, weights: Tensor, then: Callable[[Trained], Updates]
    ) -> Iterator[Updates]:
        """What `then` makes of the trained clients, chunk by chunk; attackers come last."""
        if self.attackers is None or self.view.experiment.scheme.query(plan.round) is not None:
            yield from self.honest(plan, clients, weights, then)
            return
        attacking = np.isin(clients, self.view.experiment.attackers(plan))
        if not attacking.all():
            yield from self.honest(plan, clients[~attacking], weights, then)
        if attacking.any():
            start = received(self.view.experiment.scheme.at(plan.round), plan, weights)
            for forged in self.attackers.forged(plan, clients[attacking], start, self._trained(plan)):
                yield then(forged)

    def honest(
        self, plan: RoundPlan, clients: np.ndarray, weights: Tensor, then: Callable[[Trained], Updates]
    ) -> Iterator[Updates]:
        """What `then` makes of clients that follow the protocol, which train or, in rounds of a query, answer it."""
        query = self.view.experiment.scheme.query(plan.round)
        if query is not None:
            answers = self._unit_answers if self.view.experiment.scheme.sums_units else self._answers
            yield from map(then, answers(query, plan, clients, weights))
            return
        if self.view.experiment.scheme.sums_units:
            yield from map(self._tampered(plan, then), self._summed_units(plan, clients, weights))
            return
        task = Task(
            train=self.view.experiment.scheme.train,
            weights=received(self.view.experiment.scheme.at(plan.round), plan, weights),
            population=self.population,
            clients=clients,
            streams=self.view.streams,
            path=("batches", plan.round, plan.attempt),
            trained=self._trained(plan),
            clock=self.view.clock,
            part=self.part,
        )
        then = self._tampered(plan, then)
        # With a running clock, one thing after another: otherwise the times of the steps could not be told apart.
        chunks = self.engine.updates(task if self.view.clock.on else replace(task, then=then))
        if self.view.clock.on:
            chunks = map(then, chunks)
        while True:
            with self.view.clock("train"):
                chunk = next(chunks, None)
            if chunk is None:
                return
            yield chunk

    def _answers(self, query: Query, plan: RoundPlan, clients: np.ndarray, weights: Tensor) -> Iterator[Updates]:
        """Each client's answer. Computed per client, so results do not depend on the cohort."""
        start = received(self.view.experiment.scheme.at(plan.round), plan, weights)
        first, turn = self.part
        for client in clients[first::turn].tolist():
            with self.view.clock("evaluate"):
                answer, size = self.answer(query, client, start)
            yield Updates(np.array([client]), answer[None].to(self.view.device), np.array([size]))

    def _unit_answers(self, query: Query, plan: RoundPlan, clients: np.ndarray, weights: Tensor) -> Iterator[Updates]:
        """The sum of the clipped answers of each client's units, on the grid of its noise: integers (1, cells)."""
        from laconic.train.units import answer_terms
        from laconic.train.units.groups import Groups
        from laconic.train.units.rounding import UnitGrid

        start = received(self.view.experiment.scheme.at(plan.round), plan, weights)
        population, train, (grid, part) = (
            self._answering(query),
            self.view.experiment.scheme.train,
            self._unit_grid(plan),
        )
        assert isinstance(train, UnitGradients)
        first, turn = self.part
        for client in clients[first::turn].tolist():
            units, size = units_of(population, client, train.unit), population.size(client)
            groups = Groups(None if units is None else torch.from_numpy(units), size)
            drawn = drawn_units(groups.num_units, train.rate, coins_stream(self.view.streams, plan, client))
            records = population.records(client).to(self.view.device)

            def rows(some: Tensor, records: Records = records) -> Tensor:
                return query.rows(self._asked(records.some(some), start))

            precision = products_in(self.view.experiment.precision, self.view.device)
            with self.view.clock("evaluate"), precision, torch.no_grad():
                bounds = UnitGrid(part, grid.units)
                terms = answer_terms(rows, groups, cells=query.cells, drawn=drawn, grid=bounds)
            yield Updates(np.array([client]), terms[None].to(self.view.device), np.array([size]))

    def _summed_units(self, plan: RoundPlan, clients: np.ndarray, weights: Tensor) -> Iterator[Trained]:
        """What each client's units add to the sum of the round, on the grid of its noise: integers (clients, m)."""
        start = received(self.view.experiment.scheme.at(plan.round), plan, weights)
        first, turn = self.part
        own = clients[first::turn]
        at_once = self._clients_at_once(plan, own)
        for place in range(0, len(own), at_once):
            yield _ClientUnits(self, plan, own[place : place + at_once], start)

    def _clients_at_once(self, plan: RoundPlan, clients: np.ndarray) -> int:
        """How many clients' units are one sum: where only the whole sum is looked at, and every split has its bits."""
        whole = self.view.experiment.draws_per_sum and not plan.groups and self.tamper is None
        if not (self.sums_together and whole and len(clients) > 1) or find_layer(self.view.model) is None:
            return 1
        sizes = [self.population.size(client) for client in clients.tolist()]
        if sum(sizes) > _FEW_RECORDS * len(sizes):
            return 1
        grid, part = self._unit_grid(plan)
        most = most_records(part, grid.units, single=self.view.experiment.scheme.unit == RECORD)
        return max(1, min(most // max(1, *sizes), _UNITS * len(sizes) // (2 * max(1, sum(sizes)))))

    def _unit_grid(self, plan: RoundPlan) -> tuple[Grid, float]:
        """The grid on which units are added up, and what a unit's part at one client is clipped to."""
        scheme, code_size = self.view.experiment.scheme.at(plan.round), self.view.sizes(plan.round)[0]
        assert isinstance(scheme.train, UnitGradients)
        sensitivity = scheme.clip.sensitivity(code_size)
        grid = scheme.noise.grid(code_size=code_size, sensitivity=sensitivity, plan=plan)
        assert grid is not None, "units are added up on the grid of integer noise"
        return grid, scheme.train.part_of(sensitivity)

    def unit_terms(self, plan: RoundPlan, client: int, weights: Tensor) -> Tensor:
        """Σ_u c̄_u of one client over the units that it draws, (m,): clipped after encoding, without noise.

        Which units are drawn stays here: nothing that leaves the client may depend on it but the noisy sum.
        """
        return self.sum_of_units(plan, np.array([client]), weights)

    def sum_of_units(self, plan: RoundPlan, clients: np.ndarray, weights: Tensor) -> Tensor:
        """The same of several clients, added up."""
        scheme, held = self.view.experiment.scheme, self._units_of(clients)
        train, (grid, part) = scheme.train, self._unit_grid(plan)
        assert isinstance(train, UnitGradients)
        drawn: Tensor | None = None
        if train.rate < 1:
            coins = (coins_stream(self.view.streams, plan, client) for client in clients.tolist())
            each = [drawn_units(*pair) for pair in zip(held.numbers, itertools.repeat(train.rate), coins, strict=False)]
            every = torch.cat([one for one in each if one is not None])
            drawn = every if held.places is None else torch.empty_like(every).index_put_((held.places,), every)
        with products_in("float32", self.view.device):
            return held.units.terms(
                weights,
                drawn=None if drawn is None else drawn.to(self.view.device),
                codec=scheme.codec,
                plan=plan,
                clip_norm=part,
                grid_units=grid.units,
            )

    def _units_of(self, clients: np.ndarray) -> HeldUnits:
        """The units of some clients, ready to be summed; those of some clients are kept from round to round."""
        key = clients.tobytes()
        if key not in self._units:
            made = self._made_units(clients.tolist())
            while self._units and sum(u.units.num_units for u in self._units.values()) + made.units.num_units > _UNITS:
                del self._units[next(iter(self._units))]
            self._units[key] = made
        return self._units[key]

    def _made_units(self, clients: list[int]) -> HeldUnits:
        """Where the clients hold the whole table, it is not copied: sums do not depend on the order of its rows."""
        from laconic.train.units import UnitSums  # few runs sum units

        train, device = self.view.experiment.scheme.train, self.view.device
        assert isinstance(train, UnitGradients)
        numbers = [units_of(self.population, client, train.unit) for client in clients]
        places = whole_table(self.population, clients)
        if places is not None and isinstance(self.population, PooledPopulation):
            records = self.population.pool.to(device)
        else:
            records = gather_rows(self.population, clients, device)[0]
        units: Tensor | None = None
        if train.unit == PATIENT:
            known = [own for own in numbers if own is not None]
            counts = [int(own.max(initial=-1)) + 1 for own in known]
            starts = np.cumsum(counts) - counts
            units = torch.from_numpy(np.concatenate([own + start for own, start in zip(known, starts, strict=True)]))
            units = units if places is None else torch.empty_like(units).index_put_((places,), units)
            places = None
        else:
            counts = [self.population.size(client) for client in clients]
        made = UnitSums(
            self.view.model,
            records,
            None if units is None else units.to(device),
            class_weights=torch.tensor(train.class_weights, device=device) if train.class_weights else None,
        )
        return HeldUnits(made, counts, places)

    def cells(self, client: int, weights: Tensor) -> tuple[Tensor, int]:
        """What the weights are worth on the records that a client has set aside, and how many these are."""
        return self.answer(self.view.experiment.scheme.evaluations, client, weights)

    def answer(self, query: Query, client: int, weights: Tensor) -> tuple[Tensor, int]:
        """A client's answer, and about how many records it is; zeros where it has none."""
        population = self._answering(query)
        size = population.size(client)
        if not size:
            return torch.zeros(query.cells), 0
        records = population.records(client).to(self.view.device)
        with products_in(self.view.experiment.precision, self.view.device), torch.no_grad():
            return query.answer(self._asked(records, weights)), size

    def _answering(self, query: Query) -> Population:
        """Who holds which records that a query is answered from."""
        population = self.held_out if query.held_out else self.population
        assert population is not None
        return population

    def _asked(self, records: Records, weights: Tensor) -> Asked:
        model = self.view.model
        return Asked(records, lambda: torch.cat(list(model.outputs(weights, records.inputs))), model.loss)

    def _trained(self, plan: RoundPlan) -> Tensor | None:
        """The weights that move, on the device; the same tensor while the support stays the same."""
        support = self.view.experiment.scheme.at(plan.round).codec.support(self.view.model.size, plan)
        if support is not None and self._support[0] is not support:
            self._support = (support, support.to(self.view.device))
        return None if support is None else self._support[1]

    def _tampered(self, plan: RoundPlan, then: Callable[[Trained], Updates]) -> Callable[[Trained], Updates]:
        tamper = self.tamper
        return then if tamper is None else lambda trained: then(tamper(plan, trained))


class _ClientStreams(Sequence[Stream]):
    """Every client's noise, named when it is asked for: most codecs, and sums drawn at once, ask for none."""

    def __init__(self, streams: Streams, plan: RoundPlan, clients: np.ndarray) -> None:
        self._streams, self._plan, self._clients = streams, plan, clients

    def __len__(self) -> int:
        return len(self._clients)

    @overload
    def __getitem__(self, place: int) -> Stream: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[Stream]: ...

    def __getitem__(self, place: int | slice) -> Stream | Sequence[Stream]:
        if isinstance(place, slice):
            return _ClientStreams(self._streams, self._plan, self._clients[place])
        return noise_stream(self._streams, self._plan, int(self._clients[place]))


@dataclass(frozen=True)
class _ClientUnits:
    """What the units of some clients add to the sum of a round: one by one where they are looked at, else at once."""

    work: ClientWork
    plan: RoundPlan
    clients: np.ndarray
    weights: Tensor

    @property
    def num_records(self) -> np.ndarray:
        return np.array([self.work.population.size(client) for client in self.clients.tolist()])

    @property
    def values(self) -> Tensor:
        with self.work.view.clock("train"):
            every = [self.work.unit_terms(self.plan, client, self.weights) for client in self.clients.tolist()]
            return torch.stack(every)

    def weighted_sum(self, counts: Tensor) -> Tensor:
        return (counts.long()[:, None] * self.values).sum(0)

    def summed(self) -> Tensor:
        if len(self.clients) == 1:
            return self.values[0]
        with self.work.view.clock("train"):
            return self.work.sum_of_units(self.plan, self.clients, self.weights)


def _clips_updates(scheme: Scheme) -> bool:
    """Whether a round's sum is that of clipped updates as they are, cut to the grid of the noise, if there is one."""
    kinds = type(scheme.codec), type(scheme.clip), type(scheme.noise)
    return kinds in ((Identity, L2Clip, DiscreteGaussian), (Identity, L2Clip, Gaussian))


def coins_stream(streams: Streams, plan: RoundPlan, client: int) -> Stream:
    """The coins with which a client draws its units in this attempt: a repeated round has new ones, and so has another
    run of the same seed. With the coins of the first, the second would be amplified by nothing that is not known."""
    return streams.stream(*streams.of_run("coins", plan.round, plan.attempt, client))


def drawn_units(count: int, rate: float, stream: Stream) -> Tensor | None:
    """Which units are drawn, each with a probability of `rate` at most (by less than 2^−63 below it); None: all."""
    if rate >= 1:
        return None
    words = stream.words(count, torch.device("cpu"))  # uniform on −2^63 … 2^63 − 1
    return words < int(rate * 2**64) - 2**63


_PURPOSE = int.from_bytes(b"held out")
"""Keeps these draws apart from others that follow from the same numbers."""


def split_rows(size: int, fraction: float, run_seed: int, client: int) -> tuple[np.ndarray, np.ndarray]:
    """(rows to train on, rows to measure on), each sorted. One of two records or more is always left to train on."""
    count = min(round(fraction * size), size - 1)
    if fraction > 0 and size > 1:
        count = max(1, count)
    generator = np.random.Generator(np.random.Philox(np.random.SeedSequence([_PURPOSE, run_seed, client])))
    held = np.zeros(size, dtype=bool)
    held[generator.permutation(size)[:count]] = True
    return np.flatnonzero(~held), np.flatnonzero(held)


def split_units(count: int, fraction: float, secret: int, client: int) -> np.ndarray:
    """(units,): which are measured on.

    With or without one of them, the others stay where they are; else one unit would move much of a sum. So there is a
    coin for each, which only the client knows, and no fixed number of them.
    """
    draws = np.random.Philox(np.random.SeedSequence([_PURPOSE, secret, client])).random_raw(count)
    held: np.ndarray = draws < np.uint64(int(fraction * 2**64) if fraction < 1 else 2**64 - 1)
    return held


def split_seed_of(streams: Streams, scheme: Scheme) -> int:
    """What decides which records are set aside: a number of the run, and a secret one where units are protected."""
    return streams.key("held out") if scheme.sums_units else streams.public_seed("public")


def trained_and_held(
    population: Population, fraction: float, run_seed: int, unit: str = CLIENT
) -> tuple[Population, Population]:
    """The same clients twice: with the records that they train on, and with those that they set aside.

    Where records or patients are protected, each is set aside by a coin of its own, a patient with all its records.
    """

    def split(client: int) -> tuple[np.ndarray, np.ndarray]:
        size = population.size(client)
        if unit == CLIENT:
            return split_rows(size, fraction, run_seed, client)
        units = units_of(population, client, unit)
        units = np.arange(size) if units is None else units
        held = split_units(int(units.max(initial=-1)) + 1, fraction, run_seed, client)[units]
        return np.flatnonzero(~held), np.flatnonzero(held)

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

    def patients(self, client: int) -> np.ndarray | None:
        whose = patients_of(self._population, client)
        return None if whose is None else whose[self._rows(client)]

    def to(self, device: torch.device) -> Population:
        return _Some(self._population.to(device), self._rows)
