"""The banded matrix mechanism, for any bands, rounds and separation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from laconic.privacy.accounting.accountant import Accountant
from laconic.privacy.accounting.sampling import Cyclic
from laconic.privacy.mechanism.correlated import UNIT, CorrelatedGaussian, choose_bands, mean_error, sensitivity_squared
from laconic.streams import Streams

later = st.lists(st.integers(0, UNIT), max_size=9)
rounds = st.integers(1, 60)
more = st.integers(0, 12)


def moved(c: np.ndarray, taken: list[int], rounds: int) -> float:
    """Σ_t ‖C_t‖² over the rounds t (from 0) that a client takes part in, by the columns themselves."""
    columns = np.zeros((rounds, len(taken)))
    for place, start in enumerate(taken):
        length = min(len(c), rounds - start)
        columns[start : start + length, place] = c[:length]
    assert (np.count_nonzero(columns, axis=1) <= 1).all()  # no release has two of its codes in it
    return float(np.square(columns).sum())


@given(later, rounds, more, st.integers(0, 2**20))
def test_no_client_moves_the_releases_more_than_is_accounted_for(rest: list[int], n: int, gap: int, seed: int) -> None:
    """By the cohorts that the sampler really makes, and for some client exactly so much."""
    noise = CorrelatedGaussian(noise_multiplier=1.0, coefficients=(UNIT, *rest))
    turns, clients = Cyclic(separation=noise.bands + gap), noise.bands + gap + 3
    cohorts = [turns.cohort(clients, Streams(seed), t + 1, 0) for t in range(n)]
    costs = [moved(np.array(noise.factors), [t for t in range(n) if k in cohorts[t]], n) for k in range(clients)]
    accountant = Accountant(sampler=turns, noise=noise, num_clients=clients, delta=1e-5)
    assert accountant.after(n)[0].moved_squared == pytest.approx(max(costs), rel=1e-12)


@given(later, rounds, more)
def test_sensitivity_never_falls(rest: list[int], n: int, gap: int) -> None:
    c = [1.0, *(units / UNIT for units in rest)]
    assert sensitivity_squared(c, n, len(c) + gap) <= sensitivity_squared(c, n + 1, len(c) + gap)


@given(later, st.integers(1, 12), st.integers(0, 2**31))
def test_without_noise_the_estimates_are_the_sums(rest: list[int], n: int, seed: int) -> None:
    """C⁻¹·C = 1: combining sums and inverting again gives them back."""
    noise = CorrelatedGaussian(noise_multiplier=1.0, coefficients=(UNIT, *(units // 2 for units in rest)))
    sums = torch.randint(-(2**24), 2**24, (n, 3), generator=torch.Generator().manual_seed(seed))
    known = torch.zeros((noise.bands - 1, 3), dtype=torch.int64)
    estimates = known.double()
    for one in sums:
        released = noise.combined(one, known).double() / UNIT
        estimate = noise.inverted(released, estimates)
        assert torch.allclose(estimate, one.double(), rtol=0, atol=1e-2)
        if noise.bands > 1:
            known = torch.cat([one[None], known[:-1]])
            estimates = torch.cat([estimate[None], estimates[:-1]])


@given(st.integers(1, 12), more, rounds, st.floats(0, 0.95))
def test_chosen_bands_are_valid_and_no_worse_than_independent_noise(b: int, gap: int, n: int, momentum: float) -> None:
    about = {"separation": b + gap, "rounds": n, "momentum": momentum}
    chosen = choose_bands(bands=b, separation=b + gap, rounds=n, momentum=momentum)
    CorrelatedGaussian(noise_multiplier=1.0, coefficients=chosen)
    error = mean_error([units / UNIT for units in chosen], **about)  # type: ignore[arg-type]
    assert error <= mean_error([1.0], **about) * (1 + 1e-12)  # type: ignore[arg-type]
