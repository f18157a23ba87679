"""Units inside clients: the released noise, and canary patients in short runs, beside twins that cheat.

Each canary is a record, or a patient with three records, at one client or at two. It goes through the same code as any
other: coins, sums by patient, clip after encoding, shares, release. The level of every check is stated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import audit_tools
import numpy as np
import pytest
import torch
from torch import nn

import laconic
from conftest import make_records
from laconic.audit import canaries, runs
from laconic.audit.audit import audit_experiment
from laconic.clients import work
from laconic.data.population import PooledPopulation
from laconic.experiment.experiment import Experiment
from laconic.privacy.accounting.releases import Release
from laconic.privacy.mechanism.grid import Grid
from laconic.train.local import UnitGradients
from laconic.train.units import UnitSums

LEVEL = 1e-6
"""False alarms of each test here: one in a million. (The audit's own checks have a level of 1 %, shared by all.)"""


def experiment(rounds: int = 2, **options: Any) -> Experiment:
    given: dict[str, Any] = {"unit": "patient", "clip_norm": 0.7, "noise_multiplier": 1.0, "num_units": 200}
    slack = {name: options.pop(name) for name in ("max_dropouts", "dropout_rate") if name in options}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Linear(6, 3)
    patients = np.repeat(np.arange(20), 3)
    return Experiment(
        scheme=laconic.schemes.fl_std_dp(**(given | options)),
        model=model,
        population=PooledPopulation(make_records(60), np.split(np.arange(60), 5), patients=patients),
        sampler=laconic.Poisson(sampling_rate=1.0),
        budget=laconic.Budget(delta=1e-4),
        rounds=rounds,
        noise_draws="per-client",
        **slack,
    )


def off(e: Experiment) -> set[str]:
    return audit_tools.off(audit_experiment(e, canaries=0, trials=1000, confidence=0.999))


def noise_p_value(e: Experiment) -> float:
    """Two-sided, of Σx² of the released noise along directions in which no canary points: χ² if it is as claimed."""
    from scipy.stats import chi2

    seen = runs.watch_many_runs(e, 1000, lambda done, of: None).seen
    values = np.concatenate([one.outsider.free for one in seen]).ravel()
    below = float(chi2.cdf((values**2).sum(), len(values)))
    return 2 * min(below, 1 - below)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"unit": "record", "unit_rate": 0.4},
        {"unit_rate": 0.5, "max_owners_per_patient": 2},
        {"max_dropouts": 1, "dropout_rate": 0.15},
    ],
    ids=["patients", "records by coins", "two owners by coins", "dropouts"],
)
def test_honest_sums_of_units_are_as_claimed(options: dict[str, Any]) -> None:
    assert off(experiment(**options)) == set()
    assert noise_p_value(experiment(**options)) > LEVEL


@pytest.mark.parametrize(
    ("canaries", "options"),
    [
        (1000, {"unit": "record", "unit_rate": 0.5}),
        (300, {"unit_rate": 0.5}),
        (300, {"unit_rate": 0.5, "max_owners_per_patient": 2}),
    ],
    ids=["1,000 records", "300 patients", "300 patients of two owners each"],
)
def test_canaries_in_a_whole_run_stay_below_the_claim(canaries: int, options: dict[str, Any]) -> None:
    result = audit_experiment(experiment(rounds=3, **options), canaries=canaries, trials=0)
    assert audit_tools.off(result) == set()
    assert {bound.adversary for bound in result.bounds} == {"server", "outsider"}
    assert all(bound.claimed > 0 and bound.lower <= bound.claimed for bound in result.bounds)


def a_share_for_all(patch: pytest.MonkeyPatch) -> None:
    """The noise is divided among N clients, not among those that are left when some drop out."""
    whole = Grid.share_scale
    patch.setattr(Grid, "share_scale", lambda self, shares: whole(self, shares + 1))


def the_whole_noise_each(patch: pytest.MonkeyPatch) -> None:
    """Every owner adds all of the noise: private, and as bad as the published pair. Only the χ² sees it."""
    patch.setattr(Grid, "share_scale", lambda self, shares: self.scale)


def records_clipped_one_by_one(patch: pytest.MonkeyPatch) -> None:
    """Of a patient every record is a unit, so the patient adds as many S as it has records."""

    def apart(model: Any, records: Any, units: Any, **options: Any) -> UnitSums:
        return UnitSums(model, records, None, **options)

    patch.setattr(canaries, "UnitSums", apart)


def one_coin_for_all_rounds(patch: pytest.MonkeyPatch) -> None:
    def shared(streams: Any, plan: Any, client: int) -> Any:
        return streams.stream("coins", client)

    for module in (work, canaries):
        patch.setattr(module, "coins_stream", shared)


def each_owner_clips_to_the_whole_bound(patch: pytest.MonkeyPatch) -> None:
    """S at each of two owners, where S/2 is allowed; the claim is still that of two."""
    rate = Release.rate.fget
    assert rate is not None
    patch.setattr(UnitGradients, "max_owners", 1, raising=False)
    whole = UnitSums.terms

    def doubled(self: UnitSums, *args: Any, clip_norm: float, **options: Any) -> Any:
        return whole(self, *args, clip_norm=2 * clip_norm, **options)

    patch.setattr(UnitSums, "terms", doubled)


def the_rate_of_one_owner(patch: pytest.MonkeyPatch) -> None:
    """q is claimed for a patient of two owners, who is drawn with the probability 1 − (1 − q)²."""
    patch.setattr(Release, "rate", property(lambda self: self.coins))


def a_divisor_that_counts(patch: pytest.MonkeyPatch) -> None:
    """The sum is divided by how many units were drawn, not by how many were declared."""
    from laconic import round as rounds

    step, whole, counted = rounds.sums_step, UnitSums.terms, [0]

    def counting(self: UnitSums, *args: Any, drawn: Any = None, **options: Any) -> Any:
        counted[0] += self.num_units if drawn is None else int(drawn.sum())
        return whole(self, *args, drawn=drawn, **options)

    def divided(scheme: Any, plan: Any, sums: Any, **rest: Any) -> Any:
        share = max(1, counted[0]) / plan.divisor
        counted[0] = 0
        return step(scheme, plan, sums / share, **rest)

    patch.setattr(UnitSums, "terms", counting)
    patch.setattr(rounds, "sums_step", divided)


Sabotage = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.parametrize(
    ("sabotage", "options", "found"),
    [
        (a_share_for_all, {"max_dropouts": 1, "dropout_rate": 0.15}, "noise, server"),
        (records_clipped_one_by_one, {}, "clip"),
        (one_coin_for_all_rounds, {"rounds": 4, "unit_rate": 0.4}, "sampling, spread"),
        (each_owner_clips_to_the_whole_bound, {"max_owners_per_patient": 2}, "clip"),
        (the_rate_of_one_owner, {"unit_rate": 0.5, "max_owners_per_patient": 2}, "sampling rate"),
        (a_divisor_that_counts, {"num_units": 2}, "noise, outsider"),
    ],
)
def test_the_audit_finds_a_sabotaged_twin(
    sabotage: Sabotage, options: dict[str, Any], found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sabotage(monkeypatch)
    assert found in off(experiment(**options))


@pytest.mark.parametrize("sabotage", [the_whole_noise_each, a_divisor_that_counts])
def test_noise_that_is_not_what_was_declared_is_seen(sabotage: Sabotage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where there is more of it than declared, or the scale follows the records: the χ² is two-sided."""
    sabotage(monkeypatch)
    assert noise_p_value(experiment(unit_rate=0.5)) < LEVEL


def test_declared_units_bound_the_divisor_of_a_round() -> None:
    e = experiment(unit_rate=0.25)
    assert e.typical_plan().divisor == 50
    some = np.split(np.arange(15), 5)
    fewer = replace(e, population=PooledPopulation(make_records(60), some, patients=np.arange(60)))
    assert fewer.typical_plan().divisor == 50
