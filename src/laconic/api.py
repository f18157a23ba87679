"""The Python API: train on the user's own module and data in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from laconic.audit.audit import Tick, audit_experiment
from laconic.audit.result import AuditResult
from laconic.data.population import (
    PooledPopulation,
    Population,
    Records,
    as_population,
    as_records,
    pooled_records,
)
from laconic.errors import ConfigError, RunFolderError, unknown
from laconic.experiment.cautions import log_cautions
from laconic.experiment.experiment import Experiment
from laconic.features.front_end import ScatteringFrontEnd, describe
from laconic.privacy.accounting.budget import Budget
from laconic.privacy.accounting.sampling import FixedSize, Poisson, Sampler
from laconic.runner.in_folder import run_in
from laconic.runner.outcome import RunResult
from laconic.runner.run import Run
from laconic.scheme import Scheme
from laconic.settings.config import write_toml
from laconic.settings.front_end import FRONT_ENDS
from laconic.store.folder import RunFolder


def run(
    scheme: Scheme,
    *,
    model: nn.Module,
    clients: Population | Sequence[Any],
    test: Records | tuple[Any, Any] | None = None,
    holdout: Records | tuple[Any, Any] | None = None,
    public: Records | tuple[Any, Any] | None = None,
    front_end: nn.Module | str | None = None,
    sampler: Sampler | None = None,
    sampling_rate: float | None = None,
    rounds: int,
    delta: float | None = None,
    epsilon: float | None = None,
    participant_epsilon: float | None = None,
    max_participations: int | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    observer: Callable[[dict[str, Any]], None] = lambda row: None,
    **options: Any,
) -> RunResult:
    """Simulate a federation and return the model with its history, privacy statement and ledger.

    `clients` is a `Population`, or a sequence with one (inputs, targets) pair or Dataset per client; `public` records
    belong to none of them (FL-TOP chooses its weights with them). With a `front_end`, a fixed public module or
    "scattering", `model` is a head that is trained on what it makes of the records, and the result's model is both.
    Give a `sampler` or a `sampling_rate` (Poisson). A private scheme needs `delta`; `epsilon` and
    `participant_epsilon` are budgets that stop the run before the round that would exceed them. With `out` the run is
    kept in that folder and can be resumed by the same call with `resume=True`. A `delta`
    of one over the number of clients (or records) or more is refused without `allow_large_delta=True`. `options` are
    the further fields of `Experiment` (seed, device, engine, eval_every, patience, …).
    """
    experiment = _experiment(
        scheme,
        model=model,
        clients=clients,
        test=test,
        holdout=holdout,
        public=public,
        front_end=front_end,
        sampler=sampler,
        sampling_rate=sampling_rate,
        rounds=rounds,
        delta=delta,
        epsilon=epsilon,
        participant_epsilon=participant_epsilon,
        max_participations=max_participations,
        **options,
    )
    log_cautions(experiment)
    if out is None:
        return Run(experiment, observer=observer).run()
    folder = RunFolder(out)
    if folder.exists and not resume:
        raise RunFolderError(f"{out} holds a run already: pass resume=True to go on with it, or choose another out")
    with run_in(folder, Run(experiment, observer=observer), {"config.toml": _about(experiment)}) as simulation:
        return simulation.run()


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
    """
    experiment = _experiment(scheme, **run)
    return audit_experiment(
        experiment, canaries=canaries, trials=trials, confidence=confidence, against=against, tick=tick
    )


def _experiment(
    scheme: Scheme,
    *,
    model: nn.Module,
    clients: Population | Sequence[Any],
    test: Records | tuple[Any, Any] | None = None,
    holdout: Records | tuple[Any, Any] | None = None,
    public: Records | tuple[Any, Any] | None = None,
    front_end: nn.Module | str | None = None,
    sampler: Sampler | None = None,
    sampling_rate: float | None = None,
    rounds: int,
    delta: float | None = None,
    epsilon: float | None = None,
    participant_epsilon: float | None = None,
    max_participations: int | None = None,
    **options: Any,
) -> Experiment:
    """The experiment that the arguments of `run` describe."""
    population = as_population(clients)
    if scheme.pooled:
        everything = pooled_records(population)
        population = PooledPopulation(everything, np.arange(len(everything.targets))[None])
        sampler, sampling_rate = FixedSize(cohort_size=1), None
    if (sampler is None) == (sampling_rate is None):
        raise TypeError("give either sampler or sampling_rate")
    chosen = sampler if sampler is not None else Poisson(sampling_rate=sampling_rate or 0.0)
    if not scheme.private and (epsilon, participant_epsilon, max_participations) != (None, None, None):
        raise ConfigError(f"{scheme.name} adds no noise, so it cannot keep a budget: use its private version")
    budget = None
    if delta is not None:
        budget = Budget(
            delta=delta,
            epsilon=epsilon,
            participant_epsilon=participant_epsilon,
            max_participations=max_participations,
        )
    return Experiment(
        scheme=scheme,
        model=model,
        front_end=_front_end(front_end, population),
        population=population,
        sampler=chosen,
        rounds=rounds,
        budget=budget,
        test=None if test is None else as_records(test, "test"),
        holdout=None if holdout is None else as_records(holdout, "holdout"),
        public=None if public is None else as_records(public, "public"),
        **options,
    )


def _front_end(front_end: nn.Module | str | None, population: Population) -> nn.Module | None:
    if not isinstance(front_end, str):
        return front_end
    if front_end not in FRONT_ENDS:
        raise ConfigError(unknown("front end", front_end, FRONT_ENDS))
    return ScatteringFrontEnd(tuple(population.records(0).inputs.shape[1:]))


def _about(experiment: Experiment) -> str:
    """A run from Python has no re-runnable configuration (its objects have no names); this says what it was."""
    scheme = experiment.scheme.to_dict()
    sections = {f"scheme.{k}": v for k, v in scheme.items() if isinstance(v, dict)}
    plain = {"name": experiment.scheme.name, "fingerprint": experiment.scheme.fingerprint}
    run = {"rounds": experiment.rounds, "seed": experiment.seed, "model": type(experiment.model).__name__}
    if experiment.front_end is not None:
        run["front_end"] = describe(experiment.front_end)
    kept = {name: {k: v for k, v in values.items() if v is not None} for name, values in sections.items()}
    header = "# Made by the Python API: resume it by the same call with resume=True.\n"
    return header + write_toml({"run": run, "scheme": plain, **kept, "sampler": experiment.sampler.to_dict()})
