"""Columns are scaled by a linear code, with figures from one bounded, noisy sum."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import laconic
from laconic.clients.work import trained_and_held
from laconic.codecs.queries import Asked
from laconic.codecs.scaling import BIAS, SCALING, Moments, Scaled, largest_answer
from laconic.data.inputs import SparseRows
from laconic.data.population import PooledPopulation, Records
from laconic.errors import WireError
from laconic.plan import RoundPlan
from laconic.runner.run import Run
from laconic.train.units import answer_terms
from laconic.train.units.groups import Groups
from laconic.train.units.rounding import UnitGrid

COLUMNS, QUANTITIES = 6, 2


def plan_of(told: torch.Tensor | None = None) -> RoundPlan:
    shared = {} if told is None else {SCALING: told}
    return RoundPlan(
        round=2,
        attempt=0,
        cohort=np.arange(3),
        planned_cohort=3,
        run_seed=1,
        round_seed=2,
        fingerprint="",
        shared=shared,
    )


def told(seed: int) -> torch.Tensor:
    rng = torch.Generator().manual_seed(seed)
    shift = torch.cat([torch.rand(QUANTITIES, generator=rng), torch.zeros(COLUMNS - QUANTITIES)])
    return torch.cat([shift, torch.rand(COLUMNS, generator=rng) + 0.1, torch.tensor([BIAS, 0.5])])


def table(count: int, seed: int = 0) -> torch.Tensor:
    rng = torch.Generator().manual_seed(seed)
    ones = (torch.rand(count, COLUMNS - QUANTITIES, generator=rng) < 0.3).float()
    return torch.cat([torch.rand(count, QUANTITIES, generator=rng), ones], 1)


@given(st.integers(0, 1000), st.sampled_from([1, 3]))
@settings(max_examples=30, deadline=None)
def test_the_code_of_a_gradient_is_the_gradient_on_scaled_columns(seed: int, outputs: int) -> None:
    """P(ρ·(x, 1)) = ρ·(x', c), for dense and sparse records; and Pᵀ is its transpose, times the step's factor."""
    codec, plan, x = Scaled(columns=COLUMNS, quantities=QUANTITIES, ones=4), plan_of(told(seed)), table(5, seed)
    rho = torch.randn(5, outputs, generator=torch.Generator().manual_seed(seed))
    flat = torch.cat([(rho[:, :, None] * x[:, None]).flatten(1), rho], 1)
    scaled = codec.of_inputs(x, plan)
    assert isinstance(scaled, torch.Tensor)
    wanted = torch.cat([(rho[:, :, None] * scaled[:, None, :-1]).flatten(1), rho * scaled[:, -1:]], 1)
    assert torch.allclose(codec.encode(flat, plan, []), wanted, atol=1e-5)
    sparse = codec.of_inputs(SparseRows.from_dense(x), plan)
    assert isinstance(sparse, SparseRows) and torch.allclose(sparse.dense(), scaled, atol=1e-6)
    code = torch.randn(flat.shape[1], generator=torch.Generator().manual_seed(seed + 1))
    left, right = codec.encode(flat, plan, []) @ code, flat @ codec.decode(code, len(code), plan)
    assert torch.allclose(0.5 * left, right, atol=1e-4)


def test_scores_on_the_records_as_they_are_move_as_those_on_scaled_ones() -> None:
    codec, plan, x = Scaled(columns=COLUMNS, quantities=QUANTITIES, ones=4), plan_of(told(3)), table(50)
    scaled, step = codec.of_inputs(x, plan), torch.randn(COLUMNS + 1)
    assert isinstance(scaled, torch.Tensor)
    moved = codec.decode(step, COLUMNS + 1, plan)
    assert torch.allclose(x @ moved[:-1] + moved[-1], 0.5 * (scaled @ step), atol=1e-5)


@given(st.integers(0, 500), st.integers(2, 5))
@settings(max_examples=30, deadline=None)
def test_no_record_answers_with_more_than_one(seed: int, classes: int) -> None:
    """B bounds every record that public facts allow. The twin with half of B breaks it."""
    x, targets = table(200, seed).round(), torch.arange(200) % classes
    bound = largest_answer(quantities=QUANTITIES, ones=COLUMNS - QUANTITIES, classes=classes)
    query = Moments(columns=COLUMNS, quantities=QUANTITIES, classes=classes, bound=bound, rare=0.01)
    asked = Asked(Records(x, targets), lambda: torch.zeros(0), lambda outputs, targets: outputs)
    assert float(query.rows(asked).norm(dim=1).max()) <= 1 + 1e-12
    assert float(replace(query, bound=bound / 2).rows(asked).norm(dim=1).max()) > 1


def moments_of(x: torch.Tensor, targets: torch.Tensor, noise: float = 0.0) -> tuple[Moments, np.ndarray]:
    query = Moments(columns=COLUMNS, quantities=QUANTITIES, classes=2, bound=4.0, rare=0.001, steepest=0.1)
    asked = Asked(Records(x, targets), lambda: torch.zeros(0), lambda outputs, targets: outputs)
    mean = query.rows(asked).mean(0).numpy()
    return query, mean + noise * np.random.default_rng(0).normal(size=len(mean))


def test_records_have_the_norm_1_on_average_and_quantities_the_mean_0() -> None:
    x, targets = table(4000), (torch.arange(4000) % 10 == 0).long()
    query, mean = moments_of(x, targets)
    codec, plan = Scaled(columns=COLUMNS, quantities=QUANTITIES, ones=4), plan_of(query.told(mean, 0.0)[SCALING])
    scaled = codec.of_inputs(x, plan)
    assert isinstance(scaled, torch.Tensor)
    assert scaled[:, :-1].square().sum(1).mean() == pytest.approx(1, abs=0.05)
    assert scaled[:, :QUANTITIES].mean(0).abs().max() < 0.01
    started = query.start(mean, 0.0, torch.zeros(COLUMNS + 1))
    assert float(started[-1].sigmoid()) == pytest.approx(0.1, abs=1e-3) and not started[:-1].any()
    assert float(plan.shared[SCALING][-1]) == 1.0  # p·(1 − p) = 0.09 is below `steepest`
    steep = replace(query, steepest=0.03).told(mean, 0.0)[SCALING]
    assert float(steep[-1]) == pytest.approx(0.03 / 0.09, rel=1e-3)


def test_a_wrong_number_of_declared_records_changes_nothing_and_a_lost_round_tells_nothing() -> None:
    x, targets = table(4000), (torch.arange(4000) % 10 == 0).long()
    query, mean = moments_of(x, targets)
    twice, half = query.told(2 * mean, 0.0)[SCALING], query.told(mean / 2, 0.0)[SCALING]
    assert torch.allclose(twice, half, rtol=1e-5)
    nothing = 0.01 * np.random.default_rng(1).normal(size=len(mean))
    assert query.told(nothing, 0.01) == {}
    weights = torch.zeros(COLUMNS + 1)
    assert query.start(nothing, 0.01, weights) is weights


def test_noise_larger_than_the_figures_leaves_public_ones() -> None:
    """Where the noise hides everything, what is told is near what the ranges say, and finite and positive always."""
    x, targets = table(4000), (torch.arange(4000) % 10 == 0).long()
    query, mean = moments_of(x, targets, noise=0.05)
    for noise in (0.01, 0.03, 0.05):
        for values in query.told(mean, noise).values():
            assert bool(values.isfinite().all()) and bool((values[COLUMNS:] > 0).all())
            spread = values[COLUMNS : COLUMNS + QUANTITIES]
            assert float(spread.max() / spread.min()) < 4


def test_a_node_refuses_a_scaling_that_is_none() -> None:
    codec = Scaled(columns=COLUMNS, quantities=QUANTITIES, ones=4)
    codec.check_shared(told(1), COLUMNS + 1)
    for place, value in ((0, float("nan")), (COLUMNS, 0.0), (COLUMNS + 1, -1.0), (2 * COLUMNS, float("inf"))):
        wrong = told(1)
        wrong[place] = value
        with pytest.raises(WireError, match="not one"):
            codec.check_shared(wrong, COLUMNS + 1)


# What units answer


def summed(rows: torch.Tensor, units: list[int] | None, clip: float = 1.0) -> torch.Tensor:
    groups = Groups(None if units is None else torch.tensor(units), len(rows))
    return answer_terms(lambda some: rows[some], groups, cells=rows.shape[1], drawn=None, grid=UnitGrid(clip, 4096.0))


@given(st.integers(0, 300))
@settings(max_examples=30, deadline=None)
def test_what_a_patient_answers_is_bounded_whatever_its_records(seed: int) -> None:
    """One patient's records moves the sum by S on the grid at most. A twin that adds its records up breaks that."""
    rng = torch.Generator().manual_seed(seed)
    rows = torch.randn(12, 5, generator=rng) * 10 ** float(torch.rand(1, generator=rng) * 4 - 2)
    units = [0, 0, 0, 1, 1, 2, 3, 3, 3, 3, 4, 5]
    without = rows.clone()
    without[6:10] = 0.0
    moved = (summed(rows, units) - summed(without, units)).double().norm()
    assert float(moved) <= 4096 * 256
    unit = rows / rows.norm(dim=1, keepdim=True)
    added = (unit[6:10] * 4096 * 256).sum(0).norm()
    same = unit[6:7].expand(4, -1)
    assert float((same * 4096 * 256).sum(0).norm()) > 4096 * 256 and float(added) >= 0


def test_answers_have_the_same_bits_however_units_are_split() -> None:
    rows = torch.randn(40, 7, generator=torch.Generator().manual_seed(5))
    units = [place // 4 for place in range(40)]
    whole = summed(rows, units)
    parts = [summed(rows[start : start + 8], [0, 0, 0, 0, 1, 1, 1, 1]) for start in range(0, 40, 8)]
    assert torch.equal(whole, torch.stack(parts).sum(0))
    order = torch.randperm(40, generator=torch.Generator().manual_seed(1))
    assert torch.equal(whole, summed(rows[order], [units[place] for place in order.tolist()]))


def test_a_record_that_is_not_finite_counts_as_nothing() -> None:
    rows = torch.ones(3, 4)
    rows[1, 2] = float("nan")
    assert torch.equal(summed(rows, None), summed(rows[[0, 2]], None))


def test_patients_are_set_aside_with_all_their_records() -> None:
    whose = np.repeat(np.arange(30), 3)
    population = PooledPopulation(
        Records(table(90), torch.zeros(90)), [np.arange(45), np.arange(45, 90)], patients=whose
    )
    train, held = trained_and_held(population, 0.2, 7, "patient")
    for client in range(2):
        kept, aside = set(train.patients(client)), set(held.patients(client))  # type: ignore[attr-defined]
        assert kept.isdisjoint(aside) and len(aside) + len(kept) == 15


# Whole runs


def run_of(unit: str, **options: Any) -> Run:
    x = table(600, 3)
    targets = (x[:, 0] + x[:, 2] + 0.3 * torch.randn(600, generator=torch.Generator().manual_seed(1)) > 1).long()
    rows = np.split(np.arange(600), 4)
    torch.manual_seed(0)
    population = PooledPopulation(Records(x, targets), rows, patients=np.arange(600) // 2)
    scheme = laconic.schemes.fl_std_dp(
        unit=unit, clip_norm=0.7, num_units=600, noise_multiplier=2.0, server_lr=4.0, bits=24
    )
    moments = Moments(columns=COLUMNS, quantities=QUANTITIES, classes=2, bound=3.0, rare=0.01, noise_multiplier=2.0)
    scheme = replace(scheme, codec=Scaled(columns=COLUMNS, quantities=QUANTITIES, ones=4), queries=(moments,))
    model = torch.nn.Sequential(torch.nn.Linear(COLUMNS, 2))
    return Run(
        laconic.Experiment(
            scheme=scheme,
            model=model,
            population=population,
            sampler=laconic.Poisson(sampling_rate=1.0),
            budget=laconic.Budget(delta=1e-4),
            rounds=6,
            test=Records(x, targets),
            **options,
        )
    )


@pytest.mark.parametrize("unit", ["record", "patient"])
def test_masked_sums_have_the_bits_of_simulated_ones(unit: str) -> None:
    simulated = run_of(unit, noise_draws="per-client").run()
    masked = run_of(unit, secagg="masked").run()
    assert all(torch.equal(a, b) for a, b in zip(simulated.model.parameters(), masked.model.parameters(), strict=True))


def test_the_round_of_scaling_is_in_the_epsilon_and_in_the_statement() -> None:
    run = run_of("record")
    result = run.run()
    assert "mean and spread of the columns" in str(result.statement)
    assert run.accountant is not None
    alone = replace(run.experiment, scheme=replace(run.experiment.scheme, queries=())).accountant
    assert alone is not None
    assert result.last["epsilon"] == pytest.approx(alone.released_epsilon(6), rel=1e-3)  # of one σ: six releases
    quieter = replace(run.experiment.scheme.queries[0], noise_multiplier=0.7)
    louder = replace(run.experiment, scheme=replace(run.experiment.scheme, queries=(quieter,))).accountant
    assert louder is not None and louder.released_epsilon(6) > 1.3 * alone.released_epsilon(6)


def test_units_answer_evaluations() -> None:
    """The private accuracy at patient level is near the true one; its ε is in the run's."""
    run = run_of("patient", held_out=0.3)
    scheme = replace(
        run.experiment.scheme, evaluations=laconic.Evaluations(every=4, metric="accuracy", noise_multiplier=0.05)
    )
    result = Run(replace(run.experiment, scheme=scheme)).run()
    row = next(row for row in result.history if row["round"] == 4)
    assert row["clients_accuracy"] == pytest.approx(row["accuracy"], abs=0.15)
