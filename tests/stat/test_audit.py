"""Audits of the real code: what is right is consistent, and what is wrong in one place is found.

The audits have a confidence of 99.9 % here: each is wrong about the honest code with a probability of 1e-3 at most.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import audit_tools
import pytest
from audit_tools import audited, experiment, off
from torch import nn

import laconic
from laconic.experiment.experiment import Experiment

pytestmark = pytest.mark.stat
SURE = 0.999
SCHEMES = ("fl-std-dp", "fl-sign-dp", "fl-cs-dp", "fl-top-dp")

Sabotage = Callable[[pytest.MonkeyPatch], None]

SAMPLED: dict[str, Any] = {"rate": 0.35, "rounds": 3, "sigma": 2.0}
CAUGHT: list[tuple[Sabotage, dict[str, Any], int, set[str]]] = [
    (audit_tools.too_little_noise, {"rounds": 3, "sigma": 0.5}, 2500, {"bound", "noise, server", "noise, outsider"}),
    (audit_tools.everybody, SAMPLED | {"rounds": 6}, 2000, {"bound", "sampling rate", "cohort sizes"}),
    (audit_tools.always_the_same, SAMPLED, 1000, {"sampling, spread"}),
    (audit_tools.of_fixed_size, SAMPLED, 1000, {"cohort sizes"}),
    (audit_tools.in_turn, SAMPLED, 1000, {"sampling, spread", "cohort sizes"}),
    (audit_tools.no_clip, {}, 1000, {"bound", "clip"}),
    (audit_tools.same_noise, {"rounds": 2}, 1000, {"noise, next release"}),
]


@pytest.mark.parametrize("name", SCHEMES)
def test_the_honest_code_is_consistent(name: str) -> None:
    result = audited(experiment(name, **SAMPLED), canaries=100, trials=1000, confidence=SURE)
    assert result.verdict == "consistent", result.violations
    assert len(result.bounds) == 8 and len(result.checks) == 7


@pytest.mark.parametrize(
    ("sabotage", "options", "trials", "expected"), CAUGHT, ids=lambda x: getattr(x, "__name__", "")
)
def test_what_is_wrong_is_found_and_named(
    sabotage: Sabotage, options: dict[str, Any], trials: int, expected: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sabotage(monkeypatch)
    result = audited(experiment("fl-std-dp", **options), trials=trials, confidence=SURE)
    assert result.verdict == "VIOLATED"
    assert expected <= off(result), (off(result), result.violations)


def test_a_forgotten_clip_shows_in_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also without short runs: nearly all guesses are right, so ε is larger than what is claimed."""
    audit_tools.no_clip(monkeypatch)
    wide = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 3))
    result = audited(experiment("fl-std-dp", sigma=30.0, rounds=2, model=wide), canaries=100, trials=0)
    assert {bound.how for bound in result.bounds if bound.verdict == "VIOLATED"} >= {"one run", "one run, GDP"}


def test_bounds_come_near_the_claim() -> None:
    """Else the audit would notice nothing: a Gaussian's μ is known to some per cent."""
    result = audited(experiment("fl-std-dp", rounds=3), trials=1500)
    claimed = {bound.how: (bound.lower, bound.claimed) for bound in result.bounds if bound.about == "1 round"}
    lower, claim = claimed["short runs, GDP"]
    assert 0.8 * claim < lower <= claim


@pytest.mark.slow
@pytest.mark.parametrize("name", SCHEMES)
def test_the_honest_code_is_consistent_over_many_seeds(name: str) -> None:
    """Ten seeds of 1,000 canaries and 20,000 trials: at 99.9 % the odds of any false alarm are 1 in 100."""
    for seed in range(10):
        result = audited(experiment(name, **SAMPLED, seed=seed), canaries=1000, trials=20_000, confidence=SURE)
        assert result.verdict == "consistent", (seed, result.violations)


def samplers() -> dict[str, Experiment]:
    return {
        "fixed size": experiment("fl-std-dp", sampler=laconic.FixedSize(cohort_size=10), rounds=4, sigma=3.0),
        "a cap": experiment("fl-std-dp", budget=laconic.Budget(delta=1e-5, max_participations=2), **SAMPLED),
        "slack": experiment("fl-std-dp", max_dropouts=2, max_colluders=1, dropout_rate=0.03, **SAMPLED),
    }


@pytest.mark.parametrize("kind", ["fixed size", "a cap", "slack"])
def test_other_samplers_and_slack_are_consistent(kind: str) -> None:
    result = audited(samplers()[kind], trials=1000, confidence=SURE)
    assert result.verdict == "consistent", result.violations
