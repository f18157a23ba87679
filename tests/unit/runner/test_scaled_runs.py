"""Runs whose first round measures the columns: what is told is kept, and the round is charged as any other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import laconic
from laconic.clients.simulated import SimulatedClients
from laconic.codecs.scaling import SCALING, Moments, Scaled
from laconic.data.population import PooledPopulation, Records
from laconic.experiment.experiment import Experiment
from laconic.privacy.accounting.budget import Budget
from laconic.privacy.accounting.tight import gaussian_epsilon
from laconic.runner.run import Run
from laconic.store.folder import RunFolder

COLUMNS, QUANTITIES, ROUNDS, ASKING, TRAINING = 5, 2, 4, 1.5, 3.0


def experiment(unit: str | None = "patient", **options: Any) -> Experiment:
    rng = torch.Generator().manual_seed(3)
    ones = (torch.rand(600, COLUMNS - QUANTITIES, generator=rng) < 0.4).float()
    x = torch.cat([torch.rand(600, QUANTITIES, generator=rng), ones], 1)
    records = Records(x, (x[:, 0] + 0.5 * x[:, 2] > 0.7).long())
    inside: dict[str, Any] = {"local_lr": 0.1, "local_steps": 2}
    if unit is not None:
        inside = {"unit": unit, "num_units": {"patient": 300, "record": 600}[unit]}
        inside |= {name: options.pop(name) for name in ("unit_rate", "max_owners_per_patient") if name in options}
    moments = Moments(
        columns=COLUMNS, quantities=QUANTITIES, classes=2, bound=2.6, rare=0.01, noise_multiplier=ASKING, steepest=0.2
    )
    scheme = replace(
        laconic.schemes.fl_std_dp(clip_norm=0.7, noise_multiplier=TRAINING, **inside),
        codec=Scaled(columns=COLUMNS, quantities=QUANTITIES, ones=3),
        queries=(moments if unit else replace(moments, noise_multiplier=0.02),),
    )
    model = torch.nn.Linear(COLUMNS, 2)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    return Experiment(
        scheme=scheme,
        model=model,
        population=PooledPopulation(records, np.split(np.arange(600), 6), patients=np.arange(600) // 2),
        sampler=laconic.Poisson(sampling_rate=1.0),
        budget=Budget(delta=1e-4),
        rounds=ROUNDS,
        test=records,
        allow_large_delta=True,
        noise_draws="per-client",
        **{"checkpoint_seconds": 1e9} | options,
    )


@contextmanager
def begun(path: Path, clients: SimulatedClients | None = None, **options: Any) -> Iterator[Run]:
    folder = RunFolder(path)
    folder.make()
    folder.open()
    try:
        run = Run(experiment(**options), clients=clients, folder=folder)
        run.begin()
        yield run
    finally:
        folder.close()


def finished(**options: Any) -> Run:
    run = Run(experiment(**options))
    run.run()
    return run


@pytest.mark.parametrize(
    "options",
    [{"unit": None}, {"unit": "record", "unit_rate": 0.7}, {"unit_rate": 0.7, "max_owners_per_patient": 2}],
    ids=["clients", "records by coins", "patients of two clients"],
)
def test_masked_sums_tell_the_same_scaling_and_end_with_the_same_weights(options: dict[str, Any]) -> None:
    simulated, masked = finished(**options), finished(**options, secagg="masked")
    assert torch.equal(simulated.state.shared[SCALING], masked.state.shared[SCALING])
    assert torch.equal(simulated.state.weights, masked.state.weights)


def test_both_figures_are_the_composition_of_the_round_that_asks_and_of_training() -> None:
    """Every unit is in every round, so the loss is that of one Gaussian. Three rounds of training alone cost less."""
    run = finished()
    assert run.result is not None
    exact = gaussian_epsilon((1 / ASKING**2 + (ROUNDS - 1) / TRAINING**2) ** -0.5, 1e-4)
    alone = gaussian_epsilon(((ROUNDS - 1) / TRAINING**2) ** -0.5, 1e-4)
    for who in ("released", "participant"):
        assert exact < run.result.statement[who]["epsilon"]["pld"] < 1.01 * exact
    assert alone < 0.9 * exact


@pytest.mark.parametrize("after", [1, 2])
def test_a_run_that_is_killed_keeps_what_was_told(after: int, tmp_path: Path) -> None:
    """Without a checkpoint of that round the query is replayed from its sum, with the same bits, and charged once."""
    whole = finished()
    with begun(tmp_path / "run") as killed:
        for number in range(1, after + 1):
            killed._one_round(number)
        told = killed.state.shared[SCALING]
    with begun(tmp_path / "run") as again:
        result = again.run()
        assert again.journal.num_charged == ROUNDS
    assert torch.equal(again.state.shared[SCALING], told) and torch.equal(told, whole.state.shared[SCALING])
    assert torch.equal(again.state.weights, whole.state.weights)
    assert whole.result is not None and result.statement == whole.result.statement


def test_a_kill_in_the_round_that_asks_is_charged_before_anything_is_known(tmp_path: Path) -> None:
    with begun(tmp_path / "run") as killed:
        assert killed.begin_round(1) is not None
    charges = (tmp_path / "run" / "charges.jsonl").read_text().splitlines()
    assert json.loads(charges[0])["round"] == 1
    with begun(tmp_path / "run") as again:
        again.run()
    assert torch.equal(again.state.weights, finished().state.weights)


def test_a_round_that_asks_twice_costs_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another machine cannot repeat the bits, so its attempt is one more release, at that round's own price."""
    monkeypatch.setattr("laconic.runner.run._FIRST_ROUNDS", 1)
    with begun(tmp_path / "run") as first:
        first.begin_round(1)
    clients = SimulatedClients(experiment())
    clients.environment = "another machine"
    with begun(tmp_path / "run", clients) as second:
        result = second.run()
        assert second.journal.num_charged == ROUNDS + 1
    exact = gaussian_epsilon((2 / ASKING**2 + (ROUNDS - 1) / TRAINING**2) ** -0.5, 1e-4)
    assert exact < result.statement["released"]["epsilon"]["pld"] < 1.01 * exact
