"""Clipping, for any code."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from laconic.errors import ConfigError
from laconic.privacy.mechanism.clip import L2Clip, NoClip

floats = st.floats(-(2.0**127), 2.0**127, width=32)
codes = hnp.arrays(np.float32, hnp.array_shapes(min_dims=1, max_dims=2, max_side=30), elements=floats)
norms = st.floats(1e-6, 1e6)


@given(codes, norms)
def test_no_norm_above_the_bound(code: np.ndarray, clip_norm: float) -> None:
    clipped = L2Clip(clip_norm=clip_norm)(torch.from_numpy(code))
    assert torch.all(torch.linalg.vector_norm(clipped.double(), dim=-1) <= clip_norm)
    assert clipped.dtype == torch.float32


@given(codes, norms)
def test_clipping_twice_changes_nothing(code: np.ndarray, clip_norm: float) -> None:
    clip = L2Clip(clip_norm=clip_norm)
    once = clip(torch.from_numpy(code))
    assert torch.allclose(clip(once), once, rtol=2e-6, atol=0)


@given(hnp.arrays(np.float32, 8, elements=st.floats(-1, 1, width=32)))
def test_small_codes_stay_as_they_are(code: np.ndarray) -> None:
    tensor = torch.from_numpy(code)
    assert torch.equal(L2Clip(clip_norm=10.0)(tensor), tensor)
    assert torch.equal(NoClip()(tensor), tensor)


@given(st.sampled_from([float("nan"), float("inf"), float("-inf")]), st.integers(0, 4))
def test_what_has_no_norm_contributes_nothing(bad: float, place: int) -> None:
    code = torch.ones(2, 5)
    code[0, place] = bad
    clipped = L2Clip(clip_norm=1.0)(code)
    assert torch.equal(clipped[0], torch.zeros(5))
    assert float(clipped[1].norm()) > 0.99


def test_a_zero_code_is_no_division_by_zero() -> None:
    assert torch.equal(L2Clip(clip_norm=1.0)(torch.zeros(3)), torch.zeros(3))


@pytest.mark.parametrize("norm", [1e-30, 3e-30, 1e-20, 1e30])
def test_the_bound_holds_at_the_ends_of_what_float32_can_hold(norm: float) -> None:
    rng = np.random.default_rng(0)
    for count in (1, 4, 21, 1000):
        codes = torch.from_numpy(rng.normal(size=(50, count)).astype(np.float32)) * 1e6
        clipped = L2Clip(clip_norm=norm)(codes)
        assert float(torch.linalg.vector_norm(clipped.double(), dim=-1).max()) <= norm


@pytest.mark.parametrize("norm", [0.501 * 2.0**-149, 1e-40, 9e-31, 2e30])
def test_norms_at_which_rounding_shows_are_refused(norm: float) -> None:
    """Among the smallest floats of all, a clipped code could measure twice its bound."""
    with pytest.raises(ConfigError, match="clip_norm must be 1e-30 to 1e\\+30"):
        L2Clip(clip_norm=norm)
