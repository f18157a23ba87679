"""What is left in the estimates is C⁻¹·z, with z independent and of scale σ·S; and an audit of its ε.

Tests have a false-alarm rate of 1e-6 each, with fixed seeds. Every one has a twin with a mistake, which it finds.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from laconic.plan import RoundPlan
from laconic.privacy.accounting.accountant import Accountant
from laconic.privacy.accounting.sampling import Cyclic
from laconic.privacy.mechanism.correlated import CorrelatedGaussian, choose_bands
from laconic.streams import Stream

pytestmark = pytest.mark.stat
ALPHA, DRAWS, ROUNDS, SEPARATION, SIGMA = 1e-6, 200_000, 9, 4, 1.3
NOISE = CorrelatedGaussian(
    noise_multiplier=SIGMA, coefficients=choose_bands(bands=4, separation=SEPARATION, rounds=ROUNDS)
)


def plan(round: int) -> RoundPlan:
    return RoundPlan(
        round=round,
        attempt=0,
        cohort=np.arange(3),
        planned_cohort=3.0,
        largest_cohort=3,
        run_seed=0,
        round_seed=0,
        fingerprint="",
    )


class Forgetful(CorrelatedGaussian):
    """Does not subtract what it estimated earlier."""

    def inverted(self, released: Tensor, estimates: Tensor) -> Tensor:
        return released.clone()


def matrix(rounds: int) -> np.ndarray:
    return np.tril(sum(c * np.eye(rounds, k=-j) for j, c in enumerate(NOISE.factors)))


def estimates(
    noise: CorrelatedGaussian,
    codes: list[float],
    *,
    seed: int = 0,
    stream: Callable[[int], int] = lambda round: round,
) -> np.ndarray:
    """ĝ of so many rounds (rounds, draws): every coordinate is a run of its own, with one client's code in it."""
    memory: dict[str, Tensor] = {}
    found = []
    for round, code in enumerate(codes, start=1):
        terms = noise.terms(torch.full((1, DRAWS), code), code_size=DRAWS, sensitivity=1.0, plan=plan(round)).sum(0)
        total = noise.around(terms, shares=1, sensitivity=1.0, plan=plan(round), rng=Stream(0))
        rng = Stream(1000 * seed + stream(round))
        estimate, memory = noise.estimated(total, memory, sensitivity=1.0, plan=plan(round), rng=rng)
        found.append(estimate.double().numpy())
    return np.stack(found)


def p_value(left: np.ndarray) -> float:
    """χ² of the covariance of C·(ĝ − g)/σ against the identity: T variances and T(T − 1)/2 covariances."""
    white = matrix(len(left)) @ left / SIGMA
    covariance = white @ white.T / white.shape[1]
    variances = (np.diag(covariance) - 1) * math.sqrt(white.shape[1] / 2)
    pairs = covariance[np.tril_indices(len(left), -1)] * math.sqrt(white.shape[1])
    statistic = float(np.square(variances).sum() + np.square(pairs).sum())
    return float(stats.chi2.sf(statistic, len(variances) + len(pairs)))


CODES = [0.3, -0.2, 0.0, 0.11, 0.5, -0.5, 0.25, 0.7, 1.0]


def test_the_noise_of_the_estimates_has_the_covariance_of_the_matrix() -> None:
    left = estimates(NOISE, CODES) - np.array(CODES)[:, None]
    assert p_value(left) > ALPHA
    assert abs(left.mean(1)).max() < 6 * left.std() / math.sqrt(DRAWS)
    # And in the iterates, the sums over rounds, it is what was foretold.
    iterates = np.cumsum(left, axis=0).var(axis=1)
    rows = np.tril(np.ones((ROUNDS, ROUNDS))) @ np.linalg.inv(matrix(ROUNDS))
    assert np.allclose(iterates, SIGMA**2 * np.square(rows).sum(1), rtol=0.03)
    assert iterates[-1] < 0.6 * ROUNDS * SIGMA**2


@pytest.mark.parametrize("mistake", ["forgets", "one per cent", "other bands", "repeats noise"])
def test_mistakes_are_found(mistake: str) -> None:
    noise, stream = NOISE, lambda round: round
    if mistake == "forgets":
        noise = Forgetful(noise_multiplier=SIGMA, coefficients=NOISE.coefficients)
    elif mistake == "one per cent":
        noise = CorrelatedGaussian(noise_multiplier=0.99 * SIGMA, coefficients=NOISE.coefficients)
    elif mistake == "other bands":
        noise = CorrelatedGaussian(noise_multiplier=SIGMA, coefficients=NOISE.coefficients[:3])
    else:
        stream = lambda round: round % 8  # noqa: E731 - the ninth round has the first one's noise
    codes = [0.0] * ROUNDS
    assert p_value(estimates(noise, codes, stream=stream)) < ALPHA


def lower_bound(noise: CorrelatedGaussian, delta: float) -> float:
    """A lower bound on ε: the best test between a client with codes of full length in its turns, and codes of 0."""
    taken = [1.0 if round % SEPARATION == 0 else 0.0 for round in range(ROUNDS)]
    pattern = matrix(ROUNDS) @ np.array(taken)
    scores = [
        pattern @ (matrix(ROUNDS) @ estimates(noise, codes, seed=seed))
        for seed, codes in ((1, [0.0] * ROUNDS), (2, taken))
    ]
    threshold = np.quantile(scores[0], 0.999)
    false, true = (int((one > threshold).sum()) for one in scores)
    most = stats.beta.ppf(1 - ALPHA / 2, false + 1, DRAWS - false)
    least = stats.beta.ppf(ALPHA / 2, true, DRAWS - true + 1)
    return math.log((least - delta) / most)


def test_an_audit_stays_below_the_accountant_and_finds_half_the_noise() -> None:
    delta, noise = 1e-5, CorrelatedGaussian(noise_multiplier=2 * SIGMA, coefficients=NOISE.coefficients)
    accountant = Accountant(sampler=Cyclic(separation=SEPARATION), noise=noise, num_clients=12, delta=delta)
    claimed = accountant.released_epsilon(ROUNDS)
    assert claimed / 2 < lower_bound(noise, delta) < claimed
    assert lower_bound(NOISE, delta) > claimed
