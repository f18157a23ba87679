"""Features from a dictionary of small patterns, learnt from public images alone: where in a picture is each of them?

This is what Coates, Ng and Lee (AISTATS 2011) and Coates and Ng (ICML 2011) call single-layer networks: patches are
normalised and whitened, k-means finds patterns, and a picture is described by how strongly each pattern, or its
negative, is seen in each of 4 × 4 parts. Dead leaves are enough to learn from: patches of real pictures are edges too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from laconic.errors import ConfigError
from laconic.features.base import FrontEnd, as_pixels, size_text

PATTERNS = 128
SIDE = 6
"""Pixels of a patch, each way."""
PLACES = 4
"""Parts of a picture each way; fewer where there are fewer places for a patch."""
SMALLEST = 8
THRESHOLD = 0.5
CONTRAST = 0.003
"""Added to the variance of a patch, for pixels from 0 to 1: flat patches stay flat."""
_RIDGE, _ROUNDS, _IMAGES, _PER_IMAGE, _FLATTEST = 0.1, 15, 4000, 25, 0.3
_FEWEST_PATCHES = 10
"""For each pattern."""
MOST_PATTERNS = _IMAGES * _PER_IMAGE // _FEWEST_PATCHES
"""More cannot be learnt, from however many images."""
_AT_ONCE = 1 << 27
"""Values of a map of all patterns and places that are in memory at once."""
_MOST_PIXELS = 1 << 26


class PatchesFrontEnd(FrontEnd):
    """f = √(mean over each part of a picture of max(0, ±z − ½)), with z_i = ⟨F_i, p⟩/√(var(p) + c) + b_i for patches p.

    F_i is pattern i, whitened and with mean 0, and b_i the part of it that the mean patch explains. Both come from
    public images, see `learnt`. The root evens out how often and how strongly a pattern is seen.
    """

    filters: Tensor
    offsets: Tensor

    def __init__(
        self,
        input_shape: Sequence[int],
        filters: Tensor,
        offsets: Tensor,
        about: dict[str, Any] | None = None,
        projection: nn.Module | None = None,
    ) -> None:
        check_pictures(input_shape)
        super().__init__(input_shape, projection, {"kind": "patches", "patterns": len(offsets)} | (about or {}))
        self.register_buffer("filters", filters)
        self.register_buffer("offsets", offsets)
        for axis, length in (("rows", self.input_shape[1]), ("columns", self.input_shape[2])):
            self.register_buffer(f"_{axis}", _means(length - SIDE + 1), persistent=False)

    @classmethod
    def described(cls, about: dict[str, Any]) -> PatchesFrontEnd:
        """One without patterns, to be filled."""
        shape, count = about["input_shape"], int(about["patterns"])
        if not 0 < count <= MOST_PATTERNS or math.prod(int(length) for length in shape) > _MOST_PIXELS:
            raise ValueError(f"{count} patterns of {size_text(shape)} images are more than there can be")
        return cls(shape, torch.zeros(count, int(shape[0]), SIDE, SIDE), torch.zeros(count), about)

    def raw(self, inputs: Tensor) -> Tensor:
        """Of many patterns in large pictures a few records at a time: their maps are large."""
        pixels = as_pixels(inputs)
        if torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call] # a file is for any number of records
            return self._seen(pixels)
        places = (self.input_shape[1] - SIDE + 1) * (self.input_shape[2] - SIDE + 1)
        most = max(1, _AT_ONCE // (len(self.offsets) * places))
        if len(pixels) <= most:
            return self._seen(pixels)
        return torch.cat([self._seen(some) for some in torch.split(pixels, most)])

    def _seen(self, pixels: Tensor) -> Tensor:
        seen = functional.conv2d(pixels, self.filters)
        seen.div_(_spread(pixels)).add_(self.offsets[:, None, None])
        rows, columns = self.get_buffer("_rows"), self.get_buffer("_columns")
        either = [functional.relu(seen - THRESHOLD), functional.relu_(seen.neg_().sub_(THRESHOLD))]
        return torch.cat([rows @ (one @ columns.T) for one in either], dim=1).clamp_(min=0).sqrt_()

    @property
    def raw_shape(self) -> tuple[int, ...]:
        return 2 * len(self.offsets), *(len(self.get_buffer(axis)) for axis in ("_rows", "_columns"))

    @property
    def what(self) -> str:
        about = self.about
        return (
            f"{about['patterns']} patterns of {SIDE}×{SIDE} pixels in {size_text(self.raw_shape[1:])} parts of"
            f" {size_text(self.input_shape)} images, learnt from {about.get('learnt_from') or 'public images'}"
        )


def learnt(images: Tensor, patterns: int = PATTERNS) -> tuple[Tensor, Tensor]:
    """(filters, offsets) by k-means on whitened patches p of public images.

    p has mean 0 and about unit variance; z = W·(p − μ) with W = (Σ + ridge)^(−½). Patterns d_i have length 1, and a
    patch belongs to the pattern with the largest |⟨d_i, z⟩|. Filter and offset are those of
    ⟨d_i, z⟩ = ⟨W·d_i, p⟩ − ⟨W·d_i, μ⟩.

    What is drawn follows from the images: the same images give the same patterns.
    """
    patches = _patches(images)
    if len(patches) < _FEWEST_PATCHES * patterns:
        raise ConfigError(
            f"{patterns} patterns cannot be learnt from {len(images)} public images, which have {len(patches)} patches"
            " that are not flat: name more of them with ⟨front-end-images⟩, or ask for fewer with ⟨front-end-patterns⟩"
        )
    mean = patches.mean(0)
    centred = patches - mean
    values, vectors = torch.linalg.eigh(centred.T @ centred / len(patches))
    whitening = (vectors * (values.clamp(min=0) + _RIDGE).rsqrt()) @ vectors.T
    white = centred @ whitening
    found = _k_means(white, patterns)
    filters = found @ whitening
    channels = images.shape[1]
    offsets = -(filters @ mean)
    flat = filters - filters.mean(1, keepdim=True)  # patches have mean 0: this changes no product
    return flat.reshape(patterns, channels, SIDE, SIDE).float(), offsets.float()


def check_pictures(input_shape: Sequence[int]) -> None:
    if len(input_shape) != 3 or min(input_shape[1:]) < SMALLEST:
        raise ConfigError(
            f"front end 'patches' needs images (channels, height, width) of {SMALLEST} × {SMALLEST} or more, and the"
            f" records have shape {tuple(input_shape)}: leave out ⟨front-end⟩"
        )


def _patches(images: Tensor) -> Tensor:
    """Some patches of the images (patches, c·36), normalised, in float64; flat ones are left out."""
    rng = np.random.default_rng(0)
    chosen = rng.permutation(len(images))[:_IMAGES]
    pixels = as_pixels(images[torch.from_numpy(chosen)]).float()
    windows = pixels.unfold(2, SIDE, 1).unfold(3, SIDE, 1)  # (images, c, rows, columns, 6, 6), without a copy
    rows, columns = windows.shape[2:4]
    places = torch.from_numpy(rng.integers(0, rows * columns, (len(pixels), _PER_IMAGE)))
    drawn = windows[torch.arange(len(pixels))[:, None], :, places // columns, places % columns]
    drawn = drawn.flatten(0, 1).flatten(1).double()
    drawn = drawn - drawn.mean(1, keepdim=True)
    drawn = drawn / (drawn.var(1, keepdim=True, correction=0) + CONTRAST).sqrt()
    return drawn[drawn.square().mean(1).sqrt() > _FLATTEST]


def _k_means(white: Tensor, count: int) -> Tensor:
    """Directions (count, c·36) around which the patches gather, up to their sign."""
    start = np.random.default_rng(1).permutation(len(white))[:count]
    found = functional.normalize(white[torch.from_numpy(start)], dim=1)
    for _ in range(_ROUNDS):
        products = white @ found.T
        nearest = products.abs().argmax(1)
        signed = white * products.gather(1, nearest[:, None])
        found = functional.normalize(torch.zeros_like(found).index_add_(0, nearest, signed) + 1e-6 * found, dim=1)
    return found


def _spread(pixels: Tensor) -> Tensor:
    """√(var(p) + c) of the patch at each place."""
    mean = functional.avg_pool2d(pixels, SIDE, 1).mean(1, keepdim=True)
    square = functional.avg_pool2d(pixels.square(), SIDE, 1).mean(1, keepdim=True)
    return (square - mean.square()).clamp(min=0).add(CONTRAST).sqrt()


def _means(length: int) -> Tensor:
    """(4, length): the mean over each quarter of so many places. Quarters overlap where 4 does not divide them."""
    parts = min(PLACES, length)
    matrix = torch.zeros(parts, length)
    for place in range(parts):
        start, stop = place * length // parts, -(-(place + 1) * length // parts)
        matrix[place, start:stop] = 1 / (stop - start)
    return matrix
