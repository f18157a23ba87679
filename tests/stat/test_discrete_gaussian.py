"""The discrete Gaussian sampler against its exact pmf. False-alarm rate of each test: 1e-6."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from laconic.errors import PrivacyError
from laconic.guard.noise import draw_total_variation
from laconic.packing import centred
from laconic.plan import RoundPlan
from laconic.privacy.mechanism.discrete_gaussian import (
    DiscreteGaussian,
    StreamSource,
    discrete_tables,
    draw_discrete_gaussian,
    papers_bits,
)
from laconic.streams import Stream, side_by_side

pytestmark = pytest.mark.stat
ALPHA, DRAWS = 1e-6, 400_000
CASES = [(0.0, 0.3), (0.5, 0.3), (0.0, 1.0), (0.25, 0.7), (-3.625, 4.0), (0.37, 5.0), (0.5, 30.0), (0.0, 198.6)]
LARGE = [(0.9, 3000.0), (0.0, 50_000.0)]


def p_value(draws: np.ndarray, mean: float, scale: float) -> float:
    """χ² of the draws against DG(mean, scale), values grouped so that every group expects 20 or more."""
    low, high = math.floor(mean - 8 * scale) - 1, math.ceil(mean + 8 * scale) + 1
    values = np.arange(low, high + 1)
    mass = np.exp(-((values - mean) ** 2) / (2 * scale**2))
    expected = mass / mass.sum() * len(draws)
    observed = np.bincount(np.clip(draws, low, high) - low, minlength=len(values))
    behind = np.cumsum(expected[::-1])[::-1]
    edges, running = [0], 0.0
    for place, count in enumerate(expected[:-1]):
        running += count
        if running >= 20 and behind[place + 1] >= 20:
            edges.append(place + 1)
            running = 0.0
    grouped = [np.add.reduceat(x, edges) for x in (observed, expected)]
    if len(edges) == 1:
        return 1.0
    return float(stats.chisquare(grouped[0], grouped[1] * grouped[0].sum() / grouped[1].sum()).pvalue)


def draws_of(mean: float, scale: float, *, integer_mean: bool = False, seed: int = 3) -> np.ndarray:
    means = torch.full((DRAWS,), mean, dtype=torch.float64)
    return draw_discrete_gaussian(means, scale, Stream(seed), integer_mean=integer_mean).numpy()


@pytest.mark.parametrize(("mean", "scale"), CASES + LARGE)
def test_draws_follow_the_pmf(mean: float, scale: float) -> None:
    cut = math.trunc(mean * 256) / 256
    assert p_value(draws_of(mean, scale), cut, scale) > ALPHA


@pytest.mark.parametrize(("mean", "scale"), [(1.0, 0.5), (-1.0, 4.0), (1.0, 198.6), (0.0, 2000.0)])
def test_whole_means_have_a_short_cut(mean: float, scale: float) -> None:
    assert p_value(draws_of(mean, scale, integer_mean=True), mean, scale) > ALPHA


@pytest.mark.parametrize(("mean", "scale"), [(0.5, 1.0), (0.37, 5.0), (0.0, 198.6)])
def test_sabotage_is_noticed(mean: float, scale: float) -> None:
    """Noise two per cent too small, and a rounded float normal where that matters."""
    cut = math.trunc(mean * 256) / 256
    assert p_value(draws_of(mean, scale * 0.98), cut, scale) < ALPHA
    if scale <= 1:
        rounded = np.rint(np.random.default_rng(0).normal(mean, scale, DRAWS)).astype(np.int64)
        assert p_value(rounded, mean, scale) < ALPHA


def test_tails_are_there() -> None:
    """Beyond 4ξ lies 6.3e-5 of the mass; a sampler that cuts tails shows none of it."""
    draws = np.concatenate([draws_of(0.0, 50.0, integer_mean=True, seed=s) for s in range(5)])
    expected = 2 * stats.norm.sf(200.5 / 50)
    assert stats.binomtest(int((np.abs(draws) > 200).sum()), len(draws), expected).pvalue > ALPHA
    assert stats.binomtest(0, len(draws), expected).pvalue < ALPHA


def test_a_vector_of_means() -> None:
    means = torch.linspace(-3, 3, DRAWS)
    noise = draw_discrete_gaussian(means, 6.0, Stream(1)).double() - means
    assert float(noise.mean()) == pytest.approx(0, abs=5 * 6 / math.sqrt(DRAWS))
    assert float(noise.std()) == pytest.approx(6.0, rel=5 / math.sqrt(2 * DRAWS))
    assert stats.pearsonr(noise.numpy(), means.numpy()).pvalue > ALPHA


def test_the_seed_decides() -> None:
    assert np.array_equal(draws_of(0.3, 7.0), draws_of(0.3, 7.0))
    assert not np.array_equal(draws_of(0.3, 7.0), draws_of(0.3, 7.0, seed=4))


@pytest.mark.parametrize("scale", [0.3, 1.0, 4.0, 5.0, 200.0, 1986.0, 1e5])
def test_the_whole_run_stays_within_a_hundredth_of_delta(scale: float) -> None:
    """3·10¹⁰ draws at δ = 1e-5: 16 real-valued decimals would already cost 3e-6."""
    assert 3e10 * draw_total_variation(scale) < 1e-5 / 100


def plan(cohort: int, **options: int) -> RoundPlan:
    return RoundPlan(
        round=1,
        attempt=0,
        cohort=np.arange(cohort),
        planned_cohort=float(cohort),
        **({"least_cohort": cohort, "largest_cohort": cohort} | options),
        run_seed=0,
        round_seed=0,
        fingerprint="",
    )


ON_SIGNS = {size: math.sqrt(size) for size in (10, 650, 10_000)}


def test_fl_sign_dp_in_figures() -> None:
    """n = 1,663,370, 100 clients, σ = 1.54: 16 bits from the tail of the sum, 22 by the papers' formula."""
    noise, size = DiscreteGaussian(noise_multiplier=1.54, signs=True), 1_663_370
    root = math.sqrt(size)
    grid = noise.grid(code_size=size, sensitivity=root, plan=plan(100))
    assert grid.bits == 16
    assert noise.grid(code_size=size, sensitivity=root, plan=plan(100, largest_cohort=220)).bits == 16
    assert grid.share_scale(100) == pytest.approx(198.6, abs=0.05)
    assert grid.units == 1
    assert grid.log2_wrap < -40
    assert papers_bits(code_size=size, cohort=100, noise_multiplier=1.54) == 22
    assert papers_bits(code_size=size, cohort=100, noise_multiplier=1.0) == 21
    assert noise.epsilon_slack(code_size=size, sensitivity=root, plan=plan(100)) * 1000 < 1e-20


def test_fl_top_dp_in_figures() -> None:
    """8,317 weights of 1,663,370, 100 clients, σ = 1.54: 13 bits at 4 grid units a share, whatever S is."""
    noise = DiscreteGaussian(noise_multiplier=1.54)
    for clip_norm in (0.01, 0.61, 40.0):
        grid = noise.grid(code_size=8317, sensitivity=clip_norm, plan=plan(100))
        assert grid.bits == 13
        assert grid.share_scale(100) == pytest.approx(4)
        assert grid.units == pytest.approx(40 / (clip_norm * 1.54))
        assert grid.log2_wrap < -40
        assert noise.epsilon_slack(code_size=8317, sensitivity=clip_norm, plan=plan(100)) * 1000 < 1e-15


@pytest.mark.parametrize("signs", [False, True])
@pytest.mark.parametrize("slack", [0, 3])
@pytest.mark.parametrize("cohort", [5, 64, 1000])
@pytest.mark.parametrize("size", [1, 650, 1_663_370])
def test_the_sum_fits_and_one_bit_less_would_not_do(size: int, cohort: int, slack: int, signs: bool) -> None:
    """The largest possible sum of codes and a noise that is exceeded with probability 2^−41 fit into b bits."""
    noise = DiscreteGaussian(noise_multiplier=0.8, signs=signs)
    sensitivity = math.sqrt(size) if signs else 0.3
    chosen = plan(cohort, max_dropouts=slack)
    grid = noise.grid(code_size=size, sensitivity=sensitivity, plan=chosen)
    room = 2 ** (grid.bits - 1) - cohort * grid.units * (1.0 if signs else sensitivity)
    # log sf: the tail is far beyond what a float can hold otherwise
    assert math.log(2 * size) + stats.norm.logsf(room / grid.released_scale) < -40 * math.log(2)
    assert grid.share_scale(chosen.noise_shares) >= 4 * (1 - 1e-9)
    if grid.bits > 8:
        with pytest.raises(PrivacyError, match=f"use --bits {grid.bits} or more"):
            DiscreteGaussian(noise_multiplier=0.8, signs=signs, bits=grid.bits - 1).grid(
                code_size=size, sensitivity=sensitivity, plan=chosen
            )


def test_more_bits_make_a_finer_grid() -> None:
    scales = []
    for bits in (13, 16, 24, 32):
        noise = DiscreteGaussian(noise_multiplier=1.54, bits=bits)
        grid = noise.grid(code_size=8317, sensitivity=0.61, plan=plan(100))
        assert grid.bits == bits
        assert grid.log2_wrap < -40
        scales.append(grid.share_scale(100))
    assert scales == sorted(scales)
    assert scales[-1] > 2**18 * scales[0]


def test_a_cohort_larger_than_planned_is_refused() -> None:
    grid = DiscreteGaussian(noise_multiplier=1.0).grid(code_size=10, sensitivity=1.0, plan=plan(100))
    with pytest.raises(PrivacyError, match="3.98 grid units"):
        grid.share_scale(101)


def test_shares_are_never_narrower_than_four_units() -> None:
    for size, root in ON_SIGNS.items():
        for cohort in (1, 10, 1000):
            for noise in (
                DiscreteGaussian(noise_multiplier=0.5, signs=True),
                DiscreteGaussian(noise_multiplier=0.5),
            ):
                grid = noise.grid(code_size=size, sensitivity=root, plan=plan(cohort))
                assert grid.share_scale(cohort) >= 4 * (1 - 1e-9)
                assert grid.scale >= 32 * (1 - 1e-9)


@pytest.mark.parametrize("signs", [False, True])
@pytest.mark.parametrize("survivors", [0, 18, 20])
def test_the_released_integers_have_the_same_noise_whoever_came(survivors: int, signs: bool) -> None:
    noise, size = DiscreteGaussian(noise_multiplier=2.0, signs=signs), 100_000
    chosen, sensitivity = plan(20, max_dropouts=2), 10.0
    total = torch.zeros(size, dtype=torch.int64)
    for k in range(survivors):
        total += noise.share(torch.zeros(size), sensitivity=sensitivity, plan=chosen, rng=Stream(k))
    released = noise.released(total, sensitivity=sensitivity, plan=chosen, survivors=survivors, rng=Stream(99))
    units = noise.grid(code_size=size, sensitivity=sensitivity, plan=chosen).units
    expected = math.sqrt((units * 20.0) ** 2 * 20 / 18 + 16)
    draws = (released * units).round().long().numpy()
    assert p_value(draws, 0.0, expected) > ALPHA
    assert p_value(draws, 0.0, expected * 1.05) < ALPHA


def summed_shares(noise: DiscreteGaussian, code: torch.Tensor, sensitivity: float, cohort: int) -> np.ndarray:
    """What the server opens: the sum of the residues, centred."""
    chosen = plan(cohort)
    bits = noise.code_bits(code_size=len(code), sensitivity=sensitivity, plan=chosen)
    assert bits is not None
    shares = [noise.share(code, sensitivity=sensitivity, plan=chosen, rng=Stream(k)) for k in range(cohort)]
    return centred((torch.stack(shares).sum(0) % 2**bits).numpy(), bits)


def test_the_sum_of_shares_around_signs_is_the_mechanism() -> None:
    """χ² of summed shares against one DG of the total scale, and a sabotaged twin with 2 % less."""
    cohort, sensitivity = 25, 16.0
    code, scale = torch.ones(400_000), 2.5 * 16.0

    def total(sigma: float) -> np.ndarray:
        return summed_shares(DiscreteGaussian(noise_multiplier=sigma, signs=True), code, sensitivity, cohort)

    grid = DiscreteGaussian(noise_multiplier=2.5, signs=True).grid(
        code_size=400_000, sensitivity=sensitivity, plan=plan(cohort)
    )
    assert grid.units == 1
    assert p_value(total(2.5), cohort, scale) > ALPHA
    assert p_value(total(2.5 * 0.98), cohort, scale) < ALPHA


def test_the_sum_of_shares_around_reals_is_the_mechanism() -> None:
    """The same around a real point, against its exact pmf. The twin draws 2 % less; another one rounds the point first.

    The grid is as coarse as it gets, so that rounding would show: 4 units a share, and a point 0.37 off the integers.
    """
    cohort, size, sensitivity, sigma = 25, 400_000, 3.0, 1.1
    noise = DiscreteGaussian(noise_multiplier=sigma)
    grid = noise.grid(code_size=size, sensitivity=sensitivity, plan=plan(cohort))
    point = 5 + 95 / 256  # exactly what the sampler can take
    code = torch.full((size,), point / grid.units, dtype=torch.float64)
    total = summed_shares(noise, code, sensitivity, cohort)
    assert p_value(total, cohort * point, grid.scale) > ALPHA
    assert p_value(total, cohort * point, grid.scale * 0.98) < ALPHA
    rounded = summed_shares(noise, torch.round(code * grid.units) / grid.units, sensitivity, cohort)
    assert p_value(rounded, cohort * point, grid.scale) < ALPHA


def test_rows_drawn_at_once_are_those_drawn_alone() -> None:
    """Also where a word falls on a boundary of the table, so that more are drawn, each from its row's own stream."""
    means = torch.linspace(-4, 4, 3 * 500).reshape(3, 500)
    streams = [Stream(k) for k in range(3)]
    together = draw_discrete_gaussian(means, 5.0, side_by_side(streams))
    assert all(torch.equal(together[k], draw_discrete_gaussian(means[k], 5.0, streams[k])) for k in range(3))
    words = side_by_side(streams).words_at(torch.tensor([3, 700, 701, 1499]), 1500)
    alone = [stream.words(count, torch.device("cpu")) for stream, count in zip(streams, (1, 2, 1), strict=True)]
    assert torch.equal(words, torch.cat(alone))


def test_a_word_on_a_boundary_is_decided_by_more_bits() -> None:
    """Once in 10¹⁵ draws: here a stream whose words are all the boundary of one entry."""
    table = discrete_tables(4.0, 1, "cpu")
    entry = int((table.high[0] >= 0).nonzero()[0])

    class Scripted(Stream):
        def words(self, count: int, device: torch.device) -> torch.Tensor:
            return table.high[0, entry].repeat(count)

        def fork(self, name: str) -> Stream:
            return Stream(5)

    drawn = table.draw(None, 10_000, StreamSource(Scripted(0), torch.device("cpu"))) - table.first
    assert set(drawn.tolist()) == {entry, entry + 1}
    share = (int(table.low[0, entry]) + 2**63) / 2**64
    assert stats.binomtest(int((drawn == entry).sum()), 10_000, share).pvalue > ALPHA
