"""The sum that measures columns: bounded answers of units and noise, as the ε takes them, beside twins that cheat.

Every cell is one draw of the noise. So one round of a table with two thousand columns is two thousand trials.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import laconic
from laconic.clients import work
from laconic.codecs.queries import Asked
from laconic.codecs.scaling import Moments, Scaled
from laconic.data.population import PooledPopulation, Records
from laconic.experiment.experiment import Experiment
from laconic.privacy.accounting.budget import Budget
from laconic.privacy.mechanism.grid import Grid
from laconic.runner import run as runs
from laconic.runner.run import Run
from laconic.server.rules import SCORES
from laconic.train.local import UnitGradients

pytestmark = pytest.mark.stat
LEVEL = 1e-6
"""False alarms of each check here: one in a million."""
COLUMNS, PATIENTS, EACH, SIGMA = 2000, 60, 3, 0.8
WHOSE = np.repeat(np.arange(PATIENTS), EACH)


def experiment(owners: int = 1, sigma: float = SIGMA, **options: Any) -> Experiment:
    """Patients with three records each, at one of five clients. Answers have norms of about 1, which owners share."""
    rng = torch.Generator().manual_seed(1)
    x = (torch.rand(len(WHOSE), COLUMNS, generator=rng) < 0.5).float()
    query = Moments(columns=COLUMNS, quantities=0, classes=2, bound=25.0, rare=0.01, noise_multiplier=sigma)
    scheme = laconic.schemes.fl_std_dp(
        unit="patient", clip_norm=0.5, noise_multiplier=5.0, num_units=PATIENTS, max_owners_per_patient=owners
    )
    return Experiment(
        scheme=replace(scheme, codec=Scaled(columns=COLUMNS, quantities=0, ones=COLUMNS), queries=(query,)),
        model=torch.nn.Linear(COLUMNS, 2),
        population=PooledPopulation(
            Records(x, torch.arange(len(WHOSE)) % 2), np.split(np.arange(len(WHOSE)), 5), patients=WHOSE
        ),
        sampler=laconic.Poisson(sampling_rate=1.0),
        budget=Budget(delta=1e-4),
        rounds=2,
        noise_draws="per-client",
        **options,
    )


def excess(e: Experiment) -> float:
    """Two-sided p-value of Σz², z the released mean less the mean by definition, in units of the noise: χ²."""
    from scipy.stats import chi2

    found: list[np.ndarray] = []
    read = runs.read_answers

    def noted(scheme: Any, plan: Any, weights: Any, state: Any) -> Any:
        found.append(state[SCORES].double().numpy())
        return read(scheme, plan, weights, state)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "read_answers", noted)
        run = Run(e)
        run.begin()
        run._one_round(1)
    assert isinstance(e.population, PooledPopulation) and isinstance(e.scheme.train, UnitGradients)
    rows = e.scheme.queries[0].rows(Asked(e.population.pool, lambda: torch.zeros(0), lambda outputs, targets: outputs))
    means = rows.reshape(PATIENTS, EACH, -1).mean(1)
    parts = means * (1 / e.scheme.train.max_owners / means.norm(dim=1, keepdim=True)).clamp(max=1)
    z = (found[0] - parts.sum(0).numpy() / PATIENTS) / (SIGMA / PATIENTS)
    below = float(chi2.cdf((z**2).sum(), len(z)))
    return 2 * min(below, 1 - below)


@pytest.mark.parametrize(
    "options", [{}, {"owners": 2}, {"secagg": "masked"}], ids=["one owner", "two owners", "masked"]
)
def test_the_released_mean_is_that_of_bounded_answers_and_the_stated_noise(options: dict[str, Any]) -> None:
    assert excess(experiment(**options)) > LEVEL


def nothing(patch: pytest.MonkeyPatch) -> None:
    """The code is as it is; less noise was asked for."""


def the_whole_noise_each(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Grid, "share_scale", lambda self, shares: self.scale)


def records_answer_one_by_one(patch: pytest.MonkeyPatch) -> None:
    """A patient with three records answers three times, each with the whole bound."""
    patch.setattr(work, "units_of", lambda population, client, unit: None)


def no_part_for_each_owner(patch: pytest.MonkeyPatch) -> None:
    """With two owners, each answers with the whole bound: twice the sensitivity."""
    whole = work.ClientWork._unit_grid

    def doubled(self: Any, plan: Any) -> Any:
        grid, part = whole(self, plan)
        return grid, 2 * part

    patch.setattr(work.ClientWork, "_unit_grid", doubled)


@pytest.mark.parametrize(
    ("sabotage", "options"),
    [
        (nothing, {"sigma": 0.9 * SIGMA}),
        (the_whole_noise_each, {}),
        (records_answer_one_by_one, {}),
        (no_part_for_each_owner, {"owners": 2}),
    ],
)
def test_a_twin_that_cheats_is_caught(
    sabotage: Callable[[pytest.MonkeyPatch], None], options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    sabotage(monkeypatch)
    assert excess(experiment(**options)) < LEVEL
