"""How a run begins under torchrun: rank 0 says what is run, every rank builds it, and all must have built the same."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from laconic.errors import ConfigError, LaconicError, RankFailed, worded
from laconic.experiment.identity import identity_of
from laconic.settings.build import Settled, settle
from laconic.settings.config import RunConfig
from laconic.store.chain import digest_of
from laconic.store.folder import json_text

if TYPE_CHECKING:
    from laconic.ranks.clients import RankedClients
    from laconic.ranks.group import Ranks

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
    from laconic.ranks.clients import RankedClients

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
