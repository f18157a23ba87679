"""The network: three stages of convolutions, each at half the resolution of the one before."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from laconic.errors import ConfigError
from laconic.parts import positive_int

SMALLEST = 16
PLACES = 3
"""Features are means over 3 × 3 parts of the picture: what is where still matters."""


class ContrastNetwork(nn.Module):
    """(batch, channels, height, width) → (batch, 4·width, ⌊height/4⌋, ⌊width/4⌋).

    Two convolutions of 3 × 3 in each stage, with `width`, 2·`width` and 4·`width` channels, batch normalisation and
    rectified; between stages the mean over 2 × 2 pixels.
    """

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        positive_int(channels=channels, width=width)
        sizes = [channels, width, width, 2 * width, 2 * width, 4 * width, 4 * width]
        self.convolutions = nn.ModuleList(
            nn.Conv2d(before, after, 3, padding=1, bias=False) for before, after in pairwise(sizes)
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(size) for size in sizes[1:])
        for layer in self.convolutions:
            nn.init.kaiming_normal_(cast(nn.Conv2d, layer).weight, nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        maps = 2 * images - 1
        for number, (convolution, norm) in enumerate(zip(self.convolutions, self.norms, strict=True)):
            if number in (2, 4):
                maps = functional.avg_pool2d(maps, 2)
            maps = functional.relu(norm(convolution(maps)))
        return maps


class Compared(nn.Module):
    """What the loss compares: a vector of length 1 from the mean over all places. It is not kept after training."""

    def __init__(self, features: int, size: int = 128) -> None:
        super().__init__()
        self.hidden = nn.Linear(features, features)
        self.norm = nn.BatchNorm1d(features)
        self.out = nn.Linear(features, size)

    def forward(self, maps: Tensor) -> Tensor:
        vectors = self.out(functional.relu(self.norm(self.hidden(maps.mean((2, 3))))))
        return functional.normalize(vectors.float(), dim=1)


def pooled(maps: Tensor) -> Tensor:
    """(batch, channels, height, width) → (batch, channels, 3, 3), by means over parts of the picture."""
    return functional.adaptive_avg_pool2d(maps, PLACES)


def check_pictures(input_shape: Sequence[int]) -> None:
    if len(input_shape) != 3 or min(input_shape[1:]) < SMALLEST:
        raise ConfigError(
            f"front end 'contrast' needs images (channels, height, width) of {SMALLEST} × {SMALLEST} or more, and the"
            f" records have shape {tuple(input_shape)}"
        )


def contrast(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    """The mean of −log(exp(s(i, i′)/τ) / Σ_{k ≠ i} exp(s(i, k)/τ)) over all views i and their partners i′.

    s is the inner product of vectors of length 1 (Chen et al., ICML 2020).
    """
    views = torch.cat([first, second])
    scores = views @ views.T / temperature
    scores.fill_diagonal_(-torch.inf)
    partners = torch.arange(len(views), device=views.device).roll(len(first))
    return functional.cross_entropy(scores, partners)
