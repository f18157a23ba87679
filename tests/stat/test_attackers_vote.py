"""One clear voice among noise: how often a coordinate of FL-SIGN-DP follows the attackers. False alarms: 1e-6 each."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from attack_tools import plan_of
from scipy import stats
from torch import nn

import laconic
from laconic import schemes
from laconic.adversary.attacks.gradient_ascent import RandomUpdate
from laconic.clients.simulated import SimulatedClients
from laconic.data.population import PooledPopulation, Records
from laconic.experiment.experiment import Experiment

pytestmark = pytest.mark.stat
FALSE_ALARM = 1e-6
WIDTH = 300


def follows(boost: float, attackers: int, sigma: float) -> tuple[int, int, float]:
    """(coordinates that follow the attackers, all of them, Φ(B/(√n·σ))) in one round of 40 clients that learn nothing.

    Honest clients' updates are zero, so their votes are coins, which add a little to the noise.
    """
    model = nn.Linear(WIDTH, 100)
    size = sum(p.numel() for p in model.parameters())
    records = Records(torch.zeros(80, WIDTH), torch.zeros(80, dtype=torch.int64))
    e = Experiment(
        scheme=schemes.fl_sign_dp(noise_multiplier=sigma, ring_bits=30, local_lr=1e-9, local_steps=1, batch_size=2),
        model=model,
        population=PooledPopulation(records, np.arange(80).reshape(40, 2)),
        sampler=laconic.FixedSize(cohort_size=40),
        rounds=1,
        budget=laconic.Budget(delta=1e-3),
        attack=RandomUpdate(fraction=attackers / 40, collude=True, scale=1.0, boost=boost),
        workers=1,
    )
    clients = SimulatedClients(e)
    plan = plan_of(clients)
    forged = next(clients.work.attackers.forged(plan, e.attackers(plan), clients.model.initial, None))  # type: ignore[union-attr]
    total = clients.collect(plan, clients.model.initial).total
    half = 2**29
    vote = torch.sign(((total + half) % 2**30) - half)
    honest = 40 - attackers
    # Shares of the attackers are missing; a coin for each honest client adds 1 to the variance.
    spread = np.sqrt(size * sigma**2 * honest / 40 + honest)
    assert e.grid is not None and e.grid.units == 1
    return int((vote == torch.sign(forged.updates[0])).sum()), size, float(stats.norm.cdf(attackers * boost / spread))


@pytest.mark.parametrize(
    ("boost", "attackers"),
    [
        (1, 2),  # noise left out, nothing boosted: almost nothing changes
        (150, 1),
        (150, 2),
        (400, 1),
    ],
)
def test_a_coordinate_follows_the_attackers_with_the_probability_of_the_thesis(boost: float, attackers: int) -> None:
    """Φ(B/(√n·σ)) with B = |𝕄_t|·η, less the noise that the attackers did not add (thesis section 6.3)."""
    count, size, probability = follows(boost, attackers, sigma=1.0)
    low, high = stats.binom.interval(1 - FALSE_ALARM, size, probability)
    assert low - 1 <= count <= high + 1, (count / size, probability)
    assert 0.5 <= probability < 1


def test_the_published_probabilities_follow_from_the_formula() -> None:
    """Thesis section 6.3 at ε = 1, 2, 4 with one and two attackers, boost 5000, 1,663,370 weights."""
    for sigma, attackers, expected in (
        (1.5406, 1, 0.994),
        (1.0844, 1, 0.99982),
        (0.8100, 1, 1 - 8e-7),
        (1.5406, 2, 1 - 2.4e-7),
    ):
        found = stats.norm.cdf(attackers * 5000 / (np.sqrt(1_663_370) * sigma))
        assert found == pytest.approx(expected, abs=5e-4) and (1 - found) == pytest.approx(1 - expected, rel=0.15)
    assert stats.norm.cdf(100 / (np.sqrt(1_663_370) * 1.5406)) == pytest.approx(0.52, abs=0.005)
