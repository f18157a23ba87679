"""Noise that is correlated over rounds, on integers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from laconic.errors import ConfigError, PrivacyError
from laconic.guard.noise import draw_around
from laconic.plan import RoundPlan
from laconic.privacy.accounting.cyclic import Cyclic
from laconic.privacy.accounting.releases import release_of
from laconic.privacy.mechanism.bands import UNIT
from laconic.privacy.mechanism.correlated import ESTIMATES, SCALE, SUMS, CorrelatedGaussian
from laconic.privacy.mechanism.discrete_sampler import StreamSource
from laconic.privacy.mechanism.gaussian import Noise
from laconic.streams import Stream

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
