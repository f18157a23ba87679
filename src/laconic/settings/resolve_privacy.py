"""What a configuration leaves open of its promise: the budget, the noise σ, the clipping threshold S."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from laconic.aggregate.protocol import PlainSum
from laconic.catalogue import scheme_entry
from laconic.clients.simulated import SimulatedClients
from laconic.data.federated import FederatedData
from laconic.data.population import PooledPopulation, Population, Records
from laconic.errors import ConfigError, TrainingError
from laconic.experiment.calibrated import (
    EVALUATION_SHARE,
    SCALING_SHARE,
    VOTE_SHARE,
    Calibration,
    calibrated,
    with_shares,
)
from laconic.experiment.experiment import Experiment
from laconic.experiment.mechanism import count_units, loses_by_cohort
from laconic.planning import plan_round
from laconic.privacy.accounting.budget import Budget
from laconic.privacy.accounting.releases import CLIENT, METHODS, RECORD
from laconic.privacy.accounting.sampling import FixedSize, Sampler
from laconic.privacy.mechanism.clip import NoClip
from laconic.privacy.mechanism.gaussian import NoNoise
from laconic.privacy.statement import check_delta
from laconic.scheme import Scheme
from laconic.settings.config import RunConfig
from laconic.settings.resolve_scheme import completed, with_bound
from laconic.streams import Streams
from laconic.train.flat import trainable_size

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

    Args:
        source: 'median' or 'public'.
        config: of the run; how it trains and where.
        scheme: with any clip and noise: both are left out.
        model: starts the local round; in front of it, if any, `front_end`.
        federation: whose records.
        front_end: the fixed public features.
        streams: the run's randomness.
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


_CLIP_SOURCES = {
    "median": "the clipping threshold is the median update norm of an initialisation round on the clients' own data,"
    " as in the papers: that round is not private and not in the ε",
    "public": None,
}


def make_budget(config: RunConfig, sampler: Sampler, population: Population) -> Budget:
    """The budget, refused where it promises nothing: before any noise is calibrated to it."""
    privacy, record_level = config.privacy, scheme_entry(config.scheme.name).record_level
    options = config.scheme.options
    one = RECORD if record_level else options.get("unit", CLIENT)
    budget = draft_budget(config)
    budget.check(sampler, None if one == CLIENT else METHODS)
    check_delta(
        budget.delta,
        units=count_units(population, record_level=record_level, declared=options.get("num_units")),
        one=one,
        allowed=privacy.allow_large_delta,
    )
    return budget


def draft_budget(config: RunConfig) -> Budget:
    """The budget as it is written down."""
    privacy = config.privacy
    return Budget(
        delta=1e-5 if privacy.delta is None else privacy.delta,
        epsilon=privacy.epsilon,
        participant_epsilon=privacy.participant_epsilon,
        max_participations=config.sampler.max_participations,
        accountant=privacy.accountant,
    )


def resolve_noise(
    config: RunConfig,
    sampler: Sampler,
    num_clients: int,
    draft: Scheme,
    model: nn.Module,
    shape: tuple[int, int] = (0, 0),
) -> Scheme:
    """The scheme with every σ as given, or else the smallest that keeps the promised ε over all rounds.

    Votes and evaluations have their shares of it. A federation's spare rounds are counted. Where no ε is promised, the
    σ of training is theirs, too. Any bound serves: the grid of integer noise scales with it, and no ε depends on it.
    """
    entry = scheme_entry(config.scheme.name)
    scheme = with_bound(draft, 1.0) if "clip_norm" in entry.options and not entry.record_level else draft
    if config.scheme.options.get("noise_multiplier") is None:
        scheme = scheme.with_noise_multiplier(None)
    scheme = completed(scheme, config, sampler, shape)
    if config.privacy.epsilon is None:
        return scheme
    asked = _calibration(config, sampler, num_clients, model)
    return calibrated(with_shares(scheme, asked), asked)


def _calibration(config: RunConfig, sampler: Sampler, num_clients: int, model: nn.Module) -> Calibration:
    share, measured = config.privacy.vote_share, config.evaluation.share
    return Calibration(
        sampler=sampler,
        num_clients=num_clients,
        rounds=config.run.rounds + (config.federation.spare_rounds or 0),
        spare_rounds=config.federation.spare_rounds or 0,
        size=trainable_size(model),
        budget=draft_budget(config),
        slack=config.sampler.max_dropouts + config.sampler.max_colluders,
        group_testing=config.aggregator.group_testing,
        loses_by_cohort=loses_by_cohort(config.secagg),
        vote_share=VOTE_SHARE if share is None else share,
        evaluation_share=EVALUATION_SHARE if measured is None else measured,
        scaling_share=SCALING_SHARE if config.scaling.share is None else config.scaling.share,
    )


def check_noise(config: RunConfig) -> None:
    """Refuse a run that says neither σ nor what to calibrate it to."""
    if config.scheme.options.get("noise_multiplier") is None and config.privacy.epsilon is None:
        raise ConfigError(f"{config.scheme.name} needs ⟨noise-multiplier⟩, or ⟨epsilon⟩ to calibrate it to")


def check_clip(config: RunConfig, options: dict[str, Any]) -> None:
    """Refuse a run that does not say what S is, or where it is to come from."""
    entry, given = scheme_entry(config.scheme.name), options.get("clip_norm")
    if entry.record_level:
        if not isinstance(given, int | float):
            raise ConfigError(
                f"{config.scheme.name} needs ⟨clip-norm⟩ as a number: the bound S on a record's gradient (2 in CHIL'21)"
            )
    elif options.get("unit", CLIENT) != CLIENT:
        if not isinstance(given, int | float):
            unit = options["unit"]
            raise ConfigError(
                f"⟨unit⟩ {unit} needs ⟨clip-norm⟩ as a number: the bound S on what one {unit} adds to a sum (1 is a"
                " beginning where records are normalised)"
            )
    elif "clip_norm" in entry.options:
        if given is None:
            raise ConfigError(
                f"{config.scheme.name} needs ⟨clip-norm⟩: a number (try 0.5), 'public' (measured on ⟨public-dataset⟩)"
                " or 'median' (as in the papers, not private)"
            )
        if isinstance(given, str) and given not in _CLIP_SOURCES:
            raise ConfigError(f"⟨clip-norm⟩ must be a positive number, 'public' or 'median', not '{given}'")


def resolve_clip(
    config: RunConfig,
    draft: Scheme,
    model: nn.Module,
    federation: FederatedData,
    front_end: nn.Module | None,
    streams: Streams,
) -> tuple[float, str | None]:
    """(S, what the statement must say about where it came from)."""
    given: Any = config.scheme.options["clip_norm"]
    source = config.privacy.clip_norm_from
    if isinstance(given, str):
        source = given
        given = clip_norm_from(source, config, draft, model, federation, front_end, streams)
    return given, _CLIP_SOURCES.get(source or "")
