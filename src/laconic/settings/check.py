"""Everything that is wrong with a configuration, at once, before any data are loaded and anything is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from laconic.catalogue import SchemeEntry, build_scheme, scheme_entry, strange_option
from laconic.codecs.votes import VotedSubset
from laconic.data.ehr.blocks import column_names
from laconic.data.ehr.schema import Schema
from laconic.data.files.user_file import listed, looks_like_a_path, named, no_such_file
from laconic.data.sources import SOURCES
from laconic.errors import ConfigError, DataError, nearest, one_line, option_named, several, unknown
from laconic.experiment.experiment import (
    PATIENCE_NEEDS,
    check_evaluations,
    check_maskable,
    check_noise_draws,
    check_testable,
    check_votes,
)
from laconic.experiment.identity import choose_device
from laconic.features.kinds import PATCHES_NEED, learns_patches
from laconic.models.registry import find_model
from laconic.options.declare import declared_in
from laconic.options.sections import DataSection, EvaluationSection, TestingOptions
from laconic.privacy.accounting.releases import CLIENT, METHODS, UNITS
from laconic.scheme import Scheme
from laconic.settings.config import RunConfig
from laconic.settings.data.datasets import unknown_dataset
from laconic.settings.data.divide import DEAD_LEAVES
from laconic.settings.parts import check_attack, looks_at_public, make_sampler, with_front_end_defaults
from laconic.settings.resolve import (
    Draft,
    check_clip,
    check_noise,
    draft_budget,
    draft_options,
    protects_units,
    usual_rate,
    with_aggregator,
    with_bands,
    with_evaluations,
    with_schedule,
    with_train_defaults,
)
from laconic.train.local import NUM_UNITS_NEEDED


def check_config(config: RunConfig, *, data_given: bool = False, planned: bool = False) -> Draft:
    """The scheme, with 1 for what is calibrated or measured later; what cannot work is refused, with all reasons.

    With `data_given` the data are there, and the section is not asked. What is only `planned` needs no public records.
    """
    built: list[Draft] = []
    problems = list(dict.fromkeys(_problems(config, data_given, data_given or planned, built)))
    if problems:
        raise ConfigError(several(problems))
    return built[0]


def problems_in(config: RunConfig) -> list[str]:
    """All that is wrong with a configuration, each once."""
    return list(dict.fromkeys(_problems(config, False, False, [])))


def _problems(config: RunConfig, data_given: bool, public_given: bool, built: list[Draft]) -> Iterator[str]:
    yield from config.problems
    yield from _raised(choose_device, config.run.device)
    yield from _raised(with_front_end_defaults, config)
    yield from _raised(find_model, config.model.name)
    if not data_given:
        yield from data_problems(config.data)
    if config.run.patience is not None and config.run.holdout == 0 and not config.evaluation.every:
        yield PATIENCE_NEEDS
    sampler = list(_raised(make_sampler, config.sampler, None))
    yield from sampler
    try:
        entry = scheme_entry(config.scheme.name)
    except ConfigError as error:
        yield str(error)
        return
    yield from _idle_options(config, entry)
    yield from _unit_problems(config, entry)
    yield from _scheme_problems(config, entry, built)
    if entry.private:
        yield from _raised(check_clip, config, entry)
        yield from _raised(check_noise, config)
        if not sampler:
            drawn = make_sampler(config.sampler, None, usual_rate=usual_rate(config))
            figures = METHODS if entry.record_level or protects_units(config) else None
            yield from _raised(lambda: draft_budget(config).check(drawn, figures))
    yield from _raised(check_attack, config, built[0].scheme if built else None)
    for draft in (one.scheme for one in built):
        combined = list(_raised(with_aggregator, draft, config.aggregator))
        yield from combined or _testing_problems(config, draft)
        if config.secagg.secagg == "masked" and draft.private:
            yield from _raised(check_maskable, draft)
        if draft.private:
            yield from _raised(check_noise_draws, config.secagg, draft)
        yield from _raised(with_schedule, draft, config)
        if not sampler:
            yield from _raised(with_bands, draft, config, make_sampler(config.sampler, None))
        yield from _vote_problems(config, draft)
        yield from _evaluation_problems(config, draft)
        if not public_given:
            yield from _missing_public_data(config, draft)


def _raised(check: Callable[..., Any], *arguments: Any) -> Iterator[str]:
    try:
        check(*arguments)
    except ConfigError as error:
        yield str(error)


def _testing_problems(config: RunConfig, draft: Scheme) -> Iterator[str]:
    """What group testing cannot test, and its options where nothing is tested."""
    given = config.aggregator
    if given.group_testing:
        yield from _raised(check_testable, with_aggregator(draft, given))
        return
    idle = [field.name for field in fields(TestingOptions) if getattr(given, field.name) != field.default]
    if idle:
        flags = ", ".join(map(option_named, idle))
        yield f"only group testing uses {flags}: add ⟨group-testing⟩, or leave out {flags}"


def _scheme_problems(config: RunConfig, entry: SchemeEntry, built: list[Draft]) -> Iterator[str]:
    """Unknown and missing options, and wrong values, each by itself; the scheme, as far as it is known, is `built`."""
    name, given = config.scheme.name, dict(config.scheme.options)
    strange = [key for key in given if key not in entry.options]
    yield from (strange_option(name, key, given, entry) for key in strange)
    known = {key: value for key, value in given.items() if key not in strange}
    drafted = draft_options(with_train_defaults(known, entry), entry)
    missing = [key for key in entry.required_with(known) if key not in drafted]
    if missing:
        yield f"{name} needs " + ", ".join(map(option_named, missing))
    while True:
        try:
            built.append(Draft(entry, with_train_defaults(known, entry), _draft(name, entry, known)))
            return
        except ConfigError as error:
            yield str(error)
            culprit = _culprit(name, entry, known, str(error))
            if culprit is None or culprit == "unit":  # what else there may be depends on the unit
                return
            del known[culprit]  # what else is wrong?


def _culprit(name: str, entry: SchemeEntry, given: dict[str, Any], message: str) -> str | None:
    """An option without which this message goes away: one that the message names, the longest name, if there is any."""
    words = message.replace("-", "_")
    for key in sorted(given, key=lambda key: (key not in words, -len(key))):
        others = {k: v for k, v in given.items() if k != key}
        if message not in _raised(_draft, name, entry, others):
            return key
    return None


_SOUND: dict[str, Any] = {"ratio": 0.5, "local_lr": 0.1, "record_rate": 0.5, "batch_size": 10}


def _draft(name: str, entry: SchemeEntry, given: dict[str, Any]) -> Scheme:
    """The scheme with the given options, and something that works for those that it needs besides."""
    options = draft_options(with_train_defaults(given, entry), entry)
    sound = {key: _SOUND.get(key, 1) for key in entry.required_with(given) if key not in options}
    return build_scheme(name, **sound, **options)


def data_problems(data: DataSection) -> Iterator[str]:
    """Names and paths that lead nowhere."""
    if data.dataset not in SOURCES and ":" not in data.dataset and not Path(data.dataset).exists():
        yield unknown_dataset(data.dataset)
    if data.schema is not None and not Path(data.schema).is_file():
        what = "is a folder; a TOML file is expected" if Path(data.schema).is_dir() else ""
        yield f"⟨schema⟩ {data.schema} {what}" if what else f"⟨schema⟩ {no_such_file(data.schema)}"
    elif data.schema is not None:
        yield from _raised(Schema.from_toml, data.schema)
        target = None if data.target == DataSection.target else data.target
        for flag, key, value in (
            ("⟨target⟩", "label", target),
            ("⟨client-column⟩", "client", data.client_column),
            ("⟨patient-column⟩", "patient", data.patient_column),
        ):
            if value is not None:
                yield f'{flag} {value} means nothing with ⟨schema⟩: write {key} = "{value}" in {data.schema}'
    yield from _column_problems(data)
    public = data.public_dataset
    if public is not None and public == data.dataset:
        yield (
            f"⟨public-dataset⟩ {public} is what the clients hold, so it is not public: name another one, or set some of"
            " its records aside with ⟨public-records⟩"
        )
    elif public is not None and public not in (*SOURCES, DEAD_LEAVES) and not Path(public).is_file():
        if looks_like_a_path(public):
            yield f"⟨public-dataset⟩ {no_such_file(public)}"
        else:
            yield unknown("public data set", public, [*SOURCES, DEAD_LEAVES]) + ", or a file with records"


def _column_problems(data: DataSection) -> Iterator[str]:
    """Columns of a single table that options name and its header does not have."""
    path = Path(data.dataset)
    if data.schema is not None or data.dataset in SOURCES or not path.is_file():
        return
    try:
        names = column_names(path)
    except DataError:  # no table, or a damaged one: its reader says what is wrong
        return
    for flag, name in (
        ("⟨target⟩", data.target),
        ("⟨client-column⟩", data.client_column),
        ("⟨patient-column⟩", data.patient_column),
        ("⟨text-column⟩", data.text_column),
    ):
        if name is not None and name not in names:
            near = None if name == DataSection.target else nearest(name, names)
            hint = f"did you mean {named(near)}?" if near else f"name the right one with {flag}"
            yield f"{one_line(path)}: no column {named(name)} ({hint}); its columns: {listed(names)}"


def _missing_public_data(config: RunConfig, scheme: Scheme) -> Iterator[str]:
    """Public records that the scheme, its clip norm or the front end cannot do without."""
    if config.data.public_dataset is not None or config.data.public_records is not None:
        return
    if scheme.codec.needs_public:
        yield (
            f"{scheme.name} chooses its weights with public data: give ⟨public-dataset⟩ NAME,"
            " or ⟨public-records⟩ N to set some training records aside"
        )
    if config.scheme.options.get("clip_norm") == "public":
        yield "⟨clip-norm⟩ public needs ⟨public-dataset⟩ NAME (mnist for fashion-mnist, say) or ⟨public-records⟩ N"
    if learns_patches(config.front_end.name):
        yield PATCHES_NEED
    elif config.front_end.projection == "public":
        yield (
            "⟨front-end-projection⟩ public needs public images: give ⟨public-dataset⟩ NAME, or ⟨public-records⟩ N to"
            " set some training records aside"
        )


def _vote_problems(config: RunConfig, scheme: Scheme) -> Iterator[str]:
    """What does not go together with votes, and what means nothing without them."""
    given, share = config.scheme.options, config.privacy.vote_share
    if not isinstance(scheme.codec, VotedSubset):
        if share is not None:
            yield (
                f"⟨vote-share⟩ {share:g} means nothing for {scheme.name} as it is: only fl-top-dp and fl-top-bis-dp"
                " with ⟨top-selection⟩ votes have votes"
            )
        return
    yield from _raised(check_votes, scheme, config.run.rounds)
    if share is not None and scheme.private and config.privacy.epsilon is None:
        yield f"⟨vote-share⟩ {share:g} is a share of ⟨epsilon⟩: give that, or ⟨vote-noise-multiplier⟩"
    if "init_steps" in given:
        yield "⟨init-steps⟩ means nothing with ⟨top-selection⟩ votes: leave it out"
    if isinstance(given.get("clip_norm"), str):
        yield (
            f"⟨clip-norm⟩ {given['clip_norm']} measures the kept weights, and which they are is known after the votes:"
            " give a number"
        )
    data = config.data
    front_end = config.front_end
    looks = looks_at_public(front_end.name or "", front_end.projection, front_end.bandwidth)
    if not looks and (data.public_dataset or data.public_records):
        flag = "⟨public-records⟩" if data.public_dataset is None else "⟨public-dataset⟩"
        yield f"⟨top-selection⟩ votes needs no public data: leave out {flag}, or use ⟨top-selection⟩ public"


def _evaluation_problems(config: RunConfig, scheme: Scheme) -> Iterator[str]:
    """Evaluations that cannot be, and their options where there are none."""
    given = config.evaluation
    if not given.every:
        wrong = [one for one in declared_in(EvaluationSection, "evaluation") if getattr(given, one.name) != one.default]
        if wrong:
            flags = ", ".join(one.flag for one in wrong)
            yield f"only evaluations use {flags}: add ⟨evaluate-every⟩ (10, say), or leave out {flags}"
        return
    if given.share is not None and config.privacy.epsilon is None and scheme.private:
        yield f"⟨evaluation-share⟩ {given.share:g} is a share of ⟨epsilon⟩: give that, or ⟨evaluation-noise-multiplier⟩"
    if given.share is not None and not scheme.private:
        yield f"{scheme.name} adds no noise, so ⟨evaluation-share⟩ means nothing: use a scheme in -dp"
    problems = list(_raised(with_evaluations, scheme, given))
    yield from problems
    if problems:
        return
    draft, attacked = with_evaluations(scheme, given), config.attack.kind is not None
    yield from _raised(lambda: check_evaluations(draft, config.run.rounds, attacked=attacked))
    if not given.held_out:
        yield "⟨evaluate-held-out⟩ 0 leaves nothing to measure on: give a fraction such as 0.2"


def _unit_problems(config: RunConfig, entry: SchemeEntry) -> Iterator[str]:
    """What units inside clients need, and what does not go with them."""
    unit, given = config.scheme.options.get("unit"), config.scheme.options
    if unit not in UNITS or unit == CLIENT or "unit" not in entry.options:
        return
    if given.get("num_units") is None:
        yield NUM_UNITS_NEEDED.format(unit=unit)
    if unit == "patient" and config.data.schema is None and config.data.patient_column is None:
        path = config.data.dataset
        if path not in SOURCES and Path(path).exists():
            yield (
                "⟨unit⟩ patient: say which column names the person (⟨patient-column⟩, or patient in a ⟨schema⟩); or use"
                " ⟨unit⟩ record if every record is another person's"
            )


def _idle_options(config: RunConfig, entry: SchemeEntry) -> Iterator[str]:
    """An option that would do nothing is a misunderstanding, and with privacy a dangerous one."""
    privacy, sampler, secagg = config.privacy, config.sampler, config.secagg
    if entry.record_level and (sampler.max_dropouts or sampler.max_colluders):
        yield (
            f"{config.scheme.name}: every client adds the whole noise of its records itself, and any may drop out or"
            " collude: leave out ⟨max-dropouts⟩ and ⟨max-colluders⟩"
        )
    if entry.private:
        return
    given = {
        "⟨epsilon⟩": privacy.epsilon is not None,
        "⟨participant-epsilon⟩": privacy.participant_epsilon is not None,
        "⟨delta⟩": privacy.delta is not None,
        "⟨allow-large-delta⟩": privacy.allow_large_delta,
        "⟨accountant⟩": privacy.accountant is not None,
        "⟨vote-share⟩": privacy.vote_share is not None,
        "⟨max-participations⟩": sampler.max_participations is not None,
        "⟨max-dropouts⟩": sampler.max_dropouts > 0,
        "⟨max-colluders⟩": sampler.max_colluders > 0,
        "⟨secagg⟩ masked": secagg.secagg != "simulated",
        "⟨noise-draws⟩": secagg.noise_draws != "auto",
        "⟨consistency⟩ signed": secagg.consistency != "plain",
        "⟨dropout-rate⟩": secagg.dropout_rate > 0,
    }
    for flag in (flag for flag, idle in given.items() if idle):
        yield f"{config.scheme.name} adds no noise, so {flag} means nothing: use a scheme in -dp"
