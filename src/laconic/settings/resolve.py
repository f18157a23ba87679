"""What a configuration leaves open of its scheme and its promise, and what stands in for numbers not yet known.

Of the scheme: how clients train, how codes are combined, what is measured. Of the promise: the budget, the noise σ, and
the clipping threshold S, which may be measured.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from laconic.aggregate.names import build_aggregator
from laconic.aggregate.protocol import PlainSum
from laconic.catalogue import SchemeEntry
from laconic.clients.simulated import SimulatedClients
from laconic.codecs.base import Identity
from laconic.codecs.queries import Evaluations
from laconic.codecs.scaling import Moments, Scaled, largest_answer
from laconic.data.federated import FederatedData
from laconic.data.population import PooledPopulation, Population, Records
from laconic.errors import ConfigError, TrainingError, option_named
from laconic.experiment.calibrated import (
    EVALUATION_SHARE,
    SCALING_SHARE,
    VOTE_SHARE,
    Calibration,
    calibrated,
    with_shares,
)
from laconic.experiment.experiment import Experiment
from laconic.experiment.mechanism import count_units, loses_by_cohort, momentum_of, taking_turns
from laconic.options.sections import AggregatorSection, EvaluationSection, ScalingSection, ServerSection
from laconic.planning import plan_round
from laconic.privacy.accounting.budget import Budget
from laconic.privacy.accounting.releases import CLIENT, METHODS, RECORD
from laconic.privacy.accounting.sampling import FixedSize, Sampler
from laconic.privacy.mechanism.clip import L2Clip, NoClip
from laconic.privacy.mechanism.correlated import CorrelatedGaussian, choose_bands
from laconic.privacy.mechanism.discrete_gaussian import DiscreteGaussian
from laconic.privacy.mechanism.gaussian import NoNoise
from laconic.privacy.statement import check_delta
from laconic.scheme import Scheme
from laconic.server.steps import Preconditioned, Scheduled
from laconic.settings.config import RunConfig
from laconic.streams import Streams
from laconic.train.flat import trainable_size

WHOLE = "all"
"""The batch size that is a client's whole data set."""
_TRAIN_DEFAULTS = {"local_steps": 5, "batch_size": 10, "local_lr": 0.1}


def protects_units(config: RunConfig) -> bool:
    """Whether units inside clients are protected by noise shares: then all clients take part, and none trains."""
    unit: object = config.scheme.options.get("unit", CLIENT)
    return unit != CLIENT


def usual_rate(config: RunConfig) -> float:
    """The share of the clients in a round, unless it is given: hospitals whose patients are protected all take part."""
    return 1.0 if protects_units(config) else 0.1


def max_owners(config: RunConfig) -> int:
    """At how many clients one patient has records at most."""
    given = config.scheme.options.get("max_owners_per_patient", 1)
    return given if isinstance(given, int) and given >= 1 else 1  # what else is there is refused with the scheme


@dataclass(frozen=True)
class Draft:
    """The scheme of a checked configuration, built once, with 1 for what is calibrated or measured later."""

    entry: SchemeEntry
    options: dict[str, Any]
    """Of the scheme, with the defaults of training."""
    scheme: Scheme

    @property
    def takes_bound(self) -> bool:
        """Whether codes are clipped to an S that a configuration names."""
        return "clip_norm" in self.entry.options and not self.entry.record_level


def with_train_defaults(options: dict[str, Any], entry: SchemeEntry) -> dict[str, Any]:
    known = entry.options
    if options.get("unit", CLIENT) != CLIENT:
        return options
    # Where a scheme has a default of its own, or wants the number from the user, it is not given one here.
    open_ = [name for name in _TRAIN_DEFAULTS if name in known and (known[name] is None or name == "local_lr")]
    defaults = {name: _TRAIN_DEFAULTS[name] for name in open_}
    if options.get("batch_size") == WHOLE and known.get("batch_size", WHOLE) is None:
        options = options | {"batch_size": None}
    if "epochs" in options:
        defaults.pop("local_steps", None)
    return defaults | options


def draft_options(options: dict[str, Any], entry: SchemeEntry) -> dict[str, Any]:
    """The scheme's options with 1 for what has to be calibrated or measured."""
    open_ = [name for name in ("noise_multiplier", "clip_norm") if name in entry.options]
    draft = {name: options[name] if isinstance(options.get(name), int | float) else 1.0 for name in open_}
    if options.get("precondition") is not None:
        options = {"outputs": 1} | options
    return options | draft if entry.private else options


def with_outputs(draft: Draft, model: nn.Module) -> Draft:
    """With the outputs of the linear layer that the server preconditions; an error if the model is another."""
    scheme, options = draft.scheme, draft.options
    if options.get("precondition") is None:
        return draft
    shapes = [tuple(p.shape) for p in model.parameters() if p.requires_grad]
    if len(shapes) != 2 or len(shapes[0]) != 2 or shapes[1] != shapes[0][:1]:
        raise ConfigError(
            "⟨precondition⟩ is for a model that is one linear layer with a bias: use ⟨model⟩ logistic, perhaps behind"
            " a ⟨front-end⟩, or leave it out"
        )
    found = shapes[0][0]
    if options.get("outputs", found) != found:
        raise ConfigError(f"⟨outputs⟩ {options['outputs']}: the layer has {found}; leave it out")
    if isinstance(scheme.rule, Preconditioned):
        scheme = replace(scheme, rule=replace(scheme.rule, outputs=found))
    return Draft(draft.entry, options | {"outputs": found}, scheme)


def with_bound(scheme: Scheme, clip_norm: float) -> Scheme:
    """The scheme with another S, where codes are clipped to one."""
    return replace(scheme, clip=L2Clip(clip_norm=clip_norm)) if isinstance(scheme.clip, L2Clip) else scheme


def with_bands(scheme: Scheme, config: RunConfig, sampler: Sampler) -> Scheme:
    """The scheme with noise that is correlated over as many rounds as the configuration says: made for this run."""
    bands, noise = config.privacy.noise_bands, scheme.noise
    if bands == 1:
        return scheme
    if not isinstance(noise, DiscreteGaussian):
        way = "use ⟨noise⟩ integer" if noise.private else "use a scheme in -dp such as fl-std-dp"
        raise ConfigError(
            f"⟨noise-bands⟩ {bands} correlates integer noise that protects clients, and {scheme.name} as it is has"
            f" none: {way}, or leave it out"
        )
    for flag, value in (("⟨bits⟩", noise.bits), ("⟨ring-bits⟩", noise.ring_bits)):
        if value is not None:
            raise ConfigError(f"{flag} {value} means nothing with ⟨noise-bands⟩, whose grid is fixed: leave one out")
    if noise.signs:
        raise ConfigError(
            f"⟨noise-bands⟩ {bands}: correlated noise cancels in sums of codes, and a vote on signs is none: use"
            " another scheme such as fl-std-dp, or leave it out"
        )
    chosen = choose_bands(
        bands=bands,
        separation=taking_turns(sampler).separation,
        rounds=config.run.rounds,
        momentum=momentum_of(scheme),
    )
    return replace(scheme, noise=CorrelatedGaussian(noise_multiplier=noise.noise_multiplier, coefficients=chosen))


def completed(scheme: Scheme, config: RunConfig, sampler: Sampler, shape: tuple[int, int] = (0, 0)) -> Scheme:
    """The scheme with all that other sections say of it: how codes are combined, what is measured, how noise is.

    `shape` is the number of columns and of classes, which only scaling asks for.
    """
    scheme = with_evaluations(with_aggregator(scheme, config.aggregator), config.evaluation)
    scheme = with_scaling(scheme, config.scaling, shape)
    return with_bands(with_schedule(scheme, config), config, sampler)


def with_schedule(scheme: Scheme, config: RunConfig) -> Scheme:
    """The scheme whose steps get shorter, or that ends with the mean of its last iterates."""
    section, rounds = config.server, config.run.rounds
    if section == ServerSection():
        return scheme
    if scheme.downlink == "signs":
        raise ConfigError(
            f"⟨step-decay⟩ and ⟨average-last⟩ change the length of a step, and {scheme.name} sends the signs of equal"
            " ones: leave them out"
        )
    if section.average_last > 1 and config.evaluation.every and rounds % config.evaluation.every == 0:
        raise ConfigError(
            f"⟨average-last⟩ {section.average_last} ends in the last round, and that is an evaluation: change ⟨rounds⟩"
            " or ⟨evaluate-every⟩"
        )
    if section.average_last > rounds - scheme.codec.vote_rounds:
        raise ConfigError(f"⟨average-last⟩ {section.average_last}: there are fewer rounds of training")
    return replace(
        scheme,
        rule=Scheduled(
            rule=scheme.rule, rounds=rounds, step_decay=section.step_decay, average_last=section.average_last
        ),
    )


def with_evaluations(scheme: Scheme, section: EvaluationSection) -> Scheme:
    """The scheme with the evaluations that the section names."""
    if not section.every:
        return scheme
    return replace(
        scheme,
        evaluations=Evaluations(
            every=section.every,
            metric=section.metric,
            bins=section.bins,
            largest_loss=section.largest_loss,
            noise_multiplier=section.noise_multiplier,
        ),
    )


def with_scaling(scheme: Scheme, section: ScalingSection, shape: tuple[int, int]) -> Scheme:
    """The scheme whose codec scales columns, by figures that clients are asked for or by public ones alone."""
    columns, classes = shape
    if section.kind == "none":
        return scheme
    if not isinstance(scheme.codec, Identity):
        raise ConfigError(
            f"⟨scaling⟩ {section.kind} is for schemes that send all weights as they are (fl-std, fl-std-dp), and"
            f" {scheme.name} does not: leave it out"
        )
    if not columns:  # the data are not known yet
        return scheme
    quantities, ones = section.quantities or 0, section.ones or 0
    scheme = replace(scheme, codec=Scaled(columns=columns, quantities=quantities, ones=ones))
    if section.kind == "public":
        return scheme
    moments = Moments(
        columns=columns,
        quantities=quantities,
        classes=classes,
        bound=largest_answer(quantities=quantities, ones=ones, classes=classes),
        rare=section.rare,
        steepest=section.steepest,
        noise_multiplier=section.noise_multiplier if scheme.private else None,
    )
    return replace(scheme, queries=(*scheme.queries, moments))


def with_facts(config: RunConfig, federation: FederatedData) -> RunConfig:
    """The configuration with what public facts say of the columns, where they are scaled."""
    if config.scaling.kind == "none":
        return config
    found = federation.facts
    if found is None:
        raise ConfigError(
            f"⟨scaling⟩ {config.scaling.kind} needs the ranges of the columns: describe the table with a ⟨schema⟩"
            " (laconic schema init drafts one)"
        )
    return config.with_values({"scaling.quantities": found[0], "scaling.ones": found[1]})


def with_aggregator(scheme: Scheme, section: AggregatorSection) -> Scheme:
    """The scheme with the aggregator and the groups that the section names; without them, it keeps its own."""
    if section.groups is not None and section.name is None:
        scheme = replace(scheme, groups=section.groups)
    about = {"byzantine": section.byzantine, "radius": section.radius} | section.options
    given = {key: value for key, value in about.items() if value is not None}
    if section.name is None:
        idle = [option_named(key) for key in given] + [option_named("mixing")] * section.mixing
        if idle:
            raise ConfigError(f"{', '.join(idle)} means nothing without ⟨aggregator⟩: name a rule")
        return scheme
    rule = build_aggregator(section.name, mixing=section.mixing, **given)
    return replace(scheme, aggregator=rule, groups=section.groups or scheme.groups)


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


def make_budget(config: RunConfig, entry: SchemeEntry, sampler: Sampler, population: Population) -> Budget:
    """The budget, refused where it promises nothing: before any noise is calibrated to it."""
    privacy, record_level = config.privacy, entry.record_level
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
    draft: Draft,
    model: nn.Module,
    shape: tuple[int, int] = (0, 0),
) -> Scheme:
    """The scheme with every σ as given, or else the smallest that keeps the promised ε over all rounds.

    Votes and evaluations have their shares of it. A federation's spare rounds are counted. Where no ε is promised, the
    σ of training is theirs, too. Any bound serves: the grid of integer noise scales with it, and no ε depends on it.
    """
    scheme = with_bound(draft.scheme, 1.0) if draft.takes_bound else draft.scheme
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


def check_clip(config: RunConfig, entry: SchemeEntry) -> None:
    """Refuse a run that does not say what S is, or where it is to come from."""
    options = config.scheme.options
    given = options.get("clip_norm")
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
