"""From a configuration to an experiment: data, sampler and model are settled here."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import torch
from torch import nn

from laconic.catalogue import SchemeEntry, build_scheme, scheme_entry
from laconic.data.ehr.features import Preprocessing
from laconic.data.sources import SOURCES
from laconic.errors import ConfigError, DataError, unknown
from laconic.experiment.devices import choose_device
from laconic.experiment.experiment import Experiment, check_options
from laconic.models.registry import build_model, default_model
from laconic.parts import positive_int
from laconic.privacy.accounting.budget import Budget
from laconic.privacy.accounting.sampling import AsPublished, FixedSize, Poisson, Sampler
from laconic.scheme import Scheme
from laconic.settings.config import RunConfig, SamplerSection
from laconic.settings.datasets import Federation, load_federation, pooled
from laconic.settings.front_end import settle_front_end, with_front_end_defaults
from laconic.settings.settle_privacy import check_clip, check_noise, make_budget, settle_clip, settle_noise
from laconic.streams import Streams

WHOLE = "all"
"""The batch size that is a client's whole data set."""
SAMPLERS = ("poisson", "fixed-size", "as-published")
_TRAIN_DEFAULTS = {"local_steps": 5, "batch_size": 10, "local_lr": 0.1}


@dataclasses.dataclass(frozen=True)
class Settled:
    """A configuration with every value decided, and the experiment that it describes."""

    config: RunConfig
    experiment: Experiment
    federation: Federation

    @property
    def preprocessing(self) -> Preprocessing | None:
        """How health records were prepared; None for other data."""
        return self.federation.preprocessing


def settle(
    config: RunConfig, federation: Federation | None = None, *, stored: Path | None = None, fit: bool = True
) -> Settled:
    """Load, calibrate, measure and check everything that training needs; the data are loaded unless they are given.

    `stored` is the folder of a run that goes on. With `fit=False` no front end is fitted: sizes only, for a plan.
    """
    if config.run.threads is not None:
        positive_int(threads=config.run.threads)
        torch.set_num_threads(config.run.threads)
    entry = scheme_entry(config.scheme.name)
    _refuse_idle_options(config, entry)
    choose_device(config.run.device)
    check_options(**_run_options(config))
    config = with_front_end_defaults(config)
    streams = Streams(config.run.seed)
    federation = federation or load_federation(config.data, holdout=config.run.holdout, streams=streams)
    _check_classes(federation)
    front_end = settle_front_end(config, federation, streams, stored=stored, fit=fit)
    shape = federation.input_shape if front_end is None else front_end.output_shape
    config = _with_model_name(config, federation, shape)
    model = _model(config, shape, federation.num_classes, streams)
    sampler = make_sampler(config.sampler, federation.population.num_clients)
    if config.scheme.name.lower() == "centralized":
        federation, sampler = pooled(federation), FixedSize(cohort_size=1)
    budget = make_budget(config, sampler, federation.population) if entry.private else None
    options, notes = _with_train_defaults(dict(config.scheme.options), entry), list(federation.notes)
    if entry.private:
        check_clip(config, options)
        check_noise(config)
    # A draft with σ and S of 1 is enough to see all that cannot work, before anything that takes time.
    draft = Experiment(
        scheme=build_scheme(config.scheme.name, **_draft_options(options, entry)),
        model=model,
        front_end=front_end,
        population=federation.population,
        sampler=sampler,
        budget=budget,
        test=federation.test,
        test_clients=federation.test_clients,
        holdout=federation.holdout,
        public=federation.public,
        loss=config.model.loss,
        device=config.run.device,
        profile=config.run.profile,
        allow_large_delta=bool(config.privacy.allow_large_delta),
        **_run_options(config),
    )
    if entry.private:
        options["noise_multiplier"] = settle_noise(config, sampler, federation.population.num_clients, options, model)
        if "clip_norm" in entry.options and not entry.record_level:
            options["clip_norm"], note = settle_clip(config, options, model, federation, front_end, streams)
            notes += [note] if note else []
        notes += _revealed(config, federation)
    scheme = build_scheme(config.scheme.name, **options)
    config = _settled_config(config, scheme, options, federation, sampler, budget)
    experiment = dataclasses.replace(draft, scheme=scheme, best_by=config.run.best_by, notes=tuple(notes))
    return Settled(config, experiment, federation)


def _run_options(config: RunConfig) -> dict[str, Any]:
    """What an experiment takes from the configuration as it stands."""
    run, secagg = config.run, config.secagg
    return {
        "rounds": run.rounds,
        "seed": run.seed,
        "engine": run.engine,
        "chunk": run.chunk,
        "workers": run.workers,
        "precision": run.precision,
        "eval_every": run.eval_every,
        "patience": run.patience,
        "best_by": run.best_by,
        "checkpoint_seconds": run.checkpoint_seconds,
        "max_dropouts": config.sampler.max_dropouts,
        "max_colluders": config.sampler.max_colluders,
        "secagg": secagg.mode,
        "consistency": secagg.consistency,
        "dropout_rate": secagg.dropout_rate,
        "dropout_stage": secagg.dropout_stage,
    }


def _draft_options(options: dict[str, Any], entry: SchemeEntry) -> dict[str, Any]:
    """The scheme's options with 1 for what has to be calibrated or measured."""
    open_ = [name for name in ("noise_multiplier", "clip_norm") if name in entry.options]
    draft = {name: options[name] if isinstance(options.get(name), int | float) else 1.0 for name in open_}
    return options | draft if entry.private else options


def _revealed(config: RunConfig, federation: Federation) -> list[str]:
    """What the statement must say of records that were looked at without being charged."""
    notes = list(federation.preprocessing.revealed) if federation.preprocessing is not None else []
    if config.data.client_column or federation.preprocessing is not None:
        notes.append(
            "test and held-out records were taken from the clients' own records: looking at them is not private"
        )
    if config.data.public_records and config.data.public_dataset is None:
        notes.append(f"{config.data.public_records} training records were set aside and treated as public")
    return notes


def _check_classes(federation: Federation) -> None:
    """Test records must be of classes that clients have: a model cannot name others."""
    for name, records in (("test", federation.test), ("held-out", federation.holdout), ("public", federation.public)):
        if records is not None and not records.targets.is_floating_point():
            low, high = int(records.targets.min()), int(records.targets.max())
            if low < 0 or high >= max(2, federation.num_classes):
                raise DataError(
                    f"the {name} records have classes {low} to {high}, but the clients' are 0 to"
                    f" {federation.num_classes - 1}: check the targets"
                )


def _refuse_idle_options(config: RunConfig, entry: SchemeEntry) -> None:
    """An option that would do nothing is a misunderstanding, and with privacy a dangerous one."""
    privacy, sampler = config.privacy, config.sampler
    if entry.record_level and (sampler.max_dropouts or sampler.max_colluders):
        raise ConfigError(
            f"{config.scheme.name}: every client adds the whole noise of its records itself, whoever drops out or"
            " colludes: leave out --max-dropouts and --max-colluders"
        )
    if entry.private:
        return
    secagg = config.secagg
    given = {
        "--epsilon": privacy.epsilon,
        "--participant-epsilon": privacy.participant_epsilon,
        "--delta": privacy.delta,
        "--allow-large-delta": privacy.allow_large_delta or None,
        "--accountant": privacy.accountant,
        "--max-participations": sampler.max_participations,
        "--max-dropouts": sampler.max_dropouts or None,
        "--max-colluders": sampler.max_colluders or None,
        "--secagg masked": secagg.mode if secagg.mode != "simulated" else None,
        "--consistency signed": secagg.consistency if secagg.consistency != "plain" else None,
        "--dropout-rate": secagg.dropout_rate or None,
    }
    for flag, value in given.items():
        if value is not None:
            raise ConfigError(f"{config.scheme.name} adds no noise, so {flag} means nothing: use a scheme in -dp")


def make_sampler(section: SamplerSection, num_clients: int) -> Sampler:
    """The sampler that the section describes, checked against the population."""
    if section.kind not in SAMPLERS:
        raise ConfigError(unknown("sampler", section.kind, SAMPLERS))
    if section.kind == "poisson":
        if section.cohort_size is not None:
            raise ConfigError("Poisson sampling takes --sampling-rate; for --cohort-size choose --sampler fixed-size")
        sampler: Sampler = Poisson(sampling_rate=0.1 if section.sampling_rate is None else section.sampling_rate)
    else:
        if section.sampling_rate is not None:
            raise ConfigError(f"--sampler {section.kind} takes --cohort-size, not --sampling-rate")
        size = section.cohort_size if section.cohort_size is not None else max(1, num_clients // 10)
        sampler = (FixedSize if section.kind == "fixed-size" else AsPublished)(cohort_size=size)
    sampler.check(num_clients)
    return sampler


def _with_train_defaults(options: dict[str, Any], entry: SchemeEntry) -> dict[str, Any]:
    known = entry.options
    # Where a scheme has a default of its own, or wants the number from the user, it is not given one here.
    open_ = [name for name in _TRAIN_DEFAULTS if name in known and (known[name] is None or name == "local_lr")]
    defaults = {name: _TRAIN_DEFAULTS[name] for name in open_}
    if options.get("batch_size") == WHOLE and known.get("batch_size", WHOLE) is None:
        options = options | {"batch_size": None}
    if "epochs" in options:
        defaults.pop("local_steps", None)
    return defaults | options


def _with_model_name(config: RunConfig, federation: Federation, input_shape: tuple[int, ...]) -> RunConfig:
    """'auto' is the papers' MLP for health records, and for everything else what fits the shape (`default_model`).

    Behind a front end it is a logistic regression whose weights start at 0: nothing is left of a random start.
    """
    if config.model.name != "auto":
        return config
    if config.front_end.name is not None:
        zero = config.model.options.get("zero", True)
        return config.with_values({"model.name": "logistic", "model.zero": zero})
    if federation.preprocessing is not None:
        return config.with_values({"model.name": "mlp"})
    inputs = federation.population.records(0).inputs
    words = isinstance(inputs, torch.Tensor) and not inputs.is_floating_point()
    return config.with_values({"model.name": default_model(input_shape, integer_inputs=words)})


def _model(config: RunConfig, input_shape: tuple[int, ...], num_classes: int, streams: Streams) -> nn.Module:
    return build_model(
        config.model.name,
        input_shape=input_shape,
        num_classes=num_classes,
        seed=streams.public_seed("model"),
        options=config.model.options,
    )


def _settled_config(
    config: RunConfig,
    scheme: Scheme,
    options: dict[str, Any],
    federation: Federation,
    sampler: Sampler,
    budget: Budget | None,
) -> RunConfig:
    """The configuration with the measured and calibrated numbers in it: running it repeats the run."""
    changes: dict[str, Any] = {f"scheme.{key}": value for key, value in options.items() if value is not None}
    if "batch_size" in options and options["batch_size"] is None:
        changes["scheme.batch_size"] = WHOLE
    asked = config.scheme.options.get("clip_norm")
    if isinstance(asked, str):
        changes["privacy.clip_norm_from"] = asked
    if budget is not None:
        changes["privacy.delta"] = budget.delta
    if config.run.best_by == "auto" and federation.preprocessing is not None:
        changes["run.best_by"] = "balanced-accuracy"  # as in the papers: always saying "survives" is often right
    prepared = federation.preprocessing
    divided = config.data.dataset in SOURCES or (prepared is not None and prepared.schema.client is None)
    if divided and config.data.num_clients is None and not scheme.pooled:
        changes["data.num_clients"] = federation.population.num_clients
    if isinstance(sampler, Poisson):
        changes["sampler.sampling_rate"] = sampler.sampling_rate
    elif not scheme.pooled and isinstance(sampler, FixedSize):
        changes["sampler.cohort_size"] = sampler.cohort_size
    return config.with_values(changes)
