"""Schemes that must coincide where their parts say so."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from scheme_tools import run, scheme

from laconic import schemes
from laconic.privacy.mechanism.clip import L2Clip
from laconic.privacy.mechanism.gaussian import Gaussian
from laconic.scheme import Scheme

TRAIN: dict[str, Any] = {"local_lr": 0.3, "local_steps": 3, "batch_size": 5}


def weights(chosen: Scheme, **options: Any) -> torch.Tensor:
    result = run(chosen, engine="one-by-one", rounds=4, **options)
    return torch.cat([p.detach().reshape(-1) for p in result.model.parameters()])


def test_fl_bas_2_is_fl_rnd() -> None:
    assert torch.equal(weights(scheme("fl-bas-2")), weights(scheme("fl-rnd")))


SUBSETS = [schemes.fl_rnd, schemes.fl_top, schemes.fl_basic, schemes.fl_bas_4, schemes.fl_top_bis]


@pytest.mark.parametrize("make", SUBSETS)
def test_a_subset_of_everything_is_fl_std(make: Any) -> None:
    assert torch.allclose(weights(make(ratio=1.0, **TRAIN)), weights(schemes.fl_std(**TRAIN)), atol=1e-6)


@pytest.mark.parametrize("order", ["shuffled", "natural"])
def test_all_frequencies_are_fl_std(order: str) -> None:
    frequencies = schemes.fl_freq(ratio=1.0, num_chunks=3, order=order, **TRAIN)
    assert torch.allclose(weights(frequencies), weights(schemes.fl_std(**TRAIN)), atol=1e-5)


def test_fl_cs_with_all_coefficients_is_fl_std_with_momentum() -> None:
    """Up to λ; and up to weighting, which is uniform in FL-CS."""
    sensing = schemes.fl_cs(ratio=1.0, num_chunks=3, l1_weight=1e-9, momentum=0.8, server_lr=0.5, **TRAIN)
    averaging = dataclasses.replace(schemes.fl_std(momentum=0.8, server_lr=0.5, **TRAIN), weighting="uniform")
    assert torch.allclose(weights(sensing), weights(averaging), atol=1e-5)


@pytest.mark.parametrize("name", ["fl-std", "fl-cs", "fl-top", "fl-rnd", "fl-freq", "fl-basic", "fl-bas-3"])
def test_no_noise_and_no_bound_is_the_plain_scheme(name: str) -> None:
    """σ → 0 and S → ∞, with everyone taking part so that planned and actual cohort agree."""
    plain = dataclasses.replace(scheme(name), weighting="uniform")
    private = dataclasses.replace(
        scheme(f"{name}-dp"), clip=L2Clip(clip_norm=1e3), noise=Gaussian(noise_multiplier=1e-10)
    )
    options: dict[str, Any] = {"sampling_rate": 1.0}
    # The sparse solver stops at a duality gap, which rounding may meet some iterations earlier or later.
    tolerance = 2e-3 if name == "fl-cs" else 1e-5
    assert torch.allclose(weights(private, **options), weights(plain, **options), atol=tolerance)
