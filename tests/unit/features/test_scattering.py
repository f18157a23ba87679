"""The scattering transform against its definition, and what makes it useful: it hardly minds small shifts."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from laconic.features.scattering import ANGLES, CHANNELS, Scattering, morlet


def images(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float32)


def circular(image: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """Σ_v image(v)·kernel(u − v) on a torus, term by term."""
    result = np.zeros(image.shape, dtype=np.complex128)
    for row in range(image.shape[0]):
        for column in range(image.shape[1]):
            result += image[row, column] * np.roll(kernel, (row, column), axis=(0, 1))
    return result


def gaussian(height: int, width: int, spread: float) -> np.ndarray:
    places = [
        np.exp(-np.square(np.arange(n)[:, None] + n * np.arange(-2, 3)) / (2 * spread**2)).sum(1)
        for n in (height, width)
    ]
    return np.outer(*places) / (2 * math.pi * spread**2)


def test_every_order_follows_its_formula() -> None:
    """On 12 × 8 pixels, mirrored to 20 × 16, by sums instead of Fourier transforms and on all pixels."""
    image = images(1, 1, 12, 8)
    x = np.pad(image[0, 0].double().numpy(), 4, mode="reflect")
    phi = gaussian(*x.shape, 1.6)
    psi = [[morlet(*x.shape, j, angle).numpy() for angle in range(ANGLES)] for j in range(2)]

    def blurred(field: np.ndarray) -> np.ndarray:
        return circular(field, phi).real[4:-4:4, 4:-4:4]

    fine = [np.abs(circular(x, wavelet)) for wavelet in psi[0]]
    coarse = [np.abs(circular(x, wavelet)) for wavelet in psi[1]]
    got = Scattering(12, 8)(image)[0].double().numpy()
    assert got.shape == (CHANNELS, 3, 2)
    exact = np.stack([blurred(x), *map(blurred, fine)])
    assert np.abs(got[:9] - exact).max() < 1e-5
    # From scale 1 on the transform looks at every other pixel; that is almost the same.
    second = [np.abs(circular(fine[a], psi[1][b])) for a in range(0, ANGLES, 3) for b in range(0, ANGLES, 2)]
    rows = [17 + ANGLES * a + b for a in range(0, ANGLES, 3) for b in range(0, ANGLES, 2)]
    for found, expected in ((got[9:17], coarse), (got[rows], second)):
        close = np.stack([blurred(field) for field in expected])
        assert np.sqrt(np.square(found - close).mean()) < 0.03 * np.sqrt(np.square(close).mean())


def test_wavelets_see_no_constant() -> None:
    for scale in range(2):
        for angle in range(ANGLES):
            assert abs(complex(morlet(36, 36, scale, angle).sum())) < 1e-12
    flat = Scattering(28, 28)(torch.full((1, 1, 28, 28), 0.7))[0]
    assert torch.allclose(flat[0], torch.tensor(0.7), atol=1e-3)
    assert float(flat[1:].abs().max()) < 1e-5


def test_a_stripe_excites_the_wavelet_of_its_direction() -> None:
    down = torch.arange(28.0)[:, None].expand(28, 28)
    energy = Scattering(28, 28)(torch.cos(0.75 * math.pi * down)[None, None])[0].mean((1, 2))
    assert int(energy[1:].argmax()) == 3  # θ = (3 − 3)·π/8: across rows, at the finest scale


def test_small_shifts_change_little() -> None:
    """A shift by one pixel moves the features far less than the pixels."""
    large = images(8, 1, 32, 32)
    here, there = large[..., 2:30, 2:30], large[..., 3:31, 2:30]
    transform = Scattering(28, 28)
    pixels = float(torch.linalg.vector_norm(here - there) / torch.linalg.vector_norm(here))
    features = transform(here) - transform(there)
    assert float(torch.linalg.vector_norm(features) / torch.linalg.vector_norm(transform(here))) < 0.3 * pixels


def test_it_does_not_expand_distances() -> None:
    a, b = images(16, 1, 28, 28), images(16, 1, 28, 28, seed=1)
    transform = Scattering(28, 28)
    between = torch.linalg.vector_norm((transform(a) - transform(b)).flatten(1), dim=1)
    assert bool((between < torch.linalg.vector_norm((a - b).flatten(1), dim=1)).all())


@pytest.mark.parametrize("size", [(28, 28), (8, 8), (9, 31), (33, 10)], ids=str)
def test_any_size_and_number_of_channels(size: tuple[int, int]) -> None:
    x = images(3, 2, *size)
    transform = Scattering(*size)
    y = transform(x)
    assert y.shape == (3, 2 * 81, size[0] // 4, size[1] // 4)
    assert torch.allclose(y[:, 81:], transform(x[:, 1:]), atol=1e-6)
    with pytest.raises(ValueError, match="expected images"):
        transform(images(1, 1, 5, 5))
