"""An audit of one round of the integer mechanism: how well can two worlds be told apart from what is released?

The worlds are zero-out neighbours: a canary whose code has the full norm S in one direction, and the same client with
the code 0. The best test of a Gaussian against its shifted self asks whether the sum along the canary exceeds a
threshold; if its false positives and true positives have the rates F and T, every (ε, δ) that holds has
ε ≥ ln((T − δ)/F). Clopper–Pearson bounds of both rates give a lower bound of ε that is too large with probability
1e-6 at most. It must not exceed what the accountant claims; and it must come near, or it would not notice anything.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from scipy import stats

from laconic.plan import RoundPlan
from laconic.privacy.accounting.accountant import Accountant
from laconic.privacy.accounting.sampling import Poisson
from laconic.privacy.mechanism.clip import Clip, L2Clip, UnitEntries
from laconic.privacy.mechanism.discrete_gaussian import DiscreteGaussian
from laconic.streams import Stream

pytestmark = pytest.mark.stat
ALPHA, TRIALS, DELTA, SIGMA = 1e-6, 500_000, 0.01, 1.0
"""The mechanism has a curve of (ε, δ); at this δ half a million trials resolve it to some per cent."""


@dataclass(frozen=True)
class Case:
    """Who is in the cohort, and what code the canary has."""

    clip: Clip
    canary: tuple[float, ...]
    cohort: int
    vanish: int = 0
    collude: int = 0

    @property
    def plan(self) -> RoundPlan:
        return RoundPlan(
            round=1,
            attempt=0,
            cohort=np.arange(self.cohort),
            planned_cohort=float(self.cohort),
            least_cohort=self.cohort,
            largest_cohort=self.cohort,
            max_dropouts=self.vanish,
            max_colluders=self.collude,
            run_seed=0,
            round_seed=0,
            fingerprint="",
        )

    @property
    def signs(self) -> bool:
        return isinstance(self.clip, UnitEntries)

    @property
    def sensitivity(self) -> float:
        return self.clip.sensitivity(len(self.canary))


CASES = {
    "real code": Case(L2Clip(clip_norm=0.37), (9.0, 0.0), 3),
    "signs": Case(UnitEntries(), (1.0, -1.0, 1.0, 1.0), 3),
    "with dropouts and colluders": Case(L2Clip(clip_norm=2.0), (5.0,), 5, vanish=1, collude=1),
}


def seen(case: Case, sigma: float, *, zeroed: bool, seed: int) -> np.ndarray:
    """What the server sees along the canary, in every trial: the opened sum less what colluders know of it."""
    noise, plan = DiscreteGaussian(noise_multiplier=sigma, signs=case.signs), case.plan
    zero = torch.zeros(TRIALS, len(case.canary))
    canary = case.clip(torch.tensor(case.canary).expand(TRIALS, -1))
    code_of = {0: zero if zeroed else canary}
    honest = range(case.cohort - case.vanish - case.collude)  # the others vanished, or their shares are subtracted
    total = torch.zeros(TRIALS, len(case.canary), dtype=torch.int64)
    for client in honest:
        stream = Stream(1000 * seed + client)
        total += noise.share(code_of.get(client, zero), sensitivity=case.sensitivity, plan=plan, rng=stream)
    grid = noise.grid(code_size=len(case.canary), sensitivity=case.sensitivity, plan=plan)
    half = 2 ** (grid.bits - 1)
    opened = ((total + half) % 2**grid.bits - half).double() / grid.units
    direction = torch.tensor(case.canary, dtype=torch.float64)
    along: np.ndarray = (opened @ (direction / direction.norm())).numpy()
    return along


def claimed(case: Case) -> float:
    """The participant's ε of one round."""
    accountant = Accountant(
        sampler=Poisson(sampling_rate=1.0),
        noise=DiscreteGaussian(noise_multiplier=SIGMA, signs=case.signs),
        num_clients=case.cohort,
        delta=DELTA,
        sensitivity=case.sensitivity,
    )
    return accountant.participant_epsilon(1)


def lower_bound(case: Case, sigma: float) -> float:
    """The ε that the trials prove. The threshold is a little below the one at which the claimed mechanism's likelihood
    ratio is e^ε: there are more hits to count, and mechanisms with less noise have theirs lower."""
    threshold = 0.9 * case.sensitivity * (claimed(case) * SIGMA**2 + 0.5)
    hits = int((seen(case, sigma, zeroed=False, seed=1) > threshold).sum())
    false = int((seen(case, sigma, zeroed=True, seed=2) > threshold).sum())
    least_hits = stats.beta.ppf(ALPHA / 2, hits, TRIALS - hits + 1)
    most_false = stats.beta.ppf(1 - ALPHA / 2, false + 1, TRIALS - false)
    return math.log((least_hits - DELTA) / most_false)


@pytest.mark.parametrize("name", CASES)
def test_the_claim_holds_and_is_nearly_reached(name: str) -> None:
    case = CASES[name]
    assert claimed(case) / 2 < lower_bound(case, SIGMA) <= claimed(case)


@pytest.mark.parametrize("name", CASES)
def test_noise_that_is_a_tenth_too_small_is_caught(name: str) -> None:
    case = CASES[name]
    assert lower_bound(case, 0.9 * SIGMA) > claimed(case)


def test_shares_that_ignore_colluders_are_caught() -> None:
    """The shares of four clients where three must do: the noise is 13 % too small once the colluder subtracts."""
    case = CASES["with dropouts and colluders"]
    assert lower_bound(case, SIGMA * math.sqrt(3 / 4)) > claimed(case)
