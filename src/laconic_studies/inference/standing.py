"""Where a federation stands when somebody asks about it: its weights, and what any client would send from there."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from laconic.clients.simulated import SimulatedClients
from laconic.data.population import Population, Records
from laconic.errors import ConfigError
from laconic.experiment.experiment import Experiment
from laconic.features.population import as_features
from laconic.plan import RoundPlan
from laconic.planning import plan_for
from laconic.round import bounded_codes, first_server_state, received, rows_at_once
from laconic.runner.run import Run
from laconic.server.rules import State
from laconic.streams import Stream
from laconic.train.engines.engine import Task
from laconic_studies.inference.views import Moment


@dataclass(frozen=True, kw_only=True)
class Standing:
    """An experiment after some of its rounds. The next one is the one that is asked about."""

    clients: SimulatedClients
    weights: Tensor
    state: State
    shared: dict[str, Tensor]
    round: int

    @classmethod
    def after(cls, experiment: Experiment, rounds: int) -> Standing:
        """After so many rounds of an ordinary run; 0 is the start."""
        check_askable(experiment)
        if rounds == 0:
            clients = SimulatedClients(experiment)
            model = clients.model
            state = first_server_state(experiment.scheme, model.size, clients.code_size, clients.device)
            return cls(clients=clients, weights=model.initial, state=state, shared=clients.shared(), round=1)
        clients = SimulatedClients(replace(experiment, rounds=rounds, eval_every=rounds))
        run = Run(clients.experiment, clients=clients)
        run.run()
        reached = run.state
        return cls(
            clients=clients, weights=reached.weights, state=reached.rule, shared=reached.shared, round=rounds + 1
        )

    @property
    def experiment(self) -> Experiment:
        return self.clients.experiment

    @property
    def size(self) -> int:
        """How many clients are in a cohort that is asked about: the expected number."""
        e = self.experiment
        return max(1, round(e.sampler.planned_cohort(e.population.num_clients)))

    def plan(self, cohort: np.ndarray, draw: int = 0) -> RoundPlan:
        """The plan of the round with this cohort. `draw` numbers the batches that clients draw in it.

        The public seed of the round is always the same one: everybody knows it, so nobody has to guess a subset.
        """
        e = self.experiment
        plan = plan_for(
            e.scheme,
            e.sampler,
            cohort,
            streams=self.clients.streams,
            round=self.round,
            attempt=draw,
            num_clients=e.population.num_clients,
            max_dropouts=e.max_dropouts,
            max_colluders=e.max_colluders,
            shared=self.shared,
        )
        return replace(plan, round_seed=self.clients.streams.public_seed("public", self.round, 0))

    def moment(self, cohort_size: int, weights: Tensor | None = None, state: State | None = None) -> Moment:
        """The round as its onlookers know it, with a cohort of this size."""
        return Moment(
            scheme=self.experiment.scheme,
            plan=self.plan(np.arange(cohort_size)),
            weights=self.weights if weights is None else weights,
            state=self.state if state is None else state,
        )

    def bounded(
        self, population: Population | None, clients: np.ndarray, draw: int = 0, weights: Tensor | None = None
    ) -> Tensor:
        """What these clients send, without noise: trained, encoded and clipped by the scheme, (clients, m).

        `population` is the experiment's own, or another one that trains in the same way.
        """
        e, view = self.experiment, self.clients
        plan = self.plan(np.arange(self.size), draw)
        start = self.weights if weights is None else weights
        support = e.scheme.codec.support(view.model.size, plan)
        held = view.work.population if population is None else as_features(population, e.front_end, view.device)
        task = Task(
            train=e.scheme.train,
            weights=received(e.scheme, plan, start),
            population=held,
            clients=clients,
            streams=view.streams,
            path=("batches", plan.round, plan.attempt),
            trained=None if support is None else support.to(view.device),
        )
        chunks = []
        for updates in view.work.engine.updates(task):
            coins = [view.streams.stream("noise", plan.round, plan.attempt, int(c)) for c in updates.clients]
            chunks.append(bounded_codes(e.scheme, plan, updates.values, streams=coins))
        return torch.cat(chunks)

    def messages(self, codes: Tensor, stream: Stream, cohort_size: int) -> Tensor:
        """The same codes with their shares of the noise, as they are sent by clients of a cohort of this size.

        All shares come from one stream, block by block. Clients have streams of their own, but here there are thousands
        of rounds, and to make a stream takes longer than to draw from it.
        """
        scheme, size = self.experiment.scheme, codes.shape[-1]
        if not scheme.noise.private:
            return codes
        plan, sensitivity = self.plan(np.arange(cohort_size)), scheme.clip.sensitivity(size)
        shares = [
            scheme.noise.share(some, sensitivity=sensitivity, plan=plan, rng=stream.fork(f"block {number}"))
            for number, some in enumerate(torch.split(codes, rows_at_once(size, codes.device)))
        ]
        return torch.cat(shares)

    def records(self, client: int) -> Records:
        """What the model sees of a client's records."""
        return self.clients.work.population.records(client).to(self.clients.device)


def check_askable(experiment: Experiment) -> None:
    """Refuse what has no sum of all codes."""
    scheme = experiment.scheme
    if scheme.pooled:
        raise ConfigError(f"{scheme.name} has no clients to infer from: choose a scheme that sends something")
    if not scheme.aggregator.sums or scheme.groups > 1:
        raise ConfigError("inference looks at plain sums: leave --aggregator and --groups out")
    if experiment.attack is not None:
        raise ConfigError("inference watches honest clients: leave --attack out")
