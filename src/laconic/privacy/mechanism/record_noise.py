"""Integer noise for the private steps of one client (DP-SGD): nothing of a float's low-order bits is released.

The sum s of a step's clipped gradients is put on a grid of u units. What is used further is DG(u·s, ξ)/u, drawn around
the real point u·s as in `discrete_gaussian`, so its argument holds: up to factors that move ε by less than 1e-9, the
step is a continuous Gaussian of variance ξ² − 4, post-processed. Two things make sums of neighbours differ by more than
S. The sampler cuts a mean to multiples of 1/256: at most √n/256 grid units. And the smoothing takes 4 from ξ². Both are
made up for by more noise, so that the noise multiplier is σ as it was asked for:

    ξ² = (u·S·σ·(1 + η))² + 4,   √n/256 ≤ η·u·S,   η = 1/1024

Gradients are added up in float64, so rounding moves the sum of N records by N²·S/2^52 at most: S/4500 for a million.
They are computed in float32, where the size of a batch may show in the last bits of the others' gradients. Neither is
accounted for; the statement says so.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from laconic.guard.noise import MEAN_BITS, draw_total_variation
from laconic.privacy.mechanism.discrete_gaussian import draw_discrete_gaussian
from laconic.privacy.mechanism.grid import SMALLEST_SUM, SMOOTHING

if TYPE_CHECKING:
    from torch import Tensor

    from laconic.streams import Stream

NOISES = ("continuous", "integer")
_MARGIN = 2.0**-10


class RecordGrid(NamedTuple):
    """`units` of the grid are one of the gradients; the noise has the scale `scale` in grid units."""

    units: float
    scale: float


def record_grid(size: int, clip_norm: float, noise_multiplier: float) -> RecordGrid:
    """The coarsest grid for sums of gradients by so many weights."""
    cut = math.sqrt(size) / 2**MEAN_BITS
    noise = max(SMALLEST_SUM, noise_multiplier * (1 + _MARGIN) * cut / _MARGIN)  # u·S·σ·(1 + η)
    return RecordGrid(noise / (clip_norm * noise_multiplier * (1 + _MARGIN)), math.hypot(noise, SMOOTHING))


def noisy_sum(total: Tensor, *, clip_norm: float, noise_multiplier: float, stream: Stream) -> Tensor:
    """The sum of a step's clipped gradients with its noise: multiples of the grid's step, as float32."""
    grid = record_grid(total.numel(), clip_norm, noise_multiplier)
    drawn = draw_discrete_gaussian(total.double() * grid.units, grid.scale, stream)
    noisy: Tensor = drawn.double().div_(grid.units).float()
    return noisy


def record_delta_slack(size: int, steps: int, noise_multiplier: float) -> float:
    """What the sampler's finite precision adds to δ over so many steps of one client, for any ε up to 20."""
    grid = record_grid(size, 1.0, noise_multiplier)
    return steps * size * draw_total_variation(grid.scale) * (1 + math.exp(20))
