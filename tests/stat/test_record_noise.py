"""The integer noise of DP-SGD steps: its scale, its grid, and that the grid costs no privacy."""

from __future__ import annotations

import math

import pytest
import torch

from laconic.privacy.mechanism.discrete_gaussian import noisy_sum, record_delta_slack, record_grid
from laconic.streams import Stream

SIZE = 40_000


@pytest.mark.parametrize(("clip_norm", "sigma"), [(1.0, 1.0), (0.01, 0.3), (7.0, 12.0)])
def test_the_noise_is_a_little_more_than_was_asked_for(clip_norm: float, sigma: float) -> None:
    mean = torch.linspace(-clip_norm, clip_norm, SIZE)
    noisy = noisy_sum(mean, clip_norm=clip_norm, noise_multiplier=sigma, stream=Stream(7))
    noise = (noisy - mean).double() / (clip_norm * sigma)
    assert abs(float(noise.mean())) < 5 / math.sqrt(SIZE)
    variance = float(noise.square().mean())
    assert 1 - 5 * math.sqrt(2 / SIZE) < variance < 1.01 + 5 * math.sqrt(2 / SIZE)


@pytest.mark.parametrize("size", [10, 650, 1_663_370, 10**8])
@pytest.mark.parametrize("sigma", [0.2, 1.0, 20.0])
def test_cutting_and_smoothing_are_made_up_for(size: int, sigma: float) -> None:
    """The accounted σ is what is left of the noise, over what neighbouring sums may differ by on the grid."""
    clip_norm = 0.5
    grid = record_grid(size, clip_norm, sigma)
    left = math.sqrt(grid.scale**2 - 4)
    differ = grid.units * clip_norm + math.sqrt(size) / 256
    assert left / differ >= sigma * (1 - 1e-12)
    assert left / (grid.units * clip_norm) <= sigma * 1.002  # and little more than that is added
    assert record_delta_slack(size, 1000, sigma) < 1e-9


def test_values_are_on_the_grid() -> None:
    grid = record_grid(100, 1.0, 1.0)
    noisy = noisy_sum(torch.rand(100), clip_norm=1.0, noise_multiplier=1.0, stream=Stream(3))
    steps = noisy.double() * grid.units
    assert float((steps - steps.round()).abs().max()) < 1e-4
