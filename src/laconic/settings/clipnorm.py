"""The clipping threshold from data: the median norm of what clients would send in the first round."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from laconic.aggregate.protocol import PlainSum
from laconic.clients.simulated import SimulatedClients
from laconic.data.federated import FederatedData
from laconic.data.population import PooledPopulation, Population, Records
from laconic.errors import ConfigError, TrainingError
from laconic.experiment.experiment import Experiment
from laconic.planning import plan_round
from laconic.privacy.accounting.sampling import FixedSize
from laconic.privacy.mechanism.clip import NoClip
from laconic.privacy.mechanism.gaussian import NoNoise
from laconic.scheme import Scheme
from laconic.settings.config import RunConfig
from laconic.streams import Streams

MOST_CLIENTS = 1000
"""The median over this many clients, drawn at random, stands for the median over all of them."""


def clip_norm_from(
    source: str,
    config: RunConfig,
    scheme: Scheme,
    model: nn.Module,
    federation: FederatedData,
    front_end: nn.Module | None,
    streams: Streams,
) -> float:
    """S measured on the clients themselves ('median'), or on public records by one client made of them ('public').

    A code that means something else in every round (a new random subset) is measured in 100 rounds (thesis 5.4.5).
    """
    population, rounds = federation.population, 1
    if source == "public":
        if federation.public is None:
            raise ConfigError(
                "⟨clip-norm⟩ public needs ⟨public-dataset⟩ NAME (mnist for fashion-mnist, say) or ⟨public-records⟩ N"
            )
        population = PooledPopulation(federation.public, np.arange(len(federation.public.targets))[None])
        rounds = 100 if scheme.codec.new_each_round else 1
    return median_norm(scheme, model, population, config, front_end, federation.public, rounds)


def median_norm(
    scheme: Scheme,
    model: nn.Module,
    population: Population,
    config: RunConfig,
    front_end: nn.Module | None,
    public: Records | None,
    rounds: int,
) -> float:
    """The median over clients and rounds of ‖encode(Δw_k)‖₂ after one local round from the initial weights."""
    probe = Experiment(
        scheme=replace(scheme, clip=NoClip(), noise=NoNoise(), secure_sum=PlainSum()),
        model=model,
        front_end=front_end,
        population=population,
        sampler=FixedSize(cohort_size=min(MOST_CLIENTS, population.num_clients)),
        rounds=rounds,
        public=public,
        loss=config.model.loss,
        seed=config.run.seed,
        device=config.run.device,
        engine=config.run.engine,
        chunk=config.run.chunk,
        workers=config.run.workers,
        precision=config.run.precision,
    )
    norms = code_norms(SimulatedClients(probe), rounds)
    median = float(norms.median())
    if not np.isfinite(median) or median <= 0:
        raise TrainingError(f"the median update norm is {median}: training diverges or does nothing; check ⟨local-lr⟩")
    return float(f"{median:.4g}")


def code_norms(clients: SimulatedClients, rounds: int) -> Tensor:
    """‖encode(Δw_k)‖₂ of the clients of each round, always from the initial weights."""
    e, shared = clients.experiment, clients.shared()
    plans = (
        plan_round(
            e.scheme,
            e.sampler,
            streams=clients.streams,
            round=number,
            attempt=0,
            num_clients=clients.num_clients,
            shared=shared,
        )
        for number in range(1, rounds + 1)
    )
    every = (chunk for plan in plans for chunk in clients.work.codes(plan, clients.model.initial))
    return torch.cat([torch.linalg.vector_norm(chunk.values, dim=-1).cpu() for chunk in every])
