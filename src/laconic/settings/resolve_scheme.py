"""What a configuration leaves open of its scheme: how clients train, how codes are combined, and what stands in for
numbers not yet known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import nn

from laconic.aggregate.names import build_aggregator
from laconic.catalogue import SchemeEntry
from laconic.codecs.base import Identity
from laconic.codecs.queries import Evaluations
from laconic.codecs.scaling import Moments, Scaled, largest_answer
from laconic.data.federated import FederatedData
from laconic.errors import ConfigError, option_named
from laconic.experiment.mechanism import momentum_of, taking_turns
from laconic.options.sections import AggregatorSection, EvaluationSection, ScalingSection, ServerSection
from laconic.privacy.accounting.releases import CLIENT
from laconic.privacy.accounting.sampling import Sampler
from laconic.privacy.mechanism.clip import L2Clip
from laconic.privacy.mechanism.correlated import CorrelatedGaussian, choose_bands
from laconic.privacy.mechanism.discrete_gaussian import DiscreteGaussian
from laconic.scheme import Scheme
from laconic.server.steps import Preconditioned, Scheduled
from laconic.settings.config import RunConfig

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


def with_outputs(scheme: Scheme, options: dict[str, Any], model: nn.Module) -> tuple[Scheme, dict[str, Any]]:
    """With the outputs of the linear layer that the server preconditions; an error if the model is another."""
    if options.get("precondition") is None:
        return scheme, options
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
    return scheme, options | {"outputs": found}


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
