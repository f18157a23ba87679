"""The scattering transform: its wavelets, its blur, and `ScatteringFrontEnd`, which puts it in front of a head."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from laconic.errors import ConfigError
from laconic.features.base import FrontEnd, as_pixels, size_text

SCALES, ANGLES = 2, 8
STRIDE = 1 << SCALES
CHANNELS = 1 + SCALES * ANGLES + ANGLES * ANGLES
SMALLEST = 8
"""Smaller images are mirrored at their borders more than they are seen."""


class Scattering(nn.Module):
    """(batch, channels, height, width) → (batch, 81·channels, ⌊height/4⌋, ⌊width/4⌋).

    Convolutions are circular on an image whose borders are mirrored by 4 pixels or, so that 4 divides its size, a few
    less. A result of scale j is kept at every 2^j-th pixel only, its band being that much narrower.
    """

    _wavelets: Tensor

    def __init__(self, height: int, width: int) -> None:
        super().__init__()
        self._size = (height, width)
        self._padded = (_padded(height), _padded(width))
        wavelets = [morlet(*self._padded, scale, angle) for scale in range(SCALES) for angle in range(ANGLES)]
        spectra = torch.fft.fft2(torch.stack(wavelets)).real  # real, since ψ(−u) is the conjugate of ψ(u)
        self.register_buffer("_wavelets", spectra.reshape(SCALES, ANGLES, *self._padded).float(), persistent=False)
        for scale in range(SCALES):
            for axis, length in (("rows", self._padded[0]), ("columns", self._padded[1])):
                self.register_buffer(f"_{axis}{scale}", blur(length, scale).float(), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        batch, channels, height, width = images.shape
        if (height, width) != self._size:
            raise ValueError(f"expected images of {self._size}, not {(height, width)}")
        x = self._mirrored(images.reshape(batch * channels, height, width))
        spectrum = torch.fft.fft2(x)
        fine = torch.fft.ifft2(spectrum[:, None] * self._wavelets[0]).abs()
        coarse = torch.fft.ifft2(_every_other(spectrum[:, None], self._wavelets[1])).abs()
        pairs = _every_other(torch.fft.fft2(fine)[:, :, None], self._wavelets[1])
        second = torch.fft.ifft2(pairs).abs().flatten(1, 2)
        orders = [self._blurred(x[:, None], 0), self._blurred(fine, 0)]
        orders += [self._blurred(coarse, 1), self._blurred(second, 1)]
        maps = torch.cat(orders, dim=1)
        return maps.reshape(batch, channels * CHANNELS, *maps.shape[2:])

    def _mirrored(self, images: Tensor) -> Tensor:
        margins = []
        for size, padded in zip(reversed(self._size), reversed(self._padded), strict=True):
            before = (padded - size) // 2
            margins += [before, padded - size - before]
        return functional.pad(images, margins, mode="reflect")

    def _blurred(self, maps: Tensor, scale: int) -> Tensor:
        """maps ⋆ φ at every fourth pixel of the image: φ is separable, so these are two small matrix products."""
        rows, columns = self.get_buffer(f"_rows{scale}"), self.get_buffer(f"_columns{scale}")
        return rows @ maps @ columns.T


def morlet(height: int, width: int, scale: int, angle: int) -> Tensor:
    """ψ(u) = c·exp(−|u|²_θ/2s²)·(exp(i·ξ·u) − β) on a torus of that size, with β such that the sum of ψ is 0.

    The width is s = 0.8·2^j, the frequency |ξ| = ¾·π/2^j in direction θ, and |u|²_θ counts the component of u across θ
    with a factor of (4/L)² only, so the envelope is longer that way; c = (4/L)/(2π·s²).
    """
    spread, slant = 0.8 * (1 << scale), 4 / ANGLES
    theta = (ANGLES // 2 - 1 - angle) * math.pi / ANGLES
    frequency = 0.75 * math.pi / (1 << scale)
    turns = torch.arange(-2, 3, dtype=torch.float64)  # the envelope wraps around
    down = (torch.arange(height, dtype=torch.float64) + height * turns[:, None])[:, None, :, None]
    right = (torch.arange(width, dtype=torch.float64) + width * turns[:, None])[None, :, None, :]
    along, across = (
        down * math.cos(theta) + right * math.sin(theta),
        right * math.cos(theta) - down * math.sin(theta),
    )
    envelope = torch.exp(-(along.square() + (slant * across).square()) / (2 * spread**2))
    wave = (envelope * torch.exp(1j * frequency * along)).sum((0, 1))
    envelope = envelope.sum((0, 1))
    beta = wave.sum() / envelope.sum()
    return (wave - beta * envelope) * slant / (2 * math.pi * spread**2)


def blur(length: int, scale: int) -> Tensor:
    """Rows of the matrix that convolves a signal, given at every 2^j-th of `length` places, with φ.

    φ is a Gaussian of width 0.8·2^(J−1). There is a row for every fourth place but the first and the last, which lie
    in the mirrored margin. Where the signal is given at fewer places, φ keeps only the frequencies it can have there.
    """
    spread = 0.8 * (1 << (SCALES - 1))
    turns = torch.arange(-2, 3, dtype=torch.float64)
    places = torch.arange(length, dtype=torch.float64) + length * turns[:, None]
    phi = torch.exp(-places.square() / (2 * spread**2)).sum(0) / (math.sqrt(2 * math.pi) * spread)
    spectrum, step = torch.fft.fft(phi), 1 << scale
    low = length // (2 * step)
    kept = torch.cat([spectrum[:low], spectrum[length - low :]]) if step > 1 else spectrum
    kernel: Tensor = torch.fft.ifft(kept).real
    centres = torch.arange(STRIDE, length - STRIDE, STRIDE) // step
    return kernel[(centres[:, None] - torch.arange(length // step)) % (length // step)]


def _padded(size: int) -> int:
    """The size with margins: a multiple of 4, with one output place more on either side."""
    return (size // STRIDE + 2) * STRIDE


def _every_other(spectrum: Tensor, filters: Tensor) -> Tensor:
    """The spectrum of the filtered image at every other pixel: frequencies that look alike there are added up."""
    height, width = (size // 2 for size in filters.shape[-2:])
    quarters = [
        spectrum[..., rows, columns] * filters[..., rows, columns]
        for rows in (slice(0, height), slice(height, None))
        for columns in (slice(0, width), slice(width, None))
    ]
    return (quarters[0] + quarters[1] + quarters[2] + quarters[3]) / 4


GROUPS = 27


class ScatteringFrontEnd(FrontEnd):
    """Scattering coefficients, normalised in 27 groups of channels (Tramèr and Boneh 2021), then perhaps projected.

    With `mirror` they are the mean over an image and its mirror image: for pictures of things, whose left and right do
    not matter, that is half of the variation gone. Without a projection the features keep the shape
    (81·channels, ⌊height/4⌋, ⌊width/4⌋); a projection makes them a vector. `about` says all this in plain values, and
    where the projection came from.

    Args:
        input_shape: (channels, height, width).
        projection: a module that makes a vector of the coefficients.
        about: where the projection came from, for the privacy statement.

    Examples:
        >>> front_end = laconic.ScatteringFrontEnd((1, 8, 8))
        >>> front_end.output_shape
        (81, 2, 2)

    References:
        Tramèr and Boneh (ICLR 2021); Oyallon and Mallat (CVPR 2015) for the transform.
    """

    def __init__(
        self, input_shape: Sequence[int], projection: nn.Module | None = None, about: dict[str, Any] | None = None
    ) -> None:
        full_shape(input_shape)
        super().__init__(input_shape, projection, about)
        self.transform = Scattering(*self.input_shape[1:])

    def raw(self, inputs: Tensor) -> Tensor:
        return functional.group_norm(self.transform(as_pixels(inputs)), GROUPS)

    @property
    def raw_shape(self) -> tuple[int, ...]:
        return full_shape(self.input_shape)

    @property
    def what(self) -> str:
        size = size_text(self.input_shape)
        return f"scattering transform (J = {SCALES}, L = {ANGLES}) of {size} images, normalised in {GROUPS} groups"


def full_shape(input_shape: Sequence[int]) -> tuple[int, int, int]:
    """The shape of the features without a projection; an error for what is no image."""
    if len(input_shape) != 3 or min(input_shape[1:]) < SMALLEST:
        raise ConfigError(
            f"front end 'scattering' needs images (channels, height, width) of {SMALLEST} × {SMALLEST} or more, and the"
            f" records have shape {tuple(input_shape)}: leave out ⟨front-end⟩"
        )
    channels, height, width = input_shape
    return channels * CHANNELS, height // STRIDE, width // STRIDE
