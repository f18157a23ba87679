"""The noise of a sum drawn at once has the distribution of the sum of the clients' shares.

χ² tests have a false-alarm rate of 1e-6 each, with fixed seeds. Every one has a twin with a mistake, which it finds.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from laconic.guard.noise import draw_around
from laconic.plan import RoundPlan
from laconic.privacy.mechanism.discrete_gaussian import DiscreteGaussian, StreamSource, fixed_point, sum_total_variation
from laconic.streams import Stream

pytestmark = pytest.mark.stat
ALPHA, DRAWS, CLIENTS = 1e-6, 200_000, 16
CODES = [0.011 * (k + 1) for k in range(CLIENTS)]


def pmf(mean: float, scale: float, values: np.ndarray) -> np.ndarray:
    mass = np.exp(-((values - mean) ** 2) / (2 * scale**2))
    return np.asarray(mass / mass.sum())


def p_value(drawn: Tensor, values: np.ndarray, mass: np.ndarray, groups: int = 40) -> float:
    """χ² of draws against a pmf on these values, in groups of about equal probability."""
    groups_of = np.minimum((np.cumsum(mass) * groups).astype(np.int64), groups - 1)
    expected = np.bincount(groups_of, mass, minlength=groups) * drawn.numel()
    observed = np.bincount(groups_of[np.clip(drawn.numpy() - values[0], 0, len(values) - 1)], minlength=groups)
    kept = expected > 20
    return float(stats.chisquare(observed[kept], expected[kept] * observed[kept].sum() / expected[kept].sum()).pvalue)


def plan(**options: int) -> RoundPlan:
    sizes = {"least_cohort": CLIENTS, "largest_cohort": CLIENTS}
    return RoundPlan(
        round=1,
        attempt=0,
        cohort=np.arange(CLIENTS),
        planned_cohort=float(CLIENTS),
        **(sizes | options),
        run_seed=0,
        round_seed=0,
        fingerprint="",
    )


def released(clients: int, some: RoundPlan, sums: Callable[[DiscreteGaussian, list[Tensor]], Tensor]) -> Tensor:
    """What is released of so many clients' codes, on the grid, by a way to sum them."""
    noise = DiscreteGaussian(noise_multiplier=1.0)
    codes = [torch.full((DRAWS,), value) for value in CODES[:clients]]
    total = sums(noise, codes)
    opened = noise.released(total, sensitivity=1.0, plan=some, survivors=clients, rng=Stream(77))
    return (opened.double() * noise.grid(code_size=DRAWS, sensitivity=1.0, plan=some).units).round().long()


def by_shares(some: RoundPlan) -> Callable[[DiscreteGaussian, list[Tensor]], Tensor]:
    def sums(noise: DiscreteGaussian, codes: list[Tensor]) -> Tensor:
        shares = (noise.share(c, sensitivity=1.0, plan=some, rng=Stream(k)) for k, c in enumerate(codes))
        return torch.stack(list(shares)).sum(0)

    return sums


def at_once(some: RoundPlan, *, less: int = 0) -> Callable[[DiscreteGaussian, list[Tensor]], Tensor]:
    """The sum with the noise of all shares at once; or, by mistake, of `less`."""

    def sums(noise: DiscreteGaussian, codes: list[Tensor]) -> Tensor:
        terms = noise.terms(torch.stack(codes), code_size=DRAWS, sensitivity=1.0, plan=some).sum(0)
        shares = len(codes) - less
        return noise.around(terms, shares=shares, sensitivity=1.0, plan=some, rng=Stream(5))

    return sums


CASES = {"nobody drops out": (CLIENTS, {}), "three drop out": (CLIENTS - 3, {"max_dropouts": 3})}


@pytest.mark.parametrize("case", CASES)
def test_a_sum_drawn_at_once_is_distributed_as_the_sum_of_shares(case: str) -> None:
    clients, slack = CASES[case]
    some, noise = plan(**slack), DiscreteGaussian(noise_multiplier=1.0)
    grid = noise.grid(code_size=DRAWS, sensitivity=1.0, plan=some)
    mean = sum(math.trunc(torch.tensor(c).double().item() * grid.units * 256) for c in CODES[:clients]) / 256
    values = np.arange(math.floor(mean - 10 * grid.released_scale), math.ceil(mean + 10 * grid.released_scale))
    mass = pmf(mean, grid.released_scale, values)
    assert p_value(released(clients, some, by_shares(some)), values, mass) > ALPHA
    assert p_value(released(clients, some, at_once(some)), values, mass) > ALPHA
    assert p_value(released(clients, some, at_once(some, less=1)), values, mass) < ALPHA


def shares_pmf(means: list[float], scale: float, values: np.ndarray) -> np.ndarray:
    """The exact distribution of a sum of shares, on values around zero."""
    total = np.ones(1)
    for mean in means:
        total = np.convolve(total, pmf(mean, scale, values))
    start = len(means) * int(values[0])
    return total[int(values[0]) - start : int(values[-1]) - start + 1]


@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize("scale", [0.5, 0.7, 1.0, 1.2])
def test_the_distance_of_a_sum_from_its_shares_is_at_most_the_stated_one(scale: float, count: int) -> None:
    """On scales so small that floats can tell them apart. At 4 units, the least in use, it is below 1e-60."""
    values = np.arange(-60, 61)
    means = [0.37 + 0.11 * k for k in range(count)]
    exact = shares_pmf(means, scale, values)
    distance = np.abs(exact - pmf(sum(means), scale * math.sqrt(count), values)).sum() / 2
    stated = sum_total_variation(scale, count)
    assert distance <= stated + 1e-13
    assert scale > 0.5 or distance > stated / 100  # not a bound that means nothing
    assert sum_total_variation(4.0, 10_000) < 1e-60


def test_small_scales_are_told_apart_and_the_mean_is_not_rounded() -> None:
    """Draws of a sum at once, of shares of 1.2 units, follow the sum of shares; of 0.4 units they must not."""
    values, means = np.arange(-60, 61), [0.375, 0.25, 0.625, 0.5]
    fixed = sum(fixed_point(torch.full((DRAWS,), mean)) for mean in means)
    assert isinstance(fixed, Tensor)
    good = shares_pmf(means, 1.2, values)
    words = StreamSource(Stream(9), torch.device("cpu"))
    assert p_value(draw_around(fixed, 2.4, words), values, good) > ALPHA
    assert p_value(draw_around((fixed >> 8) << 8, 2.4, words), values, good) < ALPHA
    assert p_value(draw_around(fixed, 1.2 * math.sqrt(3), words), values, good) < ALPHA
    assert (
        p_value(
            draw_around(fixed, 0.8, words),
            values,
            shares_pmf(means, 0.4, values),
        )
        < ALPHA
    )


def test_whole_numbers_without_noise_move_a_draw_and_change_nothing_else() -> None:
    """What attackers send that leave out their noise: DG(μ + n, ξ) is DG(μ, ξ) + n."""
    noise, some = DiscreteGaussian(noise_multiplier=1.0), plan()
    terms = noise.terms(torch.full((2, 1000), 0.3), code_size=1000, sensitivity=1.0, plan=some).sum(0)
    options = {"shares": 2, "sensitivity": 1.0, "plan": some, "rng": Stream(4)}
    bits = noise.grid(code_size=1000, sensitivity=1.0, plan=some).bits
    bare = torch.full((1000,), 17)
    moved = noise.around(terms + noise.bare_terms(bare), **options)
    assert torch.equal(moved, (noise.around(terms, **options) + 17) % 2**bits)
    alone = noise.around(noise.bare_terms(bare), **(options | {"shares": 0}))
    assert torch.equal(alone, bare)
