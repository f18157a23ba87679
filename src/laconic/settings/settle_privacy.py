"""What a configuration leaves open of its promise: the budget, the noise σ, the clipping threshold S."""

from __future__ import annotations

from typing import Any

from torch import nn

from laconic.catalogue import build_scheme, scheme_entry
from laconic.data.federated import FederatedData
from laconic.data.population import Population
from laconic.errors import ConfigError
from laconic.experiment.calibrated import EVALUATION_SHARE, VOTE_SHARE, Calibration
from laconic.experiment.checks import count_units
from laconic.experiment.mechanism import loses_by_cohort
from laconic.privacy.accounting.accountant import METHODS
from laconic.privacy.accounting.budget import Budget
from laconic.privacy.accounting.sampling import Sampler
from laconic.privacy.statement.cautions import check_delta
from laconic.scheme import Scheme
from laconic.settings.clipnorm import clip_norm_from
from laconic.settings.config import RunConfig
from laconic.settings.settle_scheme import completed
from laconic.streams import Streams
from laconic.train.flat import trainable_size

_CLIP_SOURCES = {
    "median": "the clipping threshold is the median update norm of an initialisation round on the clients' own data,"
    " as in the papers: that round is not private and not in the ε",
    "public": None,
}


def make_budget(config: RunConfig, sampler: Sampler, population: Population) -> Budget:
    """The budget, refused where it promises nothing: before any noise is calibrated to it."""
    privacy, record_level = config.privacy, scheme_entry(config.scheme.name).record_level
    budget = draft_budget(config)
    budget.check(sampler, METHODS if record_level else None)
    check_delta(
        budget.delta,
        units=count_units(population, record_level=record_level),
        one="record" if record_level else "client",
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


def settle_noise(
    config: RunConfig, sampler: Sampler, num_clients: int, options: dict[str, Any], model: nn.Module
) -> float:
    """σ as given, or the smallest that keeps the promised ε over all rounds, a federation's spare ones included."""
    given = config.scheme.options.get("noise_multiplier")
    if given is not None:
        return float(given) if isinstance(given, int | float) else given
    assert config.privacy.epsilon is not None  # `check_noise`
    asked = _calibration(config, sampler, num_clients, model)
    return asked.noise_multiplier(lambda sigma: _with_noise(config, sampler, options, sigma))


def settle_vote_noise(
    config: RunConfig, sampler: Sampler, num_clients: int, options: dict[str, Any], model: nn.Module
) -> dict[str, float]:
    """σ of the votes, as an option: the smallest with which they alone cost their share of the promised ε.

    Nothing where it is given, where there are no votes, and where no ε is promised: it is then that of training.
    """
    votes = _with_noise(config, sampler, options, 1.0).codec.vote_rounds
    if config.privacy.epsilon is None or not votes or options.get("vote_noise_multiplier") is not None:
        return {}
    asked = _calibration(config, sampler, num_clients, model)
    return {
        "vote_noise_multiplier": asked.vote_noise_multiplier(lambda sigma: _with_noise(config, sampler, options, sigma))
    }


def settle_evaluation_noise(
    config: RunConfig, sampler: Sampler, num_clients: int, options: dict[str, Any], model: nn.Module
) -> float | None:
    """σ of the evaluations: the smallest with which they alone cost their share of the promised ε.

    None where there are none, and where no ε is promised: it is then that of training.
    """
    if config.evaluation.noise_multiplier is not None:
        return config.evaluation.noise_multiplier
    example = _with_noise(config, sampler, options, 1.0)
    if config.privacy.epsilon is None or not example.num_evaluations(config.run.rounds):
        return None
    asked = _calibration(config, sampler, num_clients, model)
    return asked.evaluation_noise_multiplier(lambda sigma: _with_noise(config, sampler, options, sigma))


def _with_noise(config: RunConfig, sampler: Sampler, options: dict[str, Any], sigma: float) -> Scheme:
    """The scheme with this σ. Any bound serves: the grid of integer noise scales with it, and no ε depends on it."""
    entry = scheme_entry(config.scheme.name)
    if entry.record_level:
        return build_scheme(config.scheme.name, **{**options, "noise_multiplier": sigma})
    others = {k: v for k, v in options.items() if k not in ("clip_norm", "noise_multiplier")}
    bound = {"clip_norm": 1.0} if "clip_norm" in entry.options else {}
    scheme = build_scheme(config.scheme.name, **others, **bound, noise_multiplier=sigma)
    return completed(scheme, config, sampler)


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
    )


def check_noise(config: RunConfig) -> None:
    """Refuse a run that says neither σ nor what to calibrate it to."""
    if config.scheme.options.get("noise_multiplier") is None and config.privacy.epsilon is None:
        raise ConfigError(f"{config.scheme.name} needs --noise-multiplier, or --epsilon to calibrate it to")


def check_clip(config: RunConfig, options: dict[str, Any]) -> None:
    """Refuse a run that does not say what S is, or where it is to come from."""
    entry, given = scheme_entry(config.scheme.name), options.get("clip_norm")
    if entry.record_level:
        if not isinstance(given, int | float):
            raise ConfigError(
                f"{config.scheme.name} needs --clip-norm as a number: the bound S on a record's gradient (2 in CHIL'21)"
            )
    elif "clip_norm" in entry.options:
        if given is None:
            raise ConfigError(
                f"{config.scheme.name} needs --clip-norm: a number (try 0.5), 'public' (measured on --public-dataset)"
                " or 'median' (as in the papers, not private)"
            )
        if isinstance(given, str) and given not in _CLIP_SOURCES:
            raise ConfigError(f"--clip-norm must be a positive number, 'public' or 'median', not '{given}'")


def settle_clip(
    config: RunConfig,
    options: dict[str, Any],
    model: nn.Module,
    federation: FederatedData,
    front_end: nn.Module | None,
    streams: Streams,
) -> tuple[float, str | None]:
    """(S, what the statement must say about where it came from)."""
    given: Any = options["clip_norm"]
    source = config.privacy.clip_norm_from
    if isinstance(given, str):
        source = given
        plain = {k: v for k, v in options.items() if k != "clip_norm"}
        given = clip_norm_from(source, config, plain, model, federation, front_end, streams)
    return given, _CLIP_SOURCES.get(source or "")
