"""A small federation to audit."""

from __future__ import annotations

from typing import Any

import scheme_tools

import laconic
from conftest import make_population
from laconic.audit.audit import audit_experiment
from laconic.audit.result import AuditResult
from laconic.experiment.experiment import Experiment


def experiment(name: str = "fl-top-dp", *, sigma: float = 1.0, rate: float = 1.0, **options: Any) -> Experiment:
    """Forty clients, all of them in one round, unless the options say otherwise."""
    defaults: dict[str, Any] = {
        "model": scheme_tools.model(),
        "population": make_population(scheme_tools.SIZES),
        "sampler": laconic.Poisson(sampling_rate=rate),
        "rounds": 1,
        "budget": laconic.Budget(delta=1e-5),
        "public": make_population([30]).records(0),
        "workers": 1,
    }
    return Experiment(scheme=scheme_tools.scheme(name, noise_multiplier=sigma), **(defaults | options))


def audited(one: Experiment, *, canaries: int = 0, trials: int = 2000, **options: Any) -> AuditResult:
    return audit_experiment(one, canaries=canaries, trials=trials, **options)


def off(result: AuditResult) -> set[str]:
    """The names of the checks that failed, and "bound" if a lower bound exceeds its claim."""
    found = {check.name for check in result.checks if check.verdict == "VIOLATED"}
    return found | {"bound" for bound in result.bounds if bound.verdict == "VIOLATED"}
