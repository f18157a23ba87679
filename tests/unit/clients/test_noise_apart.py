"""Runs of one seed share no noise, folders of earlier versions are refused, and the statement says who added it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scheme_tools
import torch
from scheme_tools import scheme
from torch import nn

from conftest import make_population
from laconic.cli.main import cli
from laconic.clients import simulated
from laconic.data.population import PooledPopulation
from laconic.errors import RunFolderError
from laconic.experiment.experiment import Experiment
from laconic.privacy.accounting.budget import Budget
from laconic.privacy.accounting.sampling import Poisson
from laconic.runner.run import Run


def experiment(**options: Any) -> Experiment:
    defaults: dict[str, Any] = {
        "scheme": scheme("fl-std-dp", local_lr=1e-12),  # nobody learns anything, so a sum is noise
        "model": scheme_tools.model(),
        "population": make_population([5] * 60),
        "sampler": Poisson(sampling_rate=0.5),
        "budget": Budget(delta=1e-5),
        "rounds": 8,
        "workers": 1,
        "seed": 7,
    }
    return Experiment(**(defaults | options))


def noise_of(e: Experiment) -> np.ndarray:
    """The noise in the sums of all rounds, in units of the code."""
    run = Run(e)
    run.begin()
    sums = []
    for number in range(1, e.rounds + 1):
        plan = run.plan(number)
        total = run.clients.collect(plan, run.state.weights).total
        sums.append(e.scheme.noise.read(total, sensitivity=e.sensitivity, plan=plan))
    return torch.cat(sums).numpy()


def one_record_changed() -> PooledPopulation:
    population = make_population([5] * 60)
    population.pool.inputs[17] += 1
    return population


def another_start() -> nn.Module:
    changed = scheme_tools.model()
    with torch.no_grad():
        next(changed.parameters())[0, 0] += 1
    return changed


@pytest.mark.parametrize("draws", ["per-sum", "per-client"])
@pytest.mark.parametrize(
    "other",
    [
        {"sampler": Poisson(sampling_rate=0.3)},
        {"population": make_population([5] * 45)},
        {"population": one_record_changed()},
        {"model": another_start()},
        {"scheme": scheme("fl-std-dp", local_lr=1e-11)},
    ],
    ids=["another sampling rate", "other clients", "one other record", "other weights", "another step size"],
)
def test_two_runs_of_one_seed_do_not_have_the_same_noise(other: dict[str, Any], draws: str) -> None:
    """Else the difference of what they release is bare: two runs of a sweep would cost far more than their ε."""
    first, second = noise_of(experiment(noise_draws=draws)), noise_of(experiment(noise_draws=draws, **other))
    # 8 rounds of 83 coordinates: a correlation of 0.2 comes with a probability of 2e-7.
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.2


def test_noise_that_is_named_by_seed_and_round_alone_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated, "noise_name", lambda experiment: "")
    first, second = noise_of(experiment()), noise_of(experiment(population=one_record_changed()))
    assert np.corrcoef(first, second)[0, 1] > 0.99


WORDS = ["fl-std-dp", "--num-clients", "40", "--sampling-rate", "0.5", "--clip-norm", "1", "--noise-multiplier", "1"]


def test_a_private_run_of_an_earlier_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its noise has names that other runs of its seed share."""
    out = tmp_path / "run"
    with monkeypatch.context() as earlier:
        earlier.setattr(simulated, "noise_name", lambda experiment: "")
        cli(["run", *WORDS, "--rounds", "2", "--out", str(out), "--quiet"], standalone_mode=False)
    kept = sorted((path.name, path.read_bytes()) for path in out.iterdir() if path.is_file())
    with pytest.raises(RunFolderError, match="earlier version of Laconic.* no noise names.*choose another --out"):
        cli(["run", "--out", str(out), "--resume", "--rounds", "3", "--quiet"], standalone_mode=False)
    assert kept == sorted((path.name, path.read_bytes()) for path in out.iterdir() if path.is_file())


def test_a_run_without_privacy_of_an_earlier_version_goes_on(tmp_path: Path) -> None:
    """It has no noise, and its identity says nothing of any."""
    out = tmp_path / "run"
    words = ["fl-std", "--num-clients", "40", "--sampling-rate", "0.5", "--rounds", "2"]
    cli(["run", *words, "--out", str(out), "--quiet"], standalone_mode=False)
    assert "noise names" not in json.loads((out / "identity.json").read_text())
    cli(["run", "--out", str(out), "--resume", "--rounds", "3", "--quiet"], standalone_mode=False)


def test_the_statement_does_not_say_that_clients_added_noise_that_was_drawn_for_them() -> None:
    statement = Run(experiment(rounds=1)).run().statement
    assert "the clients, in shares" not in statement["mechanism"]["noise_added_by"]
