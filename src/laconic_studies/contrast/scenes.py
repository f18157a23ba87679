"""Made scenes of dead leaves, on the device and a batch at a time, each seen by two cameras.

The shapes are those of `data/dead_leaves.py`. They are drawn here with torch: nothing is copied to the device, and the
host waits for nothing. What two views of a scene share is what pictures of one thing share: they differ in the place,
angle and distance of the camera, in small movements of every leaf, in light and in noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

MOST_LEAVES, _FEWEST = 12, 3
_LOBES = (2, 3, 4, 5)
_PER_LEAF = 12 + 2 * len(_LOBES)


@dataclass(frozen=True, kw_only=True)
class Scenes:
    """Numbers from 0 to 1 that make up a batch of scenes."""

    leaves: Tensor
    """(batch, leaves, 20): place, turn, stretch, radius and so on of every leaf."""
    shades: Tensor
    """(batch, leaves, channels)."""
    ground: Tensor
    """(batch, channels)."""
    present: Tensor
    """(batch, leaves): whether there is this leaf."""

    @classmethod
    def draw(cls, batch: int, channels: int, rng: torch.Generator) -> Scenes:
        def uniform(*shape: int) -> Tensor:
            return torch.rand(batch, *shape, generator=rng, device=rng.device)

        count = _log_uniform(uniform(1), _FEWEST, MOST_LEAVES + 1)
        black = uniform(1) < 0.5  # half of the pictures, as pictures of single objects often are
        return cls(
            leaves=uniform(MOST_LEAVES, _PER_LEAF),
            shades=uniform(MOST_LEAVES, channels),
            ground=uniform(channels) * ~black,
            present=torch.arange(1, MOST_LEAVES + 1, device=rng.device) <= count,
        )

    def view(self, size: Sequence[int], rng: torch.Generator) -> Tensor:
        """(batch, channels, height, width) with values from 0 to 1, as one more camera sees the scenes."""
        batch, channels, device = len(self.leaves), self.ground.shape[1], rng.device

        def each(low: float, high: float, *shape: int) -> Tensor:
            return low + (high - low) * torch.rand(batch, *(shape or (1, 1, 1)), generator=rng, device=device)

        down = torch.linspace(-1, 1, size[0], device=device)[:, None]
        right = torch.linspace(-1, 1, size[1], device=device)
        angle, zoom = each(-0.25, 0.25), torch.exp(each(-0.3, 0.3))
        x = zoom * (right * angle.cos() + down * angle.sin()) + each(-0.25, 0.25)
        y = zoom * (down * angle.cos() - right * angle.sin()) + each(-0.25, 0.25)
        moved = each(-0.05, 0.05, MOST_LEAVES, 2)
        covers, lights = _leaves(self.leaves, moved, x, y, min(size) / 2)
        covers = covers * self.present[:, :, None, None]
        images = self.ground[:, :, None, None].expand(-1, -1, *size)
        for leaf in range(MOST_LEAVES):
            shade = (self.shades[:, leaf, :, None, None] * lights[:, leaf, None]).clamp(0, 1)
            images = torch.lerp(images, shade, covers[:, leaf, None])
        gain = torch.exp(each(-0.4, 0.4) + each(-0.15, 0.15, channels, 1, 1))
        noise = torch.randn(images.shape, generator=rng, device=device) * each(0, 0.08)
        return (images * gain + each(-0.1, 0.1) + noise).clamp(0, 1)


def _leaves(drawn: Tensor, moved: Tensor, x: Tensor, y: Tensor, sharpness: float) -> tuple[Tensor, Tensor]:
    """(how much of every pixel each leaf covers, its light there), both (batch, leaves, height, width)."""
    n = [drawn[:, :, k, None, None] for k in range(_PER_LEAF)]
    x = x - (1.8 * n[0] - 0.9 + moved[:, :, 0, None, None])
    y = y - (1.8 * n[1] - 0.9 + moved[:, :, 1, None, None])
    upright = torch.where(n[3] < 0.25, 0.0, math.pi / 2)
    turn = torch.where(n[3] < 0.5, upright, math.pi * n[2])
    stretch = torch.exp(2.4 * n[4] - 1.2)
    u = (x * turn.cos() + y * turn.sin()) * stretch
    v = (y * turn.cos() - x * turn.sin()) / stretch
    direction, bumps = torch.atan2(v, u), torch.ones_like(u)
    for k, lobes in enumerate(_LOBES):
        amplitude, phase = 0.36 * n[12 + 2 * k] - 0.18, 2 * math.pi * n[13 + 2 * k]
        bumps = bumps + amplitude * torch.cos(lobes * direction + phase)
    blob = torch.hypot(u, v) / bumps.clamp(min=0.2)
    reach = torch.where(n[5] < 0.3, torch.maximum(u.abs(), v.abs()), blob)  # a box, or round with some bumps
    cover = ((_log_uniform(n[6], 0.08, 0.9) - reach) * sharpness + 0.5).clamp(0, 1)  # about a pixel of soft edge
    light = 1 + (n[7] - 0.5) * x + (n[8] - 0.5) * y
    across, wave = math.pi * n[9], _log_uniform(n[10], 3, 30)
    stripes = 1 + 0.5 * torch.sin(wave * (x * across.cos() + y * across.sin()) + 2 * math.pi * n[11] / 0.3)
    return cover, torch.where(n[11] < 0.3, light * stripes, light)


def _log_uniform(uniform: Tensor, low: float, high: float) -> Tensor:
    return low * torch.exp(uniform * math.log(high / low))
