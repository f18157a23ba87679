"""All clients of an experiment on one machine: they train, and what they send is added up and counted.

Of a cohort that is summed in groups, all of it trains together, and every code goes into the sum of its own group.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from laconic.audience import Sentence
from laconic.clients import wire
from laconic.clients.attackers import Forged
from laconic.clients.base import Clients, Collected
from laconic.clients.work import ClientWork, Tamper
from laconic.experiment.about import about_sum
from laconic.experiment.experiment import Experiment
from laconic.experiment.identity import environment_of, noise_name
from laconic.graphs import sent
from laconic.packing import Encoding
from laconic.plan import RoundPlan
from laconic.round import (
    client_weights,
    downlink_encoding,
    empty_sum,
    noise_around,
    sum_noise_stream,
    uplink_encoding,
)
from laconic.scheme import Scheme
from laconic.streams import Streams
from laconic.train.engines.engine import Engine, Trained, Updates, Work, on_threads
from laconic.train.flat import FlatModel
from laconic.train.local import LocalDPSGD, LocalSGD

if TYPE_CHECKING:
    from laconic.clients.secure_sums import Attempt, SecureSums

_SMALL_WORK = 1 << 32


class SimulatedClients(Clients):
    """All clients of an experiment, on one machine. `tamper` is what clients that attack do to their updates.

    `through` is given every engine that trains, and says what trains instead: several runs may share one.
    """

    def __init__(
        self,
        experiment: Experiment,
        *,
        tamper: Tamper | None = None,
        through: Callable[[Engine], Engine] = lambda engine: engine,
    ) -> None:
        self._through = through
        super().__init__(experiment, Streams(experiment.seed, noise_name(experiment)))
        small = self.device.type == "cpu" and small_work(experiment, self.model, len(self.first_targets))
        self.threads: int = experiment.threads or (1 if small else torch.get_num_threads())
        with on_threads(self.threads):
            self.work = self._make_work(tamper)
        engine = self.work.engine
        way = f"{engine.name}, {engine.at_once} at once, {experiment.precision} precision"
        self.environment = environment_of(self.device, way, self.threads)
        self.secure: SecureSums | None = None
        if experiment.scheme.noise.private:
            from laconic.clients.secure_sums import SecureSums  # masks are for private sums alone

            self.secure = SecureSums(experiment, self.streams, self.model.size)
        self._counted: set[tuple[Encoding, Encoding]] = set()

    def engine_for(self, model: FlatModel, work: Work | None = None, *, adds_up: bool = False) -> Engine:
        return self._through(super().engine_for(model, work, adds_up=adds_up))

    def _make_work(self, tamper: Tamper | None) -> ClientWork:
        return ClientWork(self, tamper=tamper)

    @property
    def about_sum(self) -> str:
        """What the privacy statement says of the sums."""
        return about_sum(self.experiment)

    @property
    def assumed(self) -> list[Sentence]:
        """What the privacy statement assumes of how the run was carried out."""
        text = "noise is drawn from a seed (simulation): whoever knows {} can subtract it"
        return [Sentence(text.format(f"seed {self.experiment.seed}"), outsider=text.format("the seed"))]

    def recall(self, finished: list[RoundPlan]) -> None:
        """What was finished before this process, in a run that goes on."""
        if self.secure is not None:
            self.secure.recall(finished)

    def collect(self, plan: RoundPlan, weights: Tensor) -> Collected:
        """Train the cohort and add up its messages: in the open, or masked."""
        if plan.groups:
            return collect_groups(self, plan, weights)
        scheme = self.experiment.scheme.at(plan.round)
        code_size, weights_down = self.sizes(plan.round)
        attempt = self.secure.attempt(plan) if self.secure else None
        clients = plan.cohort if attempt is None else attempt.clients
        up_size = wire.message_size(code_size, uplink_encoding(scheme, code_size, plan))
        down_size = wire.message_size(weights_down, downlink_encoding(scheme))
        masked = attempt is not None and attempt.masked is not None
        single = self._single(plan)
        on_sum = self.work.sums_only(plan)
        result = Collected(empty_sum(scheme, plan, self.model.size if on_sum else code_size, self.device))
        if single:
            result.total = torch.empty(len(clients), code_size, device=self.device)
            result.counts = torch.empty(len(clients), device=self.device)
        for chunk in self.work.each(plan, clients, weights, self.answer(plan)) if len(clients) else ():
            if attempt is not None and masked:
                with self.clock("mask"):
                    attempt.upload(chunk.clients, chunk.values)
            elif result.counts is not None:
                places = torch.from_numpy(np.searchsorted(clients, chunk.clients)).to(self.device)
                result.total[places] = chunk.values
                result.counts[places] = self._counts(scheme, chunk)
            else:
                result.total += chunk.values[0]
            result.weight += float(client_weights(scheme, chunk.num_records).sum())
            result.messages += len(chunk.clients)
        if self.draws_per_sum(plan):
            with self.clock("noise"):
                shares = self.work.num_shares(plan, clients)
                stream = sum_noise_stream(self.streams, plan)
                result.total = noise_around(scheme, plan, result.total, shares=shares, stream=stream)
        if on_sum:
            with self.clock("encode"):
                result.total = scheme.codec.encode(result.total[None], plan, [])[0]
        if not scheme.pooled:
            result.up = [up_size] * result.messages
            result.down = [down_size] * len(plan.cohort)
            self.check_counted(plan, int(plan.cohort[0]), result.total[0] if single else result.total, weights)
        if attempt is not None:
            with self.clock("unmask" if masked else "sum"):
                self._open(attempt, result)
        return result

    def draws_per_sum(self, plan: RoundPlan) -> bool:
        """Whether the clients' shares of the noise in a sum are drawn at once: then no client has a noisy code."""
        return self.experiment.draws_per_sum and self.experiment.scheme.at(plan.round).noise.draws_at_once

    def _single(self, plan: RoundPlan) -> bool:
        """Whether the aggregator looks at single codes."""
        scheme = self.experiment.scheme.at(plan.round)
        return not scheme.aggregator.sums and not scheme.noise.private

    def apart(self, plan: RoundPlan) -> bool:
        """Whether every message is kept by itself, not added up where it is made."""
        masked = self.secure is not None and self.experiment.secagg == "masked"
        return masked or self._single(plan) or len(plan.groups) > 0

    def answer(self, plan: RoundPlan) -> Callable[[Trained], Updates]:
        """What becomes of trained clients: the message of each, or their sum.

        Where the noise of a sum is drawn at once, these are terms of it, without noise.
        """
        if not self.apart(plan):
            return functools.partial(self._summed, plan)
        return functools.partial(self._terms if self.draws_per_sum(plan) else self.work.messages, plan)

    def _terms(self, plan: RoundPlan, trained: Trained) -> Updates:
        return Updates(trained.clients, self.work.terms(plan, trained), trained.num_records)

    def _summed(self, plan: RoundPlan, trained: Trained) -> Updates:
        """The weighted sum of the clients' codes; or of their updates, where one code of the sum does."""
        scheme = self.experiment.scheme.at(plan.round)
        if self.draws_per_sum(plan):
            return Updates(trained.clients, self.work.summed_terms(plan, trained)[None], trained.num_records)
        codes = None if self.work.sums_only(plan) else self.work.encoded(plan, trained)
        counts = self._counts(scheme, trained)
        with self.clock("sum"):
            if codes is None:
                total = trained.weighted_sum(counts)
            elif isinstance(trained, Forged) and len(trained.updates) == 1 and not self.work.follows_protocol:
                total = (counts.sum() if codes.is_floating_point() else len(codes)) * codes[0]
            else:  # integers come from private schemes, in which clients count alike
                total = counts @ codes if codes.is_floating_point() else codes.sum(0)
        return Updates(trained.clients, total[None], trained.num_records)

    def _counts(self, scheme: Scheme, clients: Trained) -> Tensor:
        """How much each client counts."""
        return sent(torch.from_numpy(client_weights(scheme, clients.num_records)).to(torch.float32), self.device)

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

    def check_counted(self, plan: RoundPlan, client: int, code: Tensor, weights: Tensor) -> None:
        """Serialise values of each direction and packing for real: the ledger's count must be the message's length."""
        scheme = self.experiment.scheme.at(plan.round)
        code_size, weights_down = self.sizes(plan.round)
        up_as, down_as = uplink_encoding(scheme, code_size, plan), downlink_encoding(scheme)
        if (up_as, down_as) in self._counted:
            return
        self._counted.add((up_as, down_as))
        for kind, values, encoding in (("code", code, up_as), ("weights", weights[:weights_down], down_as)):
            message = wire.Message(kind, plan.round, plan.attempt, client, 1.0, plan.fingerprint, values)
            assert len(wire.encode(message, encoding)) == wire.message_size(values.numel(), encoding)


def small_work(e: Experiment, model: FlatModel, held: int) -> bool:
    """Whether one thread is enough for a round, if clients hold so many records: up to 2^32 multiplications.

    Several threads would wait for each other at every one of many small operations, and on a busy machine for long.
    That is said only of models of dense layers, which multiply every weight once for a record, there and back.
    """
    layers = [layer for layer in model.module.modules() if any(True for _ in layer.parameters(recurse=False))]
    if e.front_end is not None or not all(type(layer) is nn.Linear for layer in layers):
        return False
    train, sizes = e.scheme.train, np.array([held])
    steps = int((train.steps_of(sizes) * train.batch_of(sizes))[0]) if isinstance(train, LocalSGD) else held
    steps *= train.local_steps if isinstance(train, LocalDPSGD) else 1
    cohort = e.sampler.planned_cohort(e.population.num_clients)
    return 3 * cohort * steps * model.size <= _SMALL_WORK


def collect_groups(clients: SimulatedClients, plan: RoundPlan, weights: Tensor) -> Collected:
    """The sum of each group, in the open or masked. What is lost in one group does not touch another."""
    assert clients.secure is not None, "a scheme with groups has secure sums"
    scheme, (code_size, weights_down) = clients.experiment.scheme.at(plan.round), clients.sizes(plan.round)
    attempts = clients.secure.attempts(plan)
    result = Collected(empty_sum(scheme, plan, code_size, clients.device), groups=[0] * len(attempts))
    coming = np.sort(np.concatenate([attempt.clients for attempt in attempts if attempt is not None]))
    for chunk in clients.work.each(plan, coming, weights, clients.answer(plan)) if len(coming) else ():
        groups = plan.group_of(chunk.clients)
        for group in np.unique(groups).tolist():
            rows = np.flatnonzero(groups == group)
            _add(clients, attempts[group], chunk.clients[rows], chunk.values[torch.from_numpy(rows)], result, group)
        result.messages += len(chunk.clients)
    if clients.draws_per_sum(plan):
        with clients.clock("noise"):
            _draw(clients, plan, attempts, result)
    result.up = [wire.message_size(code_size, uplink_encoding(scheme, code_size, plan))] * result.messages
    told = sum(len(one.cohort) for one, attempt in zip(plan.groups, attempts, strict=True) if attempt is not None)
    result.down = [wire.message_size(weights_down, downlink_encoding(scheme))] * told
    clients.check_counted(plan, int(plan.cohort[0]), result.total[0], weights)
    _open(clients, attempts, result)
    return result


def _draw(clients: SimulatedClients, plan: RoundPlan, attempts: list[Attempt | None], result: Collected) -> None:
    """The noise of every group's sum, at once."""
    scheme = clients.experiment.scheme.at(plan.round)
    for group, (one, attempt) in enumerate(zip(plan.groups, attempts, strict=True)):
        if attempt is not None:
            result.total[group] = noise_around(
                scheme,
                one,
                result.total[group],
                shares=clients.work.num_shares(plan, attempt.clients),
                stream=sum_noise_stream(clients.streams, plan, group),
            )


def _add(
    clients: SimulatedClients, attempt: Attempt | None, some: np.ndarray, codes: Tensor, result: Collected, group: int
) -> None:
    """Add the codes of some clients to the sum of their group, or send them through its masked sum."""
    assert attempt is not None and result.groups is not None
    result.groups[group] += len(some)
    if attempt.masked is None:
        with clients.clock("sum"):
            result.total[group] += codes.sum(0)
    else:
        with clients.clock("mask"):
            attempt.upload(some, codes)


def _open(clients: SimulatedClients, attempts: list[Attempt | None], result: Collected) -> None:
    """Open every sum that can be; of the others nothing is kept, and they count as if no client had come."""
    assert result.groups is not None
    reasons, traffic = [], dict[str, int]()
    for group, attempt in enumerate(attempts):
        if attempt is None:
            continue
        with clients.clock("sum" if attempt.masked is None else "unmask"):
            opened = attempt.open(result.total[group])
        for kind, size in opened.traffic.items():
            traffic[kind] = traffic.get(kind, 0) + size
        if opened.total is None:
            reasons.append(opened.reason)
            result.total[group], result.groups[group] = 0, 0
        else:
            result.total[group] = opened.total
    if traffic:
        result.secagg = {kind: size for kind, size in traffic.items() if kind != "payload_up"}
        result.up = [traffic["payload_up"] // max(1, result.messages)] * result.messages
    result.messages = sum(result.groups)
    if not result.messages and reasons:
        result.lost = f"no group was opened; the first: {reasons[0]}"
