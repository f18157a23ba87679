"""Noise per sum: runs of one seed share none, runs of earlier versions go on, and the statement says who added it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scheme_tools
import torch
from scheme_tools import scheme

from conftest import make_population
from laconic.cli.main import cli
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


@pytest.mark.parametrize(
    "other",
    [
        {"sampler": Poisson(sampling_rate=0.3)},
        {"population": make_population([5] * 45)},
        {"scheme": scheme("fl-std-dp", local_lr=1e-11)},
    ],
    ids=["another sampling rate", "other clients", "another step size"],
)
def test_two_runs_of_one_seed_do_not_have_the_same_noise(other: dict[str, Any]) -> None:
    """Else the difference of what they release is bare: two runs of a sweep would cost far more than their ε.

    The noise of client shares is the same only as far as the same clients are in both cohorts (and then it is, too).
    """
    first, second = noise_of(experiment()), noise_of(experiment(**other))
    assert (first - second).std() > 0.5 * first.std()


WORDS = ["fl-std-dp", "--num-clients", "40", "--sampling-rate", "0.5", "--clip-norm", "1", "--noise-multiplier", "1"]


@pytest.mark.parametrize("said", [[], ["--noise-draws", "per-client"]], ids=["nothing said", "per-client said"])
def test_a_run_of_an_earlier_version_goes_on(said: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its configuration does not know the option, and its noise was drawn by each client."""
    out = tmp_path / "run"
    with monkeypatch.context() as earlier:
        earlier.setattr(Experiment, "draws_per_sum", property(lambda self: False))
        cli(["run", *WORDS, "--rounds", "2", "--out", str(out), "--quiet"], standalone_mode=False)
    config = out / "config.toml"
    lines = [line for line in config.read_text().splitlines() if not line.startswith("noise_draws")]
    config.write_text("\n".join(lines) + "\n")
    cli(["run", "--out", str(out), "--resume", "--rounds", "3", *said, "--quiet"], standalone_mode=False)
    summary = json.loads((out / "summary.json").read_text())
    assert summary["rounds"] == 3
    assert "at once" not in str(summary["statement"])


def test_the_statement_does_not_say_that_clients_added_noise_that_was_drawn_for_them() -> None:
    statement = Run(experiment(rounds=1)).run().statement
    assert "the clients, in shares" not in statement["mechanism"]["noise_added_by"]
