"""The transform and its codec: orthonormal, adjoint, linear, any length."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import fft

from laconic.codecs import dct as module
from laconic.codecs.dct import LowPassDCT, dct, dct_adjoint
from laconic.plan import RoundPlan


def plan(seed: int = 5) -> RoundPlan:
    return RoundPlan(
        round=1,
        attempt=0,
        cohort=np.arange(3),
        planned_cohort=3.0,
        run_seed=seed,
        round_seed=seed + 1,
        fingerprint="",
    )


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


lengths = st.integers(1, 70)


@pytest.fixture(params=["matrix", "fft"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both implementations: small problems use a matrix, large ones an FFT."""
    if request.param == "fft":
        monkeypatch.setattr(module, "_LARGEST_MATRIX", 0)
    return str(request.param)


@pytest.mark.parametrize("length", [1, 2, 3, 8, 17, 64, 131])
def test_it_is_scipys_orthonormal_dct(length: int, way: str) -> None:
    signal = draw(3, length)
    expected = fft.dct(signal.double().numpy(), norm="ortho")
    for count in {1, (length + 1) // 2, length}:
        assert np.allclose(dct(signal, count).numpy(), expected[:, :count], atol=2e-5)


@pytest.mark.parametrize("length", [1, 2, 3, 8, 17, 64, 131])
def test_the_adjoint_passes_the_dot_test(length: int, way: str) -> None:
    """⟨Θs, y⟩ = ⟨s, Θᵀy⟩, and ΘΘᵀ = I."""
    for count in {1, (length + 1) // 2, length}:
        signal, code = draw(2, length), draw(2, count, seed=1)
        left, right = (dct(signal, count) * code).sum(), (signal * dct_adjoint(code, length)).sum()
        assert float(left) == pytest.approx(float(right), abs=1e-4)
        assert torch.allclose(dct(dct_adjoint(code, length), count), code, atol=2e-5)


@given(st.integers(1, 90), st.integers(1, 7), st.floats(0.05, 1), st.sampled_from(["shuffled", "natural"]))
def test_the_codec_is_linear_and_keeps_norms_down(size: int, chunks: int, ratio: float, order: str) -> None:
    codec = LowPassDCT(ratio=ratio, num_chunks=chunks, order=order)
    updates = draw(2, size)
    codes = codec.encode(updates, plan(), [])
    assert codes.shape == (2, codec.code_size(size))
    assert torch.allclose(codec.encode(updates.sum(0)[None], plan(), [])[0], codes.sum(0), atol=1e-4)
    assert float(codes[0].norm()) <= float(updates[0].norm()) * (1 + 1e-5)
    code = draw(codec.code_size(size), seed=2)
    left, right = (codes[0] * code).sum(), (updates[0] * codec.decode(code, size, plan())).sum()
    assert float(left) == pytest.approx(float(right), abs=1e-3)


@given(st.integers(1, 90), st.integers(1, 7))
def test_all_coefficients_give_the_update_back(size: int, chunks: int) -> None:
    codec = LowPassDCT(ratio=1.0, num_chunks=chunks)
    update = draw(1, size)
    assert torch.allclose(codec.decode(codec.encode(update, plan(), [])[0], size, plan()), update[0], atol=1e-4)


def test_the_shuffle_is_the_runs_not_the_rounds() -> None:
    codec = LowPassDCT(ratio=0.5, num_chunks=2)
    update = draw(1, 40)
    same = codec.encode(update, plan(5), [])
    assert torch.equal(same, codec.encode(update, plan(5), []))
    assert not torch.allclose(same, codec.encode(update, plan(6), []))


def test_the_papers_sizes() -> None:
    codec = LowPassDCT(ratio=0.05, num_chunks=200)
    assert codec.chunk_sizes(1_663_370) == (200, 8317, 416)
    assert LowPassDCT(ratio=0.001, num_chunks=200).chunk_sizes(1_663_370) == (200, 8317, 9)
    assert LowPassDCT(ratio=0.001, num_chunks=100).chunk_sizes(1_496_601)[0] == 100


@given(st.integers(50, 100_000), st.floats(0.01, 1), st.integers(1, 300))
def test_small_models_send_about_the_ratio_too(size: int, ratio: float, chunks: int) -> None:
    sent = LowPassDCT(ratio=ratio, num_chunks=chunks).code_size(size)
    assert ratio * size <= sent + 1e-6 <= 1.3 * ratio * size + 9
