"""An audit: the run itself with canaries, many short runs, and the checks; each with its part of the error."""

from __future__ import annotations

import time
from collections.abc import Callable

from laconic.audit import checks, runs
from laconic.audit.result import TESTS, AuditResult, Bound, Check
from laconic.audit.setups import check_auditable
from laconic.errors import ConfigError, option_named
from laconic.experiment.experiment import Experiment
from laconic.parts import below_one, non_negative_int, one_of, positive

AGAINST = ("server", "outsider", "both")

Tick = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""


def audit_experiment(
    experiment: Experiment,
    *,
    canaries: int = 1000,
    trials: int = 20_000,
    confidence: float = 0.99,
    against: str = "both",
    tick: Tick = lambda what, done, of: None,
) -> AuditResult:
    """Lower bounds on the ε of an experiment beside its claims, and checks of its mechanism.

    Args:
        experiment: the run that is audited.
        canaries: how many are put into one run of the experiment itself; 0 leaves that run out.
        trials: how many canaries short runs with its mechanism have; 0 leaves them out.
        confidence: the probability that all bounds and checks are right together: those of one run for any mechanism,
            those of many runs if the trials are independent.
        against: 'server', 'outsider' or 'both': who looks for the canaries.
        tick: is told what goes on, how much of it is done, and out of how much.
    """
    check_options(canaries=canaries, trials=trials, confidence=confidence, against=against)
    check_auditable(experiment)
    assert experiment.budget is not None
    started, delta, error = time.monotonic(), experiment.budget.delta, (1 - confidence) / TESTS
    server, outsider = against != "outsider", against != "server"
    bounds: list[Bound] = []
    found: list[Check] = []
    if canaries:
        whole = runs.watch_whole_run(experiment, canaries, lambda row: tick("one run", row["round"], experiment.rounds))
        bounds += runs.server_bounds_of_whole(whole, delta, error) if server else []
        bounds += runs.outsider_bounds_of_whole(whole, delta, error) if outsider else []
    if trials:
        many = runs.watch_many_runs(experiment, trials, lambda done, of: tick("short runs", done, of))
        bounds += runs.server_bounds_of_many(many, delta, error) if server else []
        bounds += runs.outsider_bounds_of_many(many, delta, error) if outsider else []
        found += checks.noise_checks(many, error, server=server, outsider=outsider)
        found.append(checks.clip_check(many, error))
        found += checks.sampler_checks(many.experiment, many.seen, error)
    else:
        found += checks.sampler_checks(whole.experiment, [whole.seen], error)
    assert len(bounds) + len(found) <= TESTS
    return AuditResult(
        scheme=experiment.scheme.name,
        delta=delta,
        confidence=confidence,
        settings={
            "canaries": canaries,
            "trials": trials,
            "against": against,
            "seed": experiment.seed,
            "rounds": experiment.rounds,
            "num_clients": experiment.population.num_clients,
            "sampler": experiment.sampler.to_dict(),
            "noise_multiplier": experiment.scheme.noise_multiplier,
            "clip": experiment.scheme.clip.to_dict(),
        },
        bounds=bounds,
        checks=found,
        seconds=time.monotonic() - started,
    )


def check_options(*, canaries: int, trials: int, confidence: float, against: str) -> None:
    """Refuse what can show nothing."""
    non_negative_int(canaries=canaries, trials=trials)
    positive(confidence=confidence)
    below_one(confidence=confidence)
    one_of(AGAINST, against=against)
    if not canaries and not trials:
        raise ConfigError("with ⟨canaries⟩ 0 and ⟨trials⟩ 0 there is nothing to look at: give one of them")
    for name, value, least in (("canaries", canaries, 100), ("trials", trials, 1000)):
        if 0 < value < least:
            raise ConfigError(
                f"{option_named(name)} {value} can show nothing: give {least} or more, or 0 to leave them out"
            )
