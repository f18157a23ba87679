"""The Python API: train on the user's own module and data in one call."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor, nn

from laconic.data.population import (
    PooledPopulation,
    Population,
    Records,
    as_population,
    as_records,
    pooled_records,
)
from laconic.errors import ConfigError, RunFolderError, UnknownArgument, several, unknown, worded
from laconic.experiment.calibrated import Calibration, calibrated
from laconic.experiment.experiment import Experiment
from laconic.experiment.mechanism import log_cautions
from laconic.features.base import describe
from laconic.observers.observer import Observer, Row, Together
from laconic.observers.progress import progress_bar
from laconic.privacy.accounting.budget import Budget
from laconic.privacy.accounting.sampling import FixedSize, Poisson, Sampler
from laconic.runner.outcome import RunResult
from laconic.runner.run import Run, run_in
from laconic.scheme import Scheme
from laconic.store.folder import RunFolder
from laconic.train.flat import trainable_size

if TYPE_CHECKING:
    from laconic.audit.audit import Tick
    from laconic.audit.result import AuditResult


_log = logging.getLogger(__name__)


def run(
    scheme: Scheme | str,
    *,
    model: nn.Module | None = None,
    clients: Population | Sequence[Any] | None = None,
    test: Records | tuple[Any, Any] | None = None,
    holdout: Records | tuple[Any, Any] | None = None,
    public: Records | tuple[Any, Any] | None = None,
    front_end: nn.Module | str | None = None,
    sampler: Sampler | None = None,
    sampling_rate: float | None = None,
    rounds: int | None = None,
    delta: float | None = None,
    epsilon: float | None = None,
    participant_epsilon: float | None = None,
    max_participations: int | None = None,
    accountant: str | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    observer: Observer | Callable[[Row], None] = lambda row: None,
    progress: bool | None = None,
    track: str | None = None,
    **options: Any,
) -> RunResult:
    """Simulate a federation and return the model with its history, privacy statement and ledger.

    `clients` is a `Population`, or a sequence with one (inputs, targets) pair or Dataset per client; `public` records
    belong to none of them (FL-TOP chooses its weights with them). With a `front_end`, a fixed public module or
    "scattering", `model` is a head that is trained on what it makes of the records, and the result's model is both.
    Give a `sampler` or a `sampling_rate` (Poisson).

    A private scheme needs `delta`. If the scheme leaves its noise multiplier open, it is the smallest with which all
    rounds stay within `epsilon`. `epsilon` and `participant_epsilon` are budgets, too: the run stops before the round
    that would exceed them. `accountant` is the method by which ε is counted ('pld', 'rdp' or 'moments'); the tightest
    one unless given. A `delta` of one over the number of clients (or records) or more is refused without
    `allow_large_delta=True`.

    `laconic.run("auto", dataset="stays.csv", target="died", epsilon=1)` does what `laconic run auto` does: it reads a
    table and chooses everything else. It takes options of the command line by their names in Python.

    With `out` the run is kept in that folder and can be resumed by the same call with `resume=True`. The `observer` is
    an `Observer` or a function that is called with every row. `progress` shows a bar on a terminal and in a notebook;
    `False` never does, `True` also prints lines elsewhere. `track` follows the run in 'tensorboard', 'mlflow' or
    'wandb'; only what is released is handed over. `options` are the further fields of `Experiment` (seed,
    device, engine, eval_every, patience, …).

    Args:
        scheme: what clients send and what the server does: one of `laconic.schemes`; or 'auto'.
        model: any module of float32 weights; it is not changed.
        clients: who holds which records.
        test: records that are looked at every `eval_every` rounds.
        holdout: records that decide early stopping, with `patience`.
        public: records that belong to no client.
        front_end: a fixed public module in front of the model, 'scattering', or a module as 'package:factory'.
        sampler: who takes part in a round.
        sampling_rate: short for `sampler=laconic.Poisson(sampling_rate=…)`.
        rounds: how many.
        delta: δ of the promise; below one over the number of clients.
        epsilon: limit of the outsider's ε, and what an open σ is calibrated to.
        participant_epsilon: limit of the server's ε.
        max_participations: rounds that one client takes part in at most.
        accountant: 'pld', 'rdp' or 'moments'.
        out: the run folder.
        resume: go on with the run in `out`.
        observer: is told of every round.
        progress: whether a bar is shown.
        track: 'tensorboard', 'mlflow' or 'wandb', to follow the run there.
        **options: further fields of `Experiment`.

    Returns:
        The model, a row per round, the privacy statement and the ledger of bytes.

    Raises:
        LaconicError: for what the caller can mend; the message names the argument.

    Examples:
        >>> import torch
        >>> import laconic
        >>> inputs = torch.randn(400, 8, generator=torch.Generator().manual_seed(0))
        >>> targets = (inputs.sum(1) > 0).long()
        >>> clients = list(zip(inputs.split(4), targets.split(4)))
        >>> scheme = laconic.schemes.fl_std_dp(clip_norm=0.5, local_lr=0.5, local_steps=5)
        >>> result = laconic.run(scheme, model=torch.nn.Linear(8, 2), clients=clients, sampling_rate=1.0, rounds=3,
        ...                      epsilon=8, delta=1e-3)
        >>> round(result.last["epsilon"], 1), result.ledger["bytes_up"] > 0
        (8.0, True)
    """
    asked = locals()
    if isinstance(scheme, str):
        experiment, files = _chosen(scheme, asked)
    else:
        if missing := [name for name in ("model", "clients", "rounds") if asked[name] is None]:
            raise TypeError(f"missing: {', '.join(missing)}")
        experiment, files = _experiment(asked), None
    log_cautions(experiment)
    watching = Together(progress_bar(progress), observer, Observer() if track is None else _tracker(track))
    if out is None:
        return Run(experiment, observer=watching).run()
    folder = RunFolder(out)
    if folder.exists and not resume:
        raise RunFolderError(f"{out} holds a run already: pass resume=True to go on with it, or choose another out")
    with run_in(folder, Run(experiment, observer=watching), files or _files(experiment)) as simulation:
        return simulation.run()


_OF_AUTO = ("rounds", "delta", "epsilon", "sampling_rate")
"""Arguments of `run` that are options of a configuration, too."""


def _chosen(name: str, asked: dict[str, Any]) -> tuple[Experiment, dict[str, str]]:
    """What `auto` makes of a table, and the files of its run folder."""
    from laconic.settings.build import files_of, resumed_config, settle
    from laconic.settings.config import AUTO, RunConfig, full_path

    if name != AUTO:
        raise ConfigError(
            f"the first argument must be a scheme, such as laconic.schemes.fl_std(…), or 'auto', not '{name}'"
        )
    idle = [one for one in ("model", "clients", "test", "holdout", "public", "sampler") if asked[one] is not None]
    if idle:
        raise ConfigError(f"auto reads a table: give dataset, and leave out {', '.join(idle)}")
    values = {one: asked[one] for one in _OF_AUTO if asked[one] is not None} | asked["options"]
    said = {"scheme.name": AUTO} | {full_path(key): value for key, value in values.items()}
    config = RunConfig().with_values(said)
    folder = None if asked["out"] is None else RunFolder(asked["out"])
    if folder is not None and folder.exists and asked["resume"]:
        config = resumed_config(folder, said)
    settled = settle(config, stored=None if folder is None else folder.path)
    for line in settled.chosen:
        _log.info("auto: %s", worded(line))
    return settled.experiment, files_of(settled)


def audit_run(
    scheme: Scheme,
    *,
    canaries: int = 1000,
    trials: int = 20_000,
    confidence: float = 0.99,
    against: str = "both",
    tick: Tick = lambda what, done, of: None,
    **run: Any,
) -> AuditResult:
    """Lower bounds on the ε of a run beside its claims, and checks of noise, clip and sampler.

    `run` are the arguments of `laconic.run`, without a folder; the run's own budget does not end it. See
    `laconic.audit.audit.audit_experiment` for the others.

    Args:
        scheme: a private scheme at client level.
        canaries: clients of the auditor's own in one run of the experiment; 0 leaves that part out.
        trials: canaries in many short runs; 0 leaves that part out.
        confidence: with which all bounds and checks are right together.
        against: 'server', 'outsider' or 'both'.
        tick: called with what is done, how much of it, and of how much.
        **run: the arguments of `laconic.run`.

    Returns:
        Bounds and checks, each with a verdict.

    Examples:
        >>> import torch
        >>> import laconic
        >>> clients = [(torch.randn(4, 8), torch.randint(0, 2, (4,))) for _ in range(50)]
        >>> scheme = laconic.schemes.fl_std_dp(clip_norm=0.5, noise_multiplier=2.0, local_lr=0.5, local_steps=2)
        >>> audit = laconic.audit_run(scheme, model=torch.nn.Linear(8, 2), clients=clients, sampling_rate=0.5, rounds=1,
        ...                           delta=1e-3, canaries=0, trials=1000)
        >>> audit.violated
        False

    References:
        docs/audit.md; Steinke, Nasr and Jagielski (NeurIPS 2023) for one run; Nasr et al. (USENIX Security 2023).
    """
    experiment = _experiment(_bound(scheme, run), audit_run)
    from laconic.audit.audit import audit_experiment

    return audit_experiment(
        experiment, canaries=canaries, trials=trials, confidence=confidence, against=against, tick=tick
    )


def _bound(scheme: Scheme, given: dict[str, Any]) -> dict[str, Any]:
    """Every argument of `run` by its name, as it would have it."""
    described = inspect.signature(run).bind(scheme, **given)
    described.apply_defaults()
    return described.arguments


def _tracker(name: str) -> Observer:
    from laconic.observers.tracker import tracker

    return tracker(name)


def _experiment(asked: dict[str, Any], *functions: Callable[..., Any]) -> Experiment:
    """The experiment that the arguments of `run` describe; `functions` take some more."""
    _check_names(asked["options"], run, *functions)
    population, scheme, sampler = as_population(asked["clients"]), asked["scheme"], asked["sampler"]
    if not isinstance(scheme, Scheme):
        raise ConfigError(
            f"the first argument must be a scheme, such as laconic.schemes.fl_std(…), not a {type(scheme).__name__}"
        )
    if scheme.pooled:
        everything = pooled_records(population)
        population = PooledPopulation(everything, np.arange(len(everything.targets))[None])
        sampler = FixedSize(cohort_size=1)
    elif (sampler is None) == (asked["sampling_rate"] is None):
        raise TypeError("give either sampler or sampling_rate")
    elif sampler is None:
        sampler = Poisson(sampling_rate=asked["sampling_rate"])
    budget = _budget(scheme, asked)
    others: dict[str, Any] = {
        name: None if asked[name] is None else as_records(asked[name], name) for name in ("test", "holdout", "public")
    }
    draft = Experiment(
        scheme=scheme.with_noise_multiplier(1.0) if scheme.open else scheme,
        model=asked["model"],
        front_end=_front_end(asked["front_end"], population),
        population=population,
        sampler=sampler,
        rounds=asked["rounds"],
        budget=budget,
        **others,
        **asked["options"],
    )
    if not scheme.open:
        return draft
    assert budget is not None  # a private scheme has one, or the draft is refused
    if budget.epsilon is None:
        raise ConfigError(
            f"{scheme.name} needs a noise multiplier: give the scheme noise_multiplier, or laconic.run an epsilon to"
            " calibrate it to"
        )
    return replace(draft, scheme=calibrated(scheme, _calibration(draft, budget)))


def _calibration(draft: Experiment, budget: Budget) -> Calibration:
    return Calibration(
        sampler=draft.sampler,
        num_clients=draft.population.num_clients,
        rounds=draft.rounds,
        size=trainable_size(draft.model),
        budget=budget,
        slack=draft.max_dropouts + draft.max_colluders,
        group_testing=draft.group_testing,
        loses_by_cohort=draft.mechanism.loses_by_cohort,
    )


def _budget(scheme: Scheme, asked: dict[str, Any]) -> Budget | None:
    limits = {name: asked[name] for name in ("epsilon", "participant_epsilon", "max_participations", "accountant")}
    if not scheme.private and any(value is not None for value in limits.values()):
        raise ConfigError(f"{scheme.name} adds no noise, so it cannot keep a budget: use its private version")
    return None if asked["delta"] is None else Budget(delta=asked["delta"], **limits)


def _check_names(options: dict[str, Any], *functions: Callable[..., Any]) -> None:
    """Refuse arguments that neither these functions nor an experiment take, with the nearest name that they do."""
    settled = {"budget", "population"}  # made from `run`'s own arguments
    taken = {field.name for field in fields(Experiment)} - settled
    for function in functions:
        taken |= {p.name for p in inspect.signature(function).parameters.values() if p.kind is not p.VAR_KEYWORD}
    strange = [unknown("argument", name, taken) for name in options if name not in taken]
    if strange:
        raise UnknownArgument(several(strange))


def _front_end(front_end: nn.Module | str | None, population: Population) -> nn.Module | None:
    if not isinstance(front_end, str):
        return front_end
    from laconic.features.kinds import Wanted

    inputs = population.records(0).inputs
    words = isinstance(inputs, Tensor) and not inputs.is_floating_point() and inputs.ndim != 4
    return Wanted(name=front_end, words=words).made(tuple(inputs.shape[1:]))


def _files(experiment: Experiment) -> dict[str, str]:
    """What the folder of a run from Python says of it: what it was, and what a record looks like."""
    from laconic.settings.data.record_kind import FILE, kind_of_population

    return {"config.toml": _about(experiment), FILE: kind_of_population(experiment.population).to_toml()}


def _about(experiment: Experiment) -> str:
    """A run from Python has no re-runnable configuration (its objects have no names); this says what it was."""
    from laconic.settings.config import write_toml

    scheme = experiment.scheme.to_dict()
    sections = {f"scheme.{k}": v for k, v in scheme.items() if isinstance(v, dict)}
    plain = {"name": experiment.scheme.name, "fingerprint": experiment.scheme.fingerprint}
    run = {"rounds": experiment.rounds, "seed": experiment.seed, "model": type(experiment.model).__name__}
    if experiment.front_end is not None:
        run["front_end"] = describe(experiment.front_end)
    kept = {name: {k: v for k, v in values.items() if v is not None} for name, values in sections.items()}
    header = "# Made by the Python API: resume it by the same call with resume=True.\n"
    return header + write_toml({"run": run, "scheme": plain, **kept, "sampler": experiment.sampler.to_dict()})
