"""From a configuration to an experiment: data, sampler and model are settled here; what its run folder then holds.

A run that goes on has the configuration of its folder. Which options may differ then is said here, too.
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import torch
from torch import nn

from laconic.audience import Sentence
from laconic.catalogue import build_scheme
from laconic.codecs.scaling import Moments
from laconic.data.ehr.draft import draft_file, draft_schema, write_draft
from laconic.data.ehr.features import Preprocessing
from laconic.data.ehr.schema import Schema
from laconic.data.federated import FederatedData, pooled
from laconic.data.population import first_of
from laconic.data.sources import SOURCES
from laconic.errors import ConfigError, DataError, RunFolderError, several
from laconic.experiment.experiment import Experiment
from laconic.experiment.outlook import outlook_of
from laconic.models.registry import MODELS, build_model, default_model, takes_option
from laconic.observers.observer import Observer
from laconic.observers.tracker import tracker
from laconic.options.sections import (
    DataSection,
    DeltaOptions,
    HeldOutOptions,
    RunOptions,
    SlackOptions,
    SumOptions,
    TestingOptions,
)
from laconic.privacy.accounting.budget import Budget
from laconic.privacy.accounting.releases import EVALUATIONS, VOTES
from laconic.privacy.accounting.sampling import Cyclic, FixedSize, Poisson, Sampler
from laconic.scheme import Scheme
from laconic.settings.auto import chosen
from laconic.settings.check import check_config, data_problems
from laconic.settings.config import AUTO, RunConfig, read_toml, write_toml
from laconic.settings.data.datasets import load_federation
from laconic.settings.data.declared import check_declared
from laconic.settings.data.record_kind import FILE, record_kind
from laconic.settings.parts import class_names, make_attack, make_sampler, resolve_front_end, with_front_end_defaults
from laconic.settings.resolve import (
    WHOLE,
    completed,
    make_budget,
    max_owners,
    protects_units,
    resolve_clip,
    resolve_noise,
    usual_rate,
    with_bound,
    with_facts,
    with_outputs,
)
from laconic.store.folder import RunFolder
from laconic.streams import Streams


@dataclasses.dataclass(frozen=True)
class Settled:
    """A configuration with every value decided, and the experiment that it describes."""

    config: RunConfig
    experiment: Experiment
    federation: FederatedData
    chosen: tuple[str, ...] = ()
    """What `auto` chose, and why."""

    @property
    def preprocessing(self) -> Preprocessing | None:
        """How health records were prepared; None for other data."""
        return self.federation.preprocessing


def settle(
    config: RunConfig, federation: FederatedData | None = None, *, stored: Path | None = None, fit: bool = True
) -> Settled:
    """Load, calibrate, measure and check everything that training needs; the data are loaded unless they are given.

    `stored` is the folder of a run that goes on. With `fit=False` no front end is fitted: sizes only, for a plan.
    """
    if config.scheme.name == AUTO:
        config, federation, why = decided(config, federation)
        return dataclasses.replace(settle(config, federation, stored=stored, fit=fit), chosen=why)
    draft = check_config(config, data_given=federation is not None, planned=not fit)
    if config.run.threads is not None:
        torch.set_num_threads(config.run.threads)
    entry = draft.entry
    config = with_front_end_defaults(config)
    streams = Streams(config.run.seed)
    federation = federation or load_federation(
        config.data, holdout=config.run.holdout, streams=streams, max_owners=max_owners(config)
    )
    if entry.private:
        check_declared(federation)
    _check_classes(federation)
    front_end = resolve_front_end(config, federation, streams, stored=stored, fit=fit)
    shape = federation.input_shape if front_end is None else front_end.output_shape
    config = _with_vocabulary(_with_model_name(config, federation, shape, entry.private), federation)
    model = _model(config, shape, federation.num_classes, streams)
    columns = math.prod(shape), federation.num_classes
    config = with_facts(config, federation)
    sampler = make_sampler(config.sampler, federation.population.num_clients, usual_rate=usual_rate(config))
    if config.scheme.name.lower() == "centralized":
        federation, sampler = pooled(federation), FixedSize(cohort_size=1)
    budget = make_budget(config, entry, sampler, federation.population) if entry.private else None
    draft, notes = with_outputs(draft, model), list(federation.notes)
    options = dict(draft.options)
    attack = make_attack(config, draft.scheme, federation.num_classes)
    # A draft with 1 for σ and S is enough to see all that cannot work, before anything that takes time.
    scheme = completed(draft.scheme, config, sampler, columns)
    tried = Experiment(
        scheme=scheme,
        model=model,
        front_end=front_end,
        population=federation.population,
        sampler=sampler,
        budget=budget,
        test=federation.test,
        test_clients=federation.test_clients,
        class_names=_class_names(config, federation),
        subgroups=federation.subgroups,
        target_unit=1.0 if federation.quantity is None else federation.quantity.half,
        holdout=federation.holdout,
        public=federation.public,
        loss=config.model.loss,
        attack=attack,
        **_run_options(config),
    )
    if entry.private:
        noisy = resolve_noise(config, sampler, federation.population.num_clients, draft, model, columns)
        options["noise_multiplier"] = noisy.noise_multiplier
        if (sigma := noisy.own_noise_multiplier(VOTES)) is not None:
            options["vote_noise_multiplier"] = sigma
        if (sigma := noisy.own_noise_multiplier(EVALUATIONS)) is not None:
            config = config.with_values({"evaluation.noise_multiplier": sigma})
        if config.scaling.kind == "private" and (sigma := noisy.own_noise_multiplier(Moments.name)) is not None:
            config = config.with_values({"scaling.noise_multiplier": sigma})
        scheme = dataclasses.replace(noisy, clip=draft.scheme.clip)
        if draft.takes_bound:
            measured = isinstance(options["clip_norm"], str)
            options["clip_norm"], note = resolve_clip(config, draft.scheme, model, federation, front_end, streams)
            notes += [note] if note else []
            if measured and ":" in config.scheme.name:  # a function of the user's own may use S elsewhere, too
                again = completed(build_scheme(config.scheme.name, **options), config, sampler, columns)
                scheme = dataclasses.replace(again, queries=noisy.queries)
            elif measured:
                scheme = with_bound(noisy, options["clip_norm"])
        notes += _revealed(config, federation)
    config = _settled_config(config, scheme, options, federation, sampler, budget)
    if attack is not None:
        config = config.with_values({"attack.boost": attack.boost, "attack.collude": attack.collude})
    experiment = dataclasses.replace(tried, scheme=scheme, best_by=config.run.best_by, notes=tuple(notes))
    if (outlook := outlook_of(experiment)) is not None:
        config = config.with_values({"privacy.outlook": f"{outlook.light}: {outlook.text}"})
    return Settled(config, experiment, federation)


def described(config: RunConfig) -> tuple[RunConfig, tuple[str, ...]]:
    """With a schema for a table that has none, drafted as `laconic schema init` does; and a line about it.

    A table that does not say whose its rows are has one owner.
    """
    data, lines = config.data, []
    path = Path(data.dataset)
    if data.dataset in SOURCES or not path.is_file() or data.text_column is not None:
        return config, ()
    if data.schema is None:
        schema = draft_file(path)
        asked = {
            "⟨target⟩": ("label", None if data.target == DataSection.target else data.target),
            "⟨patient-column⟩": ("patient", data.patient_column),
            "⟨client-column⟩": ("client", data.client_column),
        }
        if schema.exists():
            _check_same(schema, asked)
            said = f"schema: {schema}, which was there, says what the columns are"
        else:
            target, patient, client = (name for _, name in asked.values())
            write_draft(draft_schema(path, target=target, patient=patient, client=client), schema)
            said = (
                f"schema: drafted from the table as {schema}; that is not in ε: check it, and take out what is public"
            )
        lines.append(said)
        data = dataclasses.replace(
            data, schema=str(schema), target=DataSection.target, patient_column=None, client_column=None
        )
    known = Schema.from_toml(str(data.schema))
    if known.client is None and known.virtual_hospitals is None and data.num_clients is None:
        data = dataclasses.replace(data, num_clients=1)
    return dataclasses.replace(config, data=data), tuple(lines)


def _check_same(schema: Path, asked: dict[str, tuple[str, str | None]]) -> None:
    """Refuse a schema that was there and says otherwise than what is asked: another column would be learnt."""
    known = Schema.from_toml(str(schema))
    for option, (role, column) in asked.items():
        if column is not None and column != getattr(known, role):
            raise ConfigError(
                f"{option} {column}: {schema} was there, and its {role} is {getattr(known, role) or 'not named'}:"
                f" change it there, or draft another (laconic schema init --force)"
            )


def decided(
    config: RunConfig, federation: FederatedData | None = None
) -> tuple[RunConfig, FederatedData, tuple[str, ...]]:
    """What `auto` chooses for a configuration: that with everything decided, the data, and why."""
    asked = config.privacy.epsilon
    if asked == math.inf:
        config = dataclasses.replace(config, privacy=dataclasses.replace(config.privacy, epsilon=None))
    drafted: tuple[str, ...] = ()
    problems = config.problems
    if federation is None and not problems:
        config, drafted = described(config)
        problems = list(data_problems(config.data))
    if problems:
        raise ConfigError(several(problems))
    if asked is None:
        raise ConfigError(
            "auto needs ⟨epsilon⟩: 1 is a strong promise, 4 a weaker one; ⟨epsilon⟩ inf trains without privacy"
        )
    if federation is None:
        streams = Streams(config.run.seed)
        federation = load_federation(
            config.data, holdout=config.run.holdout, streams=streams, max_owners=max_owners(config)
        )
    config, why = chosen(config, federation)
    return config, federation, (*drafted, *why)


def _class_names(config: RunConfig, federation: FederatedData) -> tuple[str, ...]:
    """What the data, their schema or their entry in the list of data sets call the classes; none if they do not say."""
    return federation.classes or (tuple(class_names(config)) if federation.num_classes > 1 else ())


def _run_options(config: RunConfig) -> dict[str, Any]:
    """The options that an experiment declares, too, as they stand in the sections."""
    shared = (RunOptions, SlackOptions, SumOptions, DeltaOptions, TestingOptions, HeldOutOptions)
    sections = [getattr(config, field.name) for field in dataclasses.fields(config)]
    pairs = [(kind, section) for kind in shared for section in sections if isinstance(section, kind)]
    return {field.name: getattr(section, field.name) for kind, section in pairs for field in dataclasses.fields(kind)}


def _revealed(config: RunConfig, federation: FederatedData) -> list[Sentence]:
    """What the statement must say of records that were looked at without being charged."""
    notes = list(federation.unit) if not protects_units(config) else _whole_clients(federation)
    notes += federation.preprocessing.revealed if federation.preprocessing is not None else ()
    if config.data.client_column or federation.preprocessing is not None or federation.test_clients is not None:
        notes.append(
            "test and held-out records were taken from the clients' own records: looking at them is not private"
        )
    if config.data.public_records and config.data.public_dataset is None:
        notes.append(f"{config.data.public_records} training records were set aside and treated as public")
    if config.auto.counted is not None:
        notes.append(
            f"the number of {config.scheme.options['unit']}s was counted on the clients' records, once, and rounded to"
            " two digits, which is not in the ε; declare it (⟨num-units⟩)"
        )
    return [Sentence.public(text) for text in notes]


def _whole_clients(federation: FederatedData) -> list[str]:
    """What a client is, where units inside clients are protected."""
    return [f"whole clients: a client is {federation.client}, and has nothing as a whole"] if federation.client else []


def _check_classes(federation: FederatedData) -> None:
    """Test records must be of classes that clients have: a model cannot name others."""
    for name, records in (("test", federation.test), ("held-out", federation.holdout), ("public", federation.public)):
        if records is not None and not records.targets.is_floating_point():
            low, high = int(records.targets.min()), int(records.targets.max())
            if low < 0 or high >= max(2, federation.num_classes):
                raise DataError(
                    f"the {name} records have classes {low} to {high}, but the clients' are 0 to"
                    f" {federation.num_classes - 1}: check the targets"
                )


def _with_model_name(
    config: RunConfig, federation: FederatedData, input_shape: tuple[int, ...], private: bool
) -> RunConfig:
    """'auto' is the papers' MLP for health records, and for everything else what fits the shape (`default_model`).

    Behind a front end, and for tables in private runs, it is a logistic regression whose weights start at 0: nothing is
    left of a random start, and noise is added to few weights.
    """
    if config.model.name != "auto":
        return config
    table = federation.preprocessing is not None or len(input_shape) == 1
    plain = not set(config.model.options) - {"zero"}
    if config.front_end.name is not None or (table and private and plain and _floats(federation)):
        zero = config.model.options.get("zero", True)
        return config.with_values({"model.name": "logistic", "model.zero": zero})
    if federation.preprocessing is not None:
        return config.with_values({"model.name": "mlp"})
    words = not _floats(federation)
    name = default_model(_shape_of(config, input_shape), integer_inputs=words)
    if words and federation.wording is not None and name == "logistic":  # short texts, for certain
        name = "text-cnn"
    return config.with_values({"model.name": name})


def _floats(federation: FederatedData) -> bool:
    """Whether records are measured, and not numbers of words."""
    inputs = first_of(federation.population).inputs
    return not isinstance(inputs, torch.Tensor) or inputs.is_floating_point()


def _shape_of(config: RunConfig, input_shape: tuple[int, ...]) -> tuple[int, ...]:
    """Of a stand-in, that of the data set in whose place it is, if its records are large enough for that network."""
    info = SOURCES.get(config.data.dataset)
    if info is None or info.stand_in_for is None:
        return input_shape
    original = SOURCES[info.stand_in_for].input_shape
    alike = len(original) == len(input_shape) and all(a >= b for a, b in zip(input_shape, original, strict=True))
    return original if alike else input_shape


def _with_vocabulary(config: RunConfig, federation: FederatedData) -> RunConfig:
    """A model that looks words up knows as many as the texts have numbers for."""
    if federation.wording is None or "vocabulary" in config.model.options:
        return config
    if not takes_option(config.model.name, "vocabulary"):
        return config
    return config.with_values({"model.vocabulary": federation.wording.num_words})


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
    federation: FederatedData,
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
    if config.run.best_by == "auto" and federation.preprocessing is not None and federation.num_classes == 2:
        changes["run.best_by"] = "balanced-accuracy"  # as in the papers: always saying "survives" is often right
    if federation.dealt and config.data.num_clients is None and not scheme.pooled:
        changes["data.num_clients"] = federation.population.num_clients
    if isinstance(sampler, Poisson):
        changes["sampler.sampling_rate"] = sampler.sampling_rate
    elif isinstance(sampler, Cyclic):
        changes["sampler.separation"] = sampler.separation
    elif not scheme.pooled and isinstance(sampler, FixedSize):
        changes["sampler.cohort_size"] = sampler.cohort_size
    return config.with_values(changes)


def files_of(settled: Settled) -> dict[str, str]:
    """What a run folder says of the run: its configuration, what a record is or how it was prepared, words of texts."""
    files = {"config.toml": write_toml(settled.config.to_dict())}
    if settled.preprocessing is not None:
        files["preprocessing.toml"] = settled.preprocessing.schema.to_toml()
    else:
        files[FILE] = record_kind(settled.config.data, settled.federation).to_toml()
    wording = settled.federation.wording
    if wording is not None and wording.listed:
        files["vocabulary.txt"] = "".join(f"{word}\n" for word in wording.listed)
    return files


def tracked(config: RunConfig) -> Observer:
    """The tool that follows the run, if one is asked for. It learns the names of data and model, if they have any."""
    if config.run.track is None:
        return Observer()
    data = config.data.dataset if config.data.dataset in SOURCES else "own data"
    model = config.model.name if config.model.name in MODELS else "own model"
    return tracker(config.run.track, {"data.dataset": data, "model.name": model})


_CAME_TO = (("model", "name", "auto"), ("run", "best_by", "auto"), ("secagg", "noise_draws", "auto"))
"""What a run was asked for and settled itself: to ask for it again is no change."""
_MAY_CHANGE = ("join_timeout", "round_timeout", "max_discarded", "metrics_port", "log_file")


def resumed_config(folder: RunFolder, asked: dict[str, Any]) -> RunConfig:
    """The folder's configuration. Only the number of rounds may be raised, and a server's patience and who watches may
    be others, which are no part of the mechanism; any other difference is refused."""
    try:
        stored = RunConfig.from_dict(read_toml(folder.path / "config.toml"))
    except ConfigError as error:
        raise RunFolderError(f"{folder.path}/config.toml is damaged ({error}): restore it or start a new run") from None
    if asked.get("scheme.name") == AUTO:  # it has chosen: what is asked besides must be what it was asked for
        columns = ("data.target", "data.patient_column", "data.client_column")  # they are in the schema now
        asked = {path: value for path, value in asked.items() if path != "scheme.name" and path not in columns}
        asked = {path: value for path, value in asked.items() if not path.startswith("auto.") and value != math.inf}
    # Through RunConfig, so that 1 and 1.0, defaults and spellings compare alike.
    wanted = stored.with_values(asked).to_dict()
    have = stored.to_dict()
    changes: list[str] = []
    for section, values in wanted.items():
        for key, value in values.items():
            if have[section].get(key) == value:
                continue
            if (section, key, value) in _CAME_TO:
                continue
            if (section, key) == ("scheme", "clip_norm") and have["privacy"].get("clip_norm_from") == value:
                continue
            if (section, key) == ("run", "rounds") and value > have["run"]["rounds"]:
                stored = stored.with_values({"run.rounds": value})
                continue
            if (section, key) == ("run", "track"):  # who watches makes no other run
                stored = stored.with_values({"run.track": value})
                continue
            if section == "federation" and key in _MAY_CHANGE:
                stored = stored.with_values({f"federation.{key}": value})
                continue
            changes.append(f"{section}.{key} = {have[section].get(key)!r}, not {value!r}")
    if changes:
        raise RunFolderError(
            f"{folder.path} was started with {'; '.join(changes)}: resume with the same options (only ⟨rounds⟩ may"
            " grow), or choose another ⟨out⟩"
        )
    return stored
