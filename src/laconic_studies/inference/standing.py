"""Where a federation stands when a study asks about it: its weights, and what any client would send from there.

There is an experiment for each scheme that is asked about, with what was left open settled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from laconic.catalogue import SchemeEntry, scheme_entry
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
from laconic.settings.build import Settled, settle
from laconic.settings.config import RunConfig
from laconic.streams import Stream
from laconic.train.engines.engine import Task
from laconic_studies.inference.views import Moment

SCHEMES = ("fl-std", "fl-sign", "fl-cs", "fl-top", "fl-std-dp", "fl-sign-dp", "fl-cs-dp", "fl-top-dp")
"""What is looked at if nothing is named: every kind of code, without and with noise."""
_LEFT_OPEN = {"ratio": 0.1, "max_iterations": 48}
"""48 iterations of the solver: of thousands of rounds the model is not used further."""
_PUBLIC_RECORDS = 20


def asked_schemes(names: tuple[str, ...], values: Mapping[str, Any], **defaults: Any) -> Iterator[Settled]:
    """Settle one scheme after another. `values` are those of the configuration that the user gave, by their place.

    An option that not all schemes take goes to those that take it. `defaults` are for what
    was not given, as section__key. All schemes are checked before the first is settled.
    """
    entries = {name: scheme_entry(name) for name in dict.fromkeys(names or SCHEMES)}
    for key in values:
        section, _, option = key.partition(".")
        if section == "scheme" and not any(option in entry.options for entry in entries.values()):
            flag = f"--{option.replace('_', '-')}"
            raise ConfigError(f"{flag} means nothing to {', '.join(entries)}: leave it out")
    given = {key.replace("__", "."): value for key, value in defaults.items()} | dict(values)
    if given.get("scheme.top_selection") == "votes":
        raise ConfigError(
            "with --top-selection votes the first rounds are votes, and these attacks take rounds of training: leave it"
            " out, and choose with public records"
        )
    if given.get("privacy.noise_bands", 1) != 1 or given.get("sampler.kind") == "cyclic":
        raise ConfigError(
            "these attacks take rounds that are drawn by chance, with noise of their own: leave out --noise-bands and"
            " --sampler cyclic"
        )
    if given.get("evaluation.every"):
        raise ConfigError("these attacks take rounds of training, and evaluations are none: leave out --evaluate-every")
    if any("init_steps" in entry.options for entry in entries.values()) and "data.public_dataset" not in given:
        given.setdefault("data.public_records", _PUBLIC_RECORDS)  # for all, so that all have the same clients
    configs = [RunConfig().with_values(_completed(name, entry, given)) for name, entry in entries.items()]
    for config in configs:
        yield settle(config)


def _completed(name: str, entry: SchemeEntry, given: Mapping[str, Any]) -> dict[str, Any]:
    """What was given and the scheme takes, and defaults for what it needs besides."""
    asked = {
        key: value
        for key, value in given.items()
        if not key.startswith("scheme.") or key.partition(".")[2] in entry.options
    }
    for option, value in _LEFT_OPEN.items():
        if option in entry.options:
            asked.setdefault(f"scheme.{option}", value)
    if entry.private and "privacy.epsilon" not in asked:
        asked.setdefault("scheme.noise_multiplier", 1.0)
    if "clip_norm" in entry.options and not entry.record_level:
        asked.setdefault("scheme.clip_norm", "median")
    return {"scheme.name": name if ":" in name else name.lower(), **asked}


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

        The public seed of the round is always the same one: it is public, so no subset has to be guessed.
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
