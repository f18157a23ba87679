"""A small federation to audit, and code of the real mechanism that is wrong in one place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scheme_tools
from torch import Tensor

import laconic
from conftest import make_population
from laconic.audit.audit import audit_experiment
from laconic.audit.result import AuditResult
from laconic.experiment.experiment import Experiment
from laconic.privacy.accounting.sampling import Poisson
from laconic.privacy.mechanism import discrete_gaussian
from laconic.privacy.mechanism.clip import L2Clip


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


def too_little_noise(patch: pytest.MonkeyPatch) -> None:
    """Every share of the noise is a tenth too small."""
    draw = discrete_gaussian.draw_discrete_gaussian

    def smaller(mean: Tensor, scale: float, *rest: Any, **named: Any) -> Tensor:
        return draw(mean, 0.9 * scale, *rest, **named)

    patch.setattr(discrete_gaussian, "draw_discrete_gaussian", smaller)


def everybody(patch: pytest.MonkeyPatch) -> None:
    """All clients take part in every round, whatever the rate."""
    _drawn(patch, lambda clients, rate, rng: np.arange(clients))


def always_the_same(patch: pytest.MonkeyPatch) -> None:
    """The same clients take part in every round."""
    _drawn(patch, lambda clients, rate, rng: np.flatnonzero(np.random.default_rng(1).random(clients) < rate))


def of_fixed_size(patch: pytest.MonkeyPatch) -> None:
    """Cohorts have the expected size in the place of a binomial one."""
    _drawn(patch, lambda clients, rate, rng: np.sort(rng.permutation(clients)[: round(rate * clients)]))


def in_turn(patch: pytest.MonkeyPatch) -> None:
    """Clients come in turn: everybody takes part equally often."""
    calls = iter(range(10**9))

    def next_part(clients: int, rate: float, rng: np.random.Generator) -> np.ndarray:
        size = round(rate * clients)
        return np.sort((np.arange(size) + size * next(calls)) % clients)

    _drawn(patch, next_part)


def no_clip(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(L2Clip, "__call__", lambda self, code: code)


def same_noise(patch: pytest.MonkeyPatch) -> None:
    """A client draws the same noise in every round."""
    from laconic.clients import work
    from laconic.streams import Streams

    patch.setattr(work, "noise_stream", lambda streams, plan, client: Streams(5).stream("noise", client))


Draw = Callable[[int, float, np.random.Generator], np.ndarray]


def _drawn(patch: pytest.MonkeyPatch, draw: Draw) -> None:
    patch.setattr(Poisson, "draw", lambda self, clients, rng: draw(clients, self.sampling_rate, rng))
