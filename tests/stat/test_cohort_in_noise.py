"""Whether what is released shows how many took part, where sampling is said to lower the ε. False alarms: 1e-6 each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

import laconic
from laconic import schemes
from laconic.adversary.attack import Attack
from laconic.adversary.attacks.gradient_ascent import RandomUpdate
from laconic.data.population import PooledPopulation, Records
from laconic.experiment.experiment import Experiment
from laconic.privacy.accounting.sampling import Sampler
from laconic.runner.run import Run

pytestmark = pytest.mark.stat
FALSE_ALARM = 1e-6
CLIENTS, WIDTH, OUTPUTS, ROUNDS = 24, 1000, 100, 30
"""So many weights that a round's noise tells its own variance to half a per cent."""


class Released:
    """What an outsider has: the weights after every round."""

    def __init__(self, run: Run) -> None:
        self._run, self._last = run, run.clients.model.initial.clone()
        self.changes: list[Tensor] = []
        self.cohorts: list[int] = []

    def __call__(self, row: dict[str, Any]) -> None:
        self.changes.append(self._run.state.weights - self._last)
        self._last = self._run.state.weights.clone()
        self.cohorts.append(row["cohort"])


def released(
    attack: Attack | None, sampler: Sampler | None = None, *, lr: float = 1e-9, sigma: float = 1.0, **options: Any
) -> tuple[Released, dict[str, Any]]:
    """A run whose honest clients learn next to nothing, so that a release is noise, and what the attackers add."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    inputs = torch.from_numpy(rng.normal(size=(2 * CLIENTS, WIDTH)).astype(np.float32))
    records = Records(inputs, torch.from_numpy(rng.integers(0, OUTPUTS, 2 * CLIENTS)))
    e = Experiment(
        scheme=schemes.fl_std_dp(clip_norm=1.0, noise_multiplier=sigma, local_lr=lr, local_steps=1, batch_size=2),
        model=nn.Linear(WIDTH, OUTPUTS),
        population=PooledPopulation(records, np.arange(2 * CLIENTS).reshape(CLIENTS, 2)),
        sampler=sampler or laconic.Poisson(sampling_rate=0.5),
        rounds=ROUNDS,
        budget=laconic.Budget(delta=1e-5),
        attack=attack,
        workers=1,
        eval_every=ROUNDS,
        **options,
    )
    run = Run(e)
    seen = Released(run)
    run.observer = seen  # type: ignore[assignment]
    return seen, run.run().statement


def chance(figures: list[float], cohorts: list[int]) -> float:
    """How likely ranks of the figures follow those of the cohort sizes so closely, if they have nothing to do with
    each other."""
    return float(stats.spearmanr(figures, cohorts).pvalue)


def variances(seen: Released) -> list[float]:
    return [float(change.double().var()) for change in seen.changes]


QUIET = {"scale": 1e-9}


@pytest.mark.parametrize(
    ("attack", "options"),
    [
        (RandomUpdate(fraction=0.25, **QUIET), {}),
        (RandomUpdate(fraction=0.25, **QUIET), {"max_colluders": 3}),  # enough for the server's ε
        (RandomUpdate(fraction=0.25, **QUIET), {"noise_draws": "per-client"}),
    ],
)
def test_missing_noise_shows_the_cohort_and_nothing_amplifies(attack: Attack, options: dict[str, Any]) -> None:
    """Of |K| shares some are missing, so the variance of what is released follows from |K|."""
    seen, statement = released(attack, **options)
    assert chance(variances(seen), seen.cohorts) < FALSE_ALARM  # the outsider reads the cohort's size
    assert not statement["released"]["amplified_by_sampling"]
    outsider, server = statement["released"]["epsilon"]["pld"], statement["participant"]["epsilon"]["pld"]
    assert outsider >= server
    if "released" in statement["attack"]:
        assert statement["attack"]["released"]["pld"] >= statement["attack"]["participant"]["pld"]


@pytest.mark.parametrize("attack", [None, RandomUpdate(fraction=0.25, omit_noise=False, **QUIET)])
def test_with_all_noise_the_cohort_does_not_show_and_sampling_amplifies(attack: Attack | None) -> None:
    seen, statement = released(attack)
    assert chance(variances(seen), seen.cohorts) > FALSE_ALARM
    assert statement["released"]["amplified_by_sampling"]


def test_as_many_attackers_in_cohorts_of_one_size_show_nothing() -> None:
    """The same noise is missing in every round. What is left is accounted for, and sampling lowers its ε."""
    attack = RandomUpdate(fraction=0.25, **QUIET)
    seen, statement = released(attack, laconic.FixedSize(cohort_size=12))
    assert set(seen.cohorts) == {12}
    expected = 0.75 * (1.0 / 12) ** 2
    for variance in variances(seen):
        low, high = (expected * x / (WIDTH * OUTPUTS) for x in stats.chi2.interval(1 - 1e-7, WIDTH * OUTPUTS))
        assert 0.99 * low < variance < 1.01 * high
    assert statement["released"]["amplified_by_sampling"] and not statement["attack"]["holds"]


@pytest.mark.parametrize("sampler", [laconic.FixedSize(cohort_size=12), laconic.Poisson(sampling_rate=0.5)])
def test_named_attackers_do_not_amplify(sampler: Sampler) -> None:
    """How many of them are in a cohort shows, and where its size is fixed an honest client takes one's place."""
    seen, statement = released(RandomUpdate(malicious=(1, 4, 7, 9), **QUIET), sampler)
    found = np.array(variances(seen)) * 144 * WIDTH * OUTPUTS
    low, high = stats.chi2.interval(1 - FALSE_ALARM, WIDTH * OUTPUTS)
    assert found.max() / found.min() > high / low  # not the same noise in every round
    assert not statement["released"]["amplified_by_sampling"]
