"""Pictures kept as bytes and made float32 when they are picked: a quarter of the memory, in any number of variants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from laconic.errors import ConfigError
from laconic.parts import positive_int

_STEPS = 256
"""Shifts are whole numbers of 1/256 pixel."""

_BLOCK = 1 << 12
"""Pictures made at a time: what is needed besides the result stays small."""


@dataclass(frozen=True)
class Pictures:
    """Picture i is `pixels[i]` (channels, height, width): bytes stand for 0 … 1, floats for themselves.

    With `moves` (pictures, variants, 3) record r is variant r mod V of picture ⌊r/V⌋: the picture shifted down and to
    the right by so many 1/256 pixels, and mirrored if the third number is 1. Between pixels it is interpolated
    bilinearly; beyond the border the nearest pixel goes on. All this is exact in float32 for bytes, up to the last
    division, so a record has the same bits on every device.

    It has what the rest of the library asks of a tensor of inputs. What is picked is a tensor.
    """

    pixels: Tensor
    moves: Tensor | None = None

    @property
    def variants(self) -> int:
        return 1 if self.moves is None else self.moves.shape[1]

    def __len__(self) -> int:
        return len(self.pixels) * self.variants

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self), *self.pixels.shape[1:]

    @property
    def ndim(self) -> int:
        return self.pixels.ndim

    @property
    def device(self) -> torch.device:
        return self.pixels.device

    @property
    def tensors(self) -> list[Tensor]:
        """What it is made of: for digests and sizes."""
        return [self.pixels] if self.moves is None else [self.pixels, self.moves]

    def to(self, device: torch.device | str) -> Pictures:
        return Pictures(self.pixels.to(device), None if self.moves is None else self.moves.to(device))

    def cpu(self) -> Pictures:
        return self.to("cpu")

    def originals(self, pictures: Tensor | np.ndarray) -> Pictures:
        """Some of the pictures as they are, still as bytes."""
        return Pictures(self.pixels[torch.as_tensor(pictures, device=self.device)])

    def augmented(self, variants: int, rng: np.random.Generator) -> Pictures:
        """Each picture in so many random variants, instead of itself.

        Shifts are uniform in ±10 % of height and width, mirroring has probability ½ (Keras' `width_shift_range=0.1`,
        `height_shift_range=0.1`, `horizontal_flip`, and its filling with the nearest pixel).
        """
        positive_int(augment=variants)
        if self.ndim != 4:
            raise ConfigError(f"--augment {variants} is for pictures, not for records of {tuple(self.shape[1:])}")
        size = (variants, len(self.pixels))
        reach = [_STEPS * side // 10 for side in self.pixels.shape[2:]]
        down, right = (rng.integers(-most, most + 1, size, dtype=np.int32) for most in reach)
        mirrored = rng.integers(0, 2, size, dtype=np.int32)
        return replace(self, moves=torch.from_numpy(np.stack([down, right, mirrored], axis=-1).swapaxes(0, 1).copy()))

    def __getitem__(self, rows: slice | Tensor | np.ndarray | Sequence[int] | int) -> Tensor:
        """Some records, in the order and shape asked for."""
        if isinstance(rows, slice):
            rows = torch.arange(*rows.indices(len(self)), device=self.device)
        index = torch.as_tensor(rows, device=self.device)
        if index.dtype == torch.bool:
            index = index.nonzero().squeeze(1)
        flat = torch.where(index < 0, index + len(self), index).reshape(-1)
        if self.moves is None:
            return self._plain(flat).reshape(*index.shape, *self.pixels.shape[1:])
        made = torch.empty(len(flat), *self.pixels.shape[1:], device=self.device)
        for start in range(0, len(flat), _BLOCK):
            some = flat[start : start + _BLOCK]
            made[start : start + _BLOCK] = self._moved(some // self.variants, self.moves.flatten(0, 1)[some].long())
        return made.reshape(*index.shape, *self.pixels.shape[1:])

    def split(self, size: int) -> Iterator[Tensor]:
        """Consecutive pieces of so many records."""
        return (self[start : start + size] for start in range(0, len(self), size))

    def dense(self) -> Tensor:
        """All of it as a tensor: for a few records only."""
        return self[:]

    @property
    def _one(self) -> int:
        """The pixel value that stands for 1."""
        return 255 if self.pixels.dtype == torch.uint8 else 1

    def _plain(self, pictures: Tensor) -> Tensor:
        return self._divided(self.pixels[pictures].to(torch.float32), self._one)

    def _moved(self, pictures: Tensor, moves: Tensor) -> Tensor:
        """Output pixel (y, x) is the picture at (y − down, x − right), or at its mirror image.

        Of every picture a window with one more row and column is taken, at the whole part of the shift; the rest of
        the shift weighs neighbours.
        """
        height, width = self.pixels.shape[2:]
        back = -moves[:, :2]
        down, right = (back >> 8).unbind(1)  # rounds down, for negative shifts too
        low, left = (back & (_STEPS - 1)).unbind(1)
        mirrored = moves[:, 2]
        rows = torch.arange(height + 1, device=self.device) + down[:, None]
        places = torch.arange(width + 1, device=self.device)
        columns = torch.where(mirrored[:, None] == 1, width - places, places) + right[:, None]
        window = self.pixels[
            pictures[:, None, None, None],
            torch.arange(self.pixels.shape[1], device=self.device)[:, None, None],
            rows.clamp_(0, height - 1)[:, None, :, None],
            columns.clamp_(0, width - 1)[:, None, None, :],
        ].to(torch.float32)
        second = torch.where(mirrored == 1, _STEPS - left, left)
        across = _between(window[..., :-1], window[..., 1:], second)
        return self._divided(_between(across[..., :-1, :], across[..., 1:, :], low), _STEPS * _STEPS * self._one)

    def _divided(self, values: Tensor, by: int) -> Tensor:
        # Not by a number: CUDA would multiply by its reciprocal, and the last bit would differ.
        return values / torch.full((), by, dtype=torch.float32, device=self.device)


def _between(first: Tensor, second: Tensor, weight: Tensor) -> Tensor:
    """(256 − w)·first + w·second, a weight for each picture."""
    share = weight.to(torch.float32)[:, None, None, None]
    return (_STEPS - share) * first + share * second
