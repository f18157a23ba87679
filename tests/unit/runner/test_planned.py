"""Which ε a run prints: that of the whole run beside its best round, and that of the plan if data may end it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import laconic
from conftest import make_population, make_records
from laconic import schemes
from laconic.figures import at_most
from laconic.privacy.statement import statement_lines
from laconic.report.summary_lines import result_lines
from laconic.runner.run import Run
from laconic.runner.statement import _at_most, charged, rounds_covered_by_statement

PRIVATE = schemes.fl_std_dp(clip_norm=0.5, noise_multiplier=1.0, local_lr=0.2, local_steps=2, batch_size=4)
SIZES = [4, 9, 1, 12, 7, 5, 3, 8] * 5


def run(**options: Any) -> laconic.RunResult:
    torch.manual_seed(0)
    defaults: dict[str, Any] = {
        "model": nn.Linear(6, 3),
        "clients": make_population(SIZES),
        "test": make_records(200, seed=1),
        "rounds": 8,
        "sampling_rate": 0.3,
        "delta": 1e-5,
    }
    return laconic.run(PRIVATE, **(defaults | options))


def stopped(**options: Any) -> laconic.RunResult:
    """A run that its held-out records end."""
    result = run(holdout=make_records(20, seed=4), patience=1, **({"rounds": 60} | options))
    assert result.stop_reason == "patience"
    assert result.last["round"] < options.get("rounds", 60)
    return result


def epsilons(statement: dict[str, Any]) -> tuple[float, float]:
    return statement["released"]["epsilon"]["pld"], statement["participant"]["epsilon"]["pld"]


def test_the_best_round_carries_the_epsilon_of_the_whole_run(tmp_path: Path) -> None:
    """The test data are such that an early round is the best one."""
    torch.manual_seed(0)
    wrong = make_records(200, seed=1)
    result = run(test=laconic.Records(wrong.inputs, (wrong.targets + 1) % 3), out=tmp_path / "run", eval_every=2)
    assert result.best is not None
    assert result.best["round"] < 8
    row = result.history[result.best["round"] - 1]
    assert (result.best["epsilon"], result.best["participant_epsilon"]) == epsilons(result.statement)
    assert result.best["epsilon"] == result.last["epsilon"] > row["epsilon"]
    assert result.best["epsilon_if_planned_to_end_there"] == row["epsilon"]
    assert result.best["participant_epsilon_if_planned_to_end_there"] == row["participant_epsilon"]
    assert json.loads((tmp_path / "run/summary.json").read_text())["best"] == result.best
    lines = dict(result_lines(result.summary()))
    assert f"ε {at_most(result.last['epsilon'])}" in lines["Best round"]
    assert f"had the run been planned to end there, {at_most(row['epsilon'])}" in lines["  its ε"]
    report = (tmp_path / "run/report.html").read_text()
    assert "that of the whole run: all rounds decide which one is best" in report


def test_a_run_that_held_out_records_end_has_the_epsilon_of_its_plan(tmp_path: Path) -> None:
    result, whole = stopped(out=tmp_path / "run"), run(rounds=60)
    assert epsilons(result.statement) == pytest.approx(epsilons(whole.statement), rel=1e-12)
    assert result.statement["released"]["rounds_charged"] == result.last["round"]
    assert result.statement["released"]["rounds_planned"] == 60
    assert result.statement["participant"]["participations"] == whole.statement["participant"]["participations"]
    assert (result.last["epsilon"], result.last["participant_epsilon"]) == epsilons(result.statement)
    assert result.best is not None
    assert result.best["epsilon"] == result.last["epsilon"]
    assert result.history[-1]["epsilon"] < result.last["epsilon"]
    assert json.loads((tmp_path / "run/privacy.json").read_text()) == result.statement
    lines = dict(statement_lines(result.statement))
    assert f"all 60 planned rounds, of which {result.last['round']} were charged" in lines["  rounds"]
    assert "of 60 planned rounds" in result.statement["summary"]


def test_a_cap_and_budgets_bound_what_the_plan_can_cost() -> None:
    capped = stopped(max_participations=2)
    assert capped.statement["participant"]["participations"] == 2
    free = run(rounds=30)
    limit = (free.history[19]["epsilon"] + free.history[20]["epsilon"]) / 2
    limited = stopped(epsilon=limit)
    assert limited.statement["released"]["rounds_planned"] == 20
    assert limited.last["epsilon"] <= limit
    most = free.history[14]["participant_epsilon"] + 1e-6
    served = stopped(participant_epsilon=most)
    assert epsilons(served.statement)[1] <= most
    assert epsilons(served.statement) == pytest.approx(epsilons(run(rounds=60, participant_epsilon=most).statement))


def test_without_patience_the_charges_count() -> None:
    result = run(holdout=make_records(20, seed=4))
    assert "rounds_planned" not in result.statement["released"]
    assert epsilons(result.statement)[0] == result.history[-1]["epsilon"]


def test_where_cohorts_cannot_be_drawn_again_the_worst_ones_count() -> None:
    torch.manual_seed(0)
    experiment = laconic.experiment.experiment.Experiment(
        scheme=PRIVATE,
        model=nn.Linear(6, 3),
        population=make_population(SIZES),
        sampler=laconic.Poisson(sampling_rate=0.3),
        rounds=12,
        budget=laconic.Budget(delta=1e-5),
        holdout=make_records(20, seed=4),
        patience=3,
    )
    simulation = Run(experiment)
    simulation.begin()
    for number in (1, 2):
        simulation._one_round(number)
    spent, drawn = charged(simulation), rounds_covered_by_statement(simulation)
    assert experiment.budget is not None
    assert simulation.accountant is not None
    worst = _at_most(simulation, spent, experiment.budget, simulation.accountant)
    assert (drawn.rounds, worst.rounds) == (12, 12)
    assert worst.participations == spent.participations + 10 > drawn.participations
