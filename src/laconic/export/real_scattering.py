"""The scattering transform without complex numbers, which ONNX has few operators for.

The Fourier transform of an n × n picture is two products with the matrices cos(2πjk/n) and sin(2πjk/n). A complex
tensor is a pair (real, imaginary). Everything else is as in `features/scattering.py`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from laconic.features.scattering import CHANNELS, Scattering, ScatteringFrontEnd

Pair = tuple[Tensor, Tensor]


class RealScattering(nn.Module):
    """The same map as a `Scattering`, up to the rounding of floats."""

    def __init__(self, original: Scattering) -> None:
        super().__init__()
        self.original = original
        for name, height in (("fine", 1), ("half", 2)):
            for axis, size in zip(("rows", "columns"), original._padded, strict=True):
                angles = torch.arange(size // height, dtype=torch.float64)
                angles = 2 * math.pi / (size // height) * (angles[:, None] * angles[None])
                self.register_buffer(f"{name}_{axis}_cos", angles.cos().float())
                self.register_buffer(f"{name}_{axis}_sin", angles.sin().float())

    def forward(self, images: Tensor) -> Tensor:
        channels, height, width = images.shape[1:]
        x = self.original._mirrored(images.reshape(-1, height, width))
        spectrum = self._transformed((x[:, None], torch.zeros_like(x[:, None])), "fine", -1.0)
        fine = self._length(_times(spectrum, self.original._wavelets[0]), "fine")
        coarse = self._length(_every_other(spectrum, self.original._wavelets[1]), "half")
        again = self._transformed((fine, torch.zeros_like(fine)), "fine", -1.0)
        pairs = _every_other((again[0][:, :, None], again[1][:, :, None]), self.original._wavelets[1])
        second = self._length(pairs, "half").flatten(1, 2)
        blurred = self.original._blurred
        maps = torch.cat([blurred(x[:, None], 0), blurred(fine, 0), blurred(coarse, 1), blurred(second, 1)], dim=1)
        return maps.reshape(-1, channels * CHANNELS, *maps.shape[2:])

    def _transformed(self, pair: Pair, size: str, sign: float) -> Pair:
        """Σ_jk x_jk·e^(sign·2πi·(…)), rows and columns one after the other."""
        real, imaginary = pair
        cos, sin = self.get_buffer(f"{size}_columns_cos"), sign * self.get_buffer(f"{size}_columns_sin")
        real, imaginary = real @ cos - imaginary @ sin, real @ sin + imaginary @ cos
        cos, sin = self.get_buffer(f"{size}_rows_cos"), sign * self.get_buffer(f"{size}_rows_sin")
        return cos @ real - sin @ imaginary, cos @ imaginary + sin @ real

    def _length(self, spectrum: Pair, size: str) -> Tensor:
        """The absolute value of the inverse transform."""
        real, imaginary = self._transformed(spectrum, size, 1.0)
        count = real.shape[-1] * real.shape[-2]
        return (real.square() + imaginary.square()).sqrt() / count


def _times(pair: Pair, filters: Tensor) -> Pair:
    return pair[0] * filters, pair[1] * filters


def _every_other(pair: Pair, filters: Tensor) -> Pair:
    """As in `features/scattering.py`: the spectrum at every other pixel."""
    height, width = (size // 2 for size in filters.shape[-2:])
    quarters = [
        _times((pair[0][..., rows, columns], pair[1][..., rows, columns]), filters[..., rows, columns])
        for rows in (slice(0, height), slice(height, None))
        for columns in (slice(0, width), slice(width, None))
    ]
    real = (quarters[0][0] + quarters[1][0] + quarters[2][0] + quarters[3][0]) / 4
    imaginary = (quarters[0][1] + quarters[1][1] + quarters[2][1] + quarters[3][1]) / 4
    return real, imaginary


def without_complex_numbers(front_end: nn.Module) -> nn.Module:
    """The front end in real numbers; one that is not of scattering stays as it is."""
    for part in front_end.modules():
        if isinstance(part, ScatteringFrontEnd) and isinstance(part.transform, Scattering):
            part.transform = RealScattering(part.transform)  # type: ignore[assignment]
    return front_end
