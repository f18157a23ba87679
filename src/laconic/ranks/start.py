"""A run under torchrun: rank 0 says what is run, every rank builds it and trains some chunks of every cohort.

How a cohort is cut into chunks follows from the settings alone (`Engine.updates`), and the chunks are dealt to the
ranks in turn. A client's update may depend, in its last bits, on who else is in its chunk, but not on which rank
trains that. Rank 0 gets the chunks back in their order and does with them what it does with its own. So a run has the
same bits for any number of ranks, private or not. Sums of integers are exact in any order: of those each rank
sends one at the end of the round, instead of one for every chunk.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from laconic.clients.base import ModelView
from laconic.clients.simulated import SimulatedClients
from laconic.clients.work import ClientWork, Tamper
from laconic.errors import ConfigError, LaconicError, PrivacyError, RankFailed, RankLost, worded
from laconic.experiment.experiment import Experiment
from laconic.experiment.identity import identity_of
from laconic.plan import RoundPlan
from laconic.ranks.group import (
    Ranks,
    chunk_from_json,
    chunk_to_json,
    empty_like,
    plan_from_json,
    plan_to_json,
    shapes_of,
)
from laconic.settings.build import Settled, settle
from laconic.settings.config import RunConfig
from laconic.store.folder import json_text
from laconic.store.saves import digest_of
from laconic.train.engines.engine import Trained, Updates


class RankedClients(SimulatedClients):
    """All clients of an experiment, trained by several ranks. `Run` is rank 0's; the others `serve`."""

    def __init__(self, experiment: Experiment, ranks: Ranks) -> None:
        self.ranks, self.num_ranks = ranks, ranks.size
        super().__init__(experiment)

    def _make_work(self, tamper: Tamper | None) -> ClientWork:
        return RankedWork(self, self.ranks, adds_up=self.adds_up)

    def adds_up(self, plan: RoundPlan, chunk: Updates) -> bool:
        """Whether a rank sends only the sum of its chunks: sums of integers are exact in any order."""
        return not chunk.values.is_floating_point() and not self.apart(plan)

    def serve(self) -> None:
        """Train what rank 0 asks for, until it sends stop. An error is sent to rank 0, which ends the run."""
        shared: Mapping[str, Tensor] = {}
        while (said := self.ranks.hear(0))["what"] == "round":
            if said["shared"] is not None:
                made = {name: empty_like(about, torch.device("cpu")) for name, about in said["shared"].items()}
                shared = {name: self.ranks.spread(values) for name, values in made.items()}
            weights = self.ranks.spread(torch.empty_like(self.model.initial))
            plan, clients = plan_from_json(said["plan"], shared), np.array(said["clients"], dtype=np.int64)
            try:
                for chunk in self._share(plan, clients, weights):
                    self.ranks.tell(chunk_to_json(chunk), 0)
                    self.ranks.send(chunk.values, 0)
                self.ranks.tell({"what": "done"}, 0)
            except RankLost:
                raise
            except LaconicError as error:
                self.ranks.tell({"what": "failed", "error": str(error), "code": error.exit_code}, 0)

    def _share(self, plan: RoundPlan, clients: np.ndarray, weights: Tensor) -> Iterator[Updates]:
        """The chunks of this rank, or their sum."""
        total: Updates | None = None
        for chunk in ClientWork.honest(self.work, plan, clients, weights, self.answer(plan)):
            if not self.adds_up(plan, chunk):
                yield chunk
            else:
                total = chunk if total is None else _sum(total, chunk)
        if total is not None:
            yield total


def _sum(one: Updates, other: Updates) -> Updates:
    clients = np.concatenate([one.clients, other.clients])
    return Updates(clients, one.values + other.values, np.concatenate([one.num_records, other.num_records]))


class RankedWork(ClientWork):
    """The work of clients whose chunks are dealt to the ranks."""

    def __init__(self, view: ModelView, ranks: Ranks, *, adds_up: Callable[[RoundPlan, Updates], bool]) -> None:
        super().__init__(view)
        self.part = (ranks.rank, ranks.size)
        self._ranks, self._adds_up = ranks, adds_up
        self._told: Mapping[str, Tensor] | None = None

    def honest(
        self, plan: RoundPlan, clients: np.ndarray, weights: Tensor, then: Callable[[Trained], Updates]
    ) -> Iterator[Updates]:
        """The updates of all ranks: in the order of the chunks, or, where that changes nothing, rank by rank.

        A client that two ranks have trained would be in the sum twice, beyond the bound that its ε rests on. So it is
        counted who came, and nothing is released of a round in which a client came twice or not at all.
        """
        came = []
        for chunk in self._of_all_ranks(plan, clients, weights, then):
            came.append(chunk.clients)
            yield chunk
        if not np.array_equal(np.sort(np.concatenate(came)), np.sort(clients)):
            raise PrivacyError(
                f"round {plan.round}: the ranks have trained other clients than they were asked to; nothing is"
                " released: use ⟨engine⟩ one-by-one, or leave out torchrun"
            )

    def _of_all_ranks(
        self, plan: RoundPlan, clients: np.ndarray, weights: Tensor, then: Callable[[Trained], Updates]
    ) -> Iterator[Updates]:
        self._announce(plan, clients, weights)
        own = super().honest(plan, clients, weights, then)
        others = [self._from(rank) for rank in self._ranks.others]
        first = next(own)  # of the clients there is one at least, and the first chunk is rank 0's
        own = itertools.chain([first], own)
        if self._adds_up(plan, first):
            yield from itertools.chain(own, *others)
            return
        for turn in itertools.zip_longest(own, *others):
            yield from (chunk for chunk in turn if chunk is not None)

    def _announce(self, plan: RoundPlan, clients: np.ndarray, weights: Tensor) -> None:
        """Send the other ranks what to train. What is shared stays the same in most rounds, and is sent once."""
        new = self._told is not plan.shared
        said = {"what": "round", "plan": plan_to_json(plan), "clients": clients.tolist()}
        said["shared"] = shapes_of(plan.shared) if new else None
        for rank in self._ranks.others:
            self._ranks.tell(said, rank)
        for values in plan.shared.values() if new else ():
            self._ranks.spread(values.cpu().contiguous())
        self._ranks.spread(weights.contiguous())
        self._told = plan.shared

    def _from(self, rank: int) -> Iterator[Updates]:
        """The chunks of another rank, until it has no more."""
        while True:
            with self.view.clock("ranks"):
                said = self._ranks.hear(rank)
                if said["what"] == "failed":
                    raise RankFailed(f"rank {rank}: {said['error']}", said["code"])
                if said["what"] == "done":
                    return
                values = self._ranks.receive(empty_like(said["values"], self.view.device), rank)
            yield chunk_from_json(said, values)


_SHARES = 8
"""A new run's chunks are so small that a cohort has about so many: enough for any usual number of ranks."""


def with_threads(config: RunConfig) -> RunConfig:
    """A new run says how many threads a rank has: one, unless OMP_NUM_THREADS says otherwise.

    Float results depend on it. So it must not follow from the number of ranks, as it does in torchrun.
    """
    if config.run.threads is not None:
        return config
    said = os.environ.get("OMP_NUM_THREADS", "1")
    return config.with_values({"run.threads": int(said) if said.isdecimal() and int(said) else 1})


def lead(ranks: Ranks, config: RunConfig, folder: Path, *, new: bool) -> tuple[Settled, RankedClients]:
    """Rank 0: have all ranks build the run. A new one's threads and chunks are settled here, and kept in its folder."""
    if new:
        config = with_threads(config)
    said = {"what": "settings", "config": config.to_dict(), "folder": str(folder), "new": new}
    for rank in ranks.others:
        ranks.tell(said, rank)
    try:
        settled, clients = _built(ranks, config, folder, new)
    except LaconicError:
        for rank in ranks.others:  # who say much the same, and then wait
            ranks.hear(rank)
        raise
    mine = _about(clients)
    for rank, theirs in [(rank, ranks.hear(rank)) for rank in ranks.others]:
        if theirs["what"] == "failed":
            raise RankFailed(f"rank {rank}: {theirs['error']}", theirs["code"])
        for name, value in mine.items():
            if theirs[name] != value:
                raise ConfigError(
                    f"rank {rank} has another {name} than rank 0 ({theirs[name]}, not {value}): give all ranks the same"
                    " data, code, threads and kind of machine"
                )
    return settled, clients


def about_idle(clients: RankedClients) -> str | None:
    """A warning that some ranks have nothing to train in most rounds; None if all have."""
    planned = clients.experiment.sampler.planned_cohort(clients.num_clients)
    engine, ranks = clients.work.engine, clients.num_ranks
    chunks = math.ceil(planned / (engine.at_once if clients.experiment.chunk is None else clients.experiment.chunk))
    if chunks >= ranks or (engine.at_once == 1 and planned >= ranks):
        return None
    return worded(
        f"{ranks} ranks, but a cohort of {planned:g} clients has {chunks} chunks, so some ranks have nothing to do: use"
        " fewer ranks, or start a new run with a smaller ⟨chunk⟩"
    )


def follow(ranks: Ranks) -> None:
    """Any rank but 0: build the run that rank 0 builds, and train for it until it has ended."""
    said = ranks.hear(0)
    if said["what"] != "settings":
        return
    try:
        _, clients = _built(ranks, RunConfig.from_dict(said["config"]), Path(said["folder"]), said["new"])
    except LaconicError as error:
        ranks.tell({"what": "failed", "error": str(error), "code": error.exit_code}, 0)
        ranks.hear(0)
        return
    ranks.tell({"what": "ready"} | _about(clients), 0)
    clients.serve()


def _built(ranks: Ranks, config: RunConfig, folder: Path, new: bool) -> tuple[Settled, RankedClients]:
    settled = settle(config, stored=folder)
    experiment = replace(settled.experiment, device=_device(ranks, settled.config.run.device))
    clients = RankedClients(experiment, ranks)
    chunk = _chunk(clients)
    if new and experiment.chunk is None and chunk < clients.work.engine.at_once:
        settled = replace(settled, config=settled.config.with_values({"run.chunk": chunk}))
        experiment = replace(experiment, chunk=chunk)
        clients = RankedClients(experiment, ranks)
    return replace(settled, experiment=experiment), clients


def _chunk(clients: RankedClients) -> int:
    """The clients of one chunk, so that a cohort has about as many chunks as it should."""
    planned = clients.experiment.sampler.planned_cohort(clients.num_clients)
    return max(1, math.ceil(planned / _SHARES))


def _device(ranks: Ranks, name: str) -> str:
    """Every rank of a machine has a GPU of its own."""
    if name.startswith("cuda:") and ranks.size > 1:
        raise ConfigError(f"⟨device⟩ {name} is one GPU for {ranks.size} ranks: use ⟨device⟩ cuda, one for each rank")
    if name not in ("auto", "cuda") or not torch.cuda.is_available():
        return name
    if ranks.local >= torch.cuda.device_count():
        raise ConfigError(
            f"rank {ranks.local} of this machine has no GPU of its own, there are {torch.cuda.device_count()}: lower"
            " --nproc-per-node, or use ⟨device⟩ cpu"
        )
    torch.cuda.set_device(ranks.local)
    return f"cuda:{ranks.local}"


def _about(clients: RankedClients) -> dict[str, str]:
    """The settings that must be the same on every rank."""
    identity = identity_of(clients.experiment)
    return {"experiment": digest_of(json_text(identity).encode()), "environment": clients.environment}
