"""Noise that is correlated over rounds, on integers."""

from __future__ import annotations

import itertools
import math
import time

import numpy as np
import pytest
import torch
from scipy.linalg import toeplitz

from laconic.errors import ConfigError, PrivacyError
from laconic.guard.noise import draw_around
from laconic.plan import RoundPlan
from laconic.privacy.accounting.releases import release_of
from laconic.privacy.accounting.sampling import Cyclic
from laconic.privacy.mechanism.correlated import (
    ESTIMATES,
    SCALE,
    SUMS,
    UNIT,
    CorrelatedGaussian,
    choose_bands,
    last_error,
    mean_error,
    noise_in_iterates,
    sensitivity_squared,
    square_root,
    workload,
)
from laconic.privacy.mechanism.discrete_gaussian import StreamSource
from laconic.privacy.mechanism.gaussian import Noise
from laconic.streams import Stream


def matrix(coefficients: list[float], rounds: int) -> np.ndarray:
    column = np.zeros(rounds)
    column[: min(rounds, len(coefficients))] = coefficients[:rounds]
    return np.tril(toeplitz(column))


def patterns(rounds: int, separation: int) -> list[tuple[int, ...]]:
    """All sets of rounds of which no two are closer than the separation: of any number of them, in any place."""
    every = itertools.chain.from_iterable(itertools.combinations(range(rounds), k) for k in range(1, rounds + 1))
    return [p for p in every if all(b - a >= separation for a, b in itertools.pairwise(p))]


@pytest.mark.parametrize("separation", [1, 2, 3, 5])
@pytest.mark.parametrize("rounds", [1, 2, 4, 7, 9])
def test_sensitivity_is_that_of_brute_force(rounds: int, separation: int) -> None:
    """Over every pattern of participations with the separation, and codes in any direction."""
    rng = np.random.default_rng(rounds * 10 + separation)
    for bands in range(1, separation + 1):
        c = [1.0, *rng.uniform(0, 1, bands - 1)]
        factor, found = matrix(c, rounds), 0.0
        for pattern in patterns(rounds, separation):
            codes = np.zeros((rounds, 3))
            codes[list(pattern)] = rng.normal(size=(len(pattern), 3))
            codes[list(pattern)] /= np.linalg.norm(codes[list(pattern)], axis=1, keepdims=True)
            found = max(found, float(np.sum((factor @ codes) ** 2)))
        assert sensitivity_squared(c, rounds, separation) == pytest.approx(found, rel=1e-12)


def test_bands_that_overlap_are_refused() -> None:
    """Then two participations add up in one release, and the sensitivity is a larger one."""
    with pytest.raises(ConfigError, match="lower --noise-bands, or raise --separation"):
        sensitivity_squared([1.0, 0.5, 0.3], 10, 2)
    factor = matrix([1.0, 0.5, 0.3], 10)
    together = float(np.sum(factor[:, ::2].sum(1) ** 2))
    assert together > 5 * (1 + 0.25 + 0.09)


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_the_square_root_is_one(momentum: float) -> None:
    root = matrix(list(square_root(40, momentum)), 40)
    assert np.allclose(root @ root, matrix(list(workload(40, momentum)), 40))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_errors_are_those_of_the_matrices(momentum: float) -> None:
    c, rounds, separation = [1.0, 0.6, 0.3], 11, 4
    left = matrix(list(workload(rounds, momentum)), rounds) @ np.linalg.inv(matrix(c, rounds))
    assert np.allclose(left[:, 0], noise_in_iterates(c, rounds, momentum))
    scale = math.sqrt(sensitivity_squared(c, rounds, separation))
    about = {"rounds": rounds, "separation": separation, "momentum": momentum}
    assert mean_error(c, **about) == pytest.approx(np.linalg.norm(left) / math.sqrt(rounds) * scale)
    assert last_error(c, **about) == pytest.approx(np.linalg.norm(left[-1]) * scale)


@pytest.mark.parametrize(
    ("bands", "separation", "rounds", "momentum"),
    [(1, 1, 5, 0.0), (4, 4, 3, 0.0), (10, 10, 40, 0.0), (10, 20, 200, 0.9), (7, 10, 37, 0.5), (64, 64, 500, 0.9)],
)
def test_the_chosen_bands_are_no_worse_than_independent_noise_or_the_root(
    bands: int, separation: int, rounds: int, momentum: float
) -> None:
    chosen = choose_bands(bands=bands, separation=separation, rounds=rounds, momentum=momentum)
    assert chosen[0] == UNIT and all(0 <= n <= UNIT for n in chosen) and len(chosen) <= bands
    about = {"rounds": rounds, "separation": separation, "momentum": momentum}
    error = mean_error([n / UNIT for n in chosen], **about)
    assert error <= mean_error([1.0], **about)
    assert error <= mean_error(square_root(bands, momentum), **about) * 1.002  # up to rounding to 1024ths
    choose_bands.cache_clear()
    assert choose_bands(bands=bands, separation=separation, rounds=rounds, momentum=momentum) == chosen


def test_one_band_is_independent_noise() -> None:
    assert choose_bands(bands=1, separation=8, rounds=100) == (UNIT,)
    assert sensitivity_squared([1.0], 100, 8) == 13


@pytest.mark.parametrize(
    ("rounds", "separation", "momentum", "mean", "last"),
    [
        (40, 10, 0.0, 0.487, 0.434),
        (100, 20, 0.0, 0.361, 0.318),
        (100, 20, 0.9, 0.264, 0.247),
        (2000, 64, 0.0, 0.161, 0.150),
    ],
)
def test_what_is_gained(rounds: int, separation: int, momentum: float, mean: float, last: float) -> None:
    """The figures of docs/maths.md."""
    about = {"rounds": rounds, "separation": separation, "momentum": momentum}
    chosen = [n / UNIT for n in choose_bands(bands=separation, **about)]
    assert mean_error(chosen, **about) / mean_error([1.0], **about) == pytest.approx(mean, abs=0.001)
    assert last_error(chosen, **about) / last_error([1.0], **about) == pytest.approx(last, abs=0.001)


def test_where_everybody_takes_part_in_every_round_nothing_is_gained_for_the_last_iterate() -> None:
    """‖1ᵀC⁻¹‖·‖C·1‖ ≥ T for every C: Cauchy–Schwarz, with equality for independent noise."""
    rng, rounds = np.random.default_rng(0), 12
    for bands in (1, 2, 5, 12):
        factor = matrix([1.0, *rng.uniform(0, 1, bands - 1)], rounds)
        product = np.linalg.norm(np.linalg.inv(factor).sum(0)) * np.linalg.norm(factor.sum(1))
        assert product >= rounds - 1e-9
        assert bands > 1 or product == pytest.approx(rounds)


def test_it_is_fast() -> None:
    choose_bands.cache_clear()
    choose_bands(bands=2, separation=2, rounds=3)  # scipy is imported
    started = time.process_time()
    choose_bands(bands=64, separation=64, rounds=2000, momentum=0.9)
    assert time.process_time() - started < 1.0


@pytest.mark.parametrize("bands", [11, 65])
def test_more_bands_than_the_separation_are_refused(bands: int) -> None:
    with pytest.raises(ConfigError, match="--noise-bands"):
        choose_bands(bands=bands, separation=10 if bands == 11 else 100, rounds=50)


SIZE, CLIENTS = 500, 6
NOISE = CorrelatedGaussian(noise_multiplier=1.5, coefficients=(UNIT, 600, 411))


def plan(round: int = 1, clients: int = CLIENTS) -> RoundPlan:
    return RoundPlan(
        round=round,
        attempt=0,
        cohort=np.arange(clients),
        planned_cohort=float(clients),
        least_cohort=clients,
        largest_cohort=clients,
        run_seed=0,
        round_seed=0,
        fingerprint="",
    )


def opened(noise: CorrelatedGaussian, codes: torch.Tensor) -> torch.Tensor:
    """The sum of clipped codes as the server opens it."""
    terms = noise.terms(codes, code_size=codes.shape[1], sensitivity=1.0, plan=plan()).sum(0)
    return noise.around(terms, shares=len(codes), sensitivity=1.0, plan=plan(), rng=Stream(0))


def codes(seed: int) -> torch.Tensor:
    drawn = torch.randn(CLIENTS, SIZE, generator=torch.Generator().manual_seed(seed))
    return drawn / drawn.norm(dim=1, keepdim=True)


def test_one_band_is_the_discrete_gaussian_around_the_sum_and_nothing_else() -> None:
    noise = CorrelatedGaussian(noise_multiplier=1.5, coefficients=(UNIT,))
    memory: dict[str, torch.Tensor] = {}
    for round in (1, 2, 3):
        some = codes(round)
        estimate, memory = noise.estimated(
            opened(noise, some), memory, sensitivity=1.0, plan=plan(round), rng=Stream(round)
        )
        assert not memory
        exact = noise.terms(some, code_size=SIZE, sensitivity=1.0, plan=plan()).sum(0)
        drawn = draw_around(UNIT * exact, SCALE, StreamSource(Stream(round), torch.device("cpu")))
        assert torch.equal(estimate, (drawn.double() / UNIT / (32 / 1.5)).float())


def test_what_is_released_is_drawn_around_the_combination_and_the_estimate_follows_from_it_alone() -> None:
    memory: dict[str, torch.Tensor] = {}
    sums, released = [], []
    for round in range(1, 8):
        some = codes(round)
        exact = NOISE.terms(some, code_size=SIZE, sensitivity=1.0, plan=plan()).sum(0)
        sums.append(exact)
        mean = sum(n * sums[-1 - j] for j, n in enumerate(NOISE.coefficients) if j < len(sums))
        assert isinstance(mean, torch.Tensor)
        released.append(draw_around(mean, SCALE, StreamSource(Stream(round), torch.device("cpu"))).double() / UNIT)
        estimate, memory = NOISE.estimated(
            opened(NOISE, some), memory, sensitivity=1.0, plan=plan(round), rng=Stream(round)
        )
        factor = np.tril(sum(c * np.eye(round, k=-j) for j, c in enumerate(NOISE.factors)))
        everything = np.linalg.solve(factor, torch.stack(released).numpy())
        assert np.allclose(estimate.numpy(), everything[-1] / (32 / 1.5), atol=1e-5)
        bits = NOISE.code_bits(code_size=SIZE, sensitivity=1.0, plan=plan())
        assert bits is not None
        assert torch.equal(memory[SUMS][0], exact & (2**bits - 1)) and memory[SUMS].dtype == torch.int64
    assert torch.equal(memory[SUMS], torch.stack(sums[:-3:-1]) & (2**bits - 1))
    assert len(memory[ESTIMATES]) == NOISE.bands - 1


def test_a_code_on_the_grid_is_no_longer_than_before() -> None:
    """So one client moves a release by c_j·S at most, in units of the noise."""
    some = codes(3)
    terms = NOISE.terms(some, code_size=SIZE, sensitivity=1.0, plan=plan()).double() / 256
    assert (terms.norm(dim=1) <= 32 / 1.5 * some.double().norm(dim=1)).all()
    moved = NOISE.combined(torch.zeros(SIZE, dtype=torch.int64), (terms[:2] * 256).long()).double() / 256
    assert moved.norm() / SCALE <= (600 + 411) / UNIT / 1.5


def test_releases_of_all_clients_at_full_length_fit_into_the_bits() -> None:
    """Every client's code is the same and as long as may be, in all the rounds that meet in one release."""
    full = torch.zeros(CLIENTS, SIZE)
    full[:, 0] = 1.0
    exact = NOISE.terms(full, code_size=SIZE, sensitivity=1.0, plan=plan()).sum(0)
    bits = NOISE.code_bits(code_size=SIZE, sensitivity=1.0, plan=plan())
    assert bits is not None
    for sign in (1, -1):
        total = NOISE.around(sign * exact, shares=0, sensitivity=1.0, plan=plan(), rng=Stream(0))
        assert int(total.min()) >= 0 and int(total.max()) < 2**bits
        mean = NOISE.combined(total, torch.stack([total, total]))
        released = NOISE._released(mean, bits, Stream(1)) * UNIT
        away = released - sign * sum(NOISE.coefficients) * exact.double() / 256
        assert float(away.abs().max()) < 6 * SCALE


def test_a_sum_that_takes_too_many_bits_is_refused() -> None:
    with pytest.raises(PrivacyError, match="raise --separation"):
        NOISE.grid(code_size=SIZE, sensitivity=1.0, plan=plan(clients=20_000_000))


def test_it_cannot_be_taken_for_noise_that_is_independent_or_added_by_clients() -> None:
    for call in (
        lambda: NOISE.share(codes(0), sensitivity=1.0, plan=plan(), rng=Stream(0)),
        lambda: NOISE.released(codes(0), sensitivity=1.0, plan=plan(), survivors=6, rng=Stream(0)),
    ):
        with pytest.raises(PrivacyError):
            call()


def test_it_is_written_down_and_read_back() -> None:
    assert Noise.from_dict(NOISE.to_dict()) == NOISE
    assert Noise.from_dict(NOISE.to_dict() | {"coefficients": list(NOISE.coefficients)}) == NOISE
    assert NOISE.central and NOISE.on_integers


@pytest.mark.parametrize("wrong", [(), (1000,), (UNIT, UNIT + 1), (UNIT, -1), (UNIT, 0.5), (UNIT,) * 65])
def test_other_coefficients_are_refused(wrong: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="coefficients"):
        CorrelatedGaussian(noise_multiplier=1.0, coefficients=wrong)


def test_smoothing_costs_next_to_nothing() -> None:
    release = release_of(NOISE, sampler=Cyclic(separation=8), num_clients=40)
    assert 0 < 1 - release.multiplier / 1.5 < 1e-8
    assert math.isclose(SCALE, 32768)
