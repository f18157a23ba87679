"""The masks of `dropout` on a GPU: one Triton kernel for all clients, with the same bits as the plain computation."""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 1024


def kept(keys: Tensor, shape: tuple[int, ...], least: int) -> Tensor:
    """Which entries stay, (clients, *shape). Images (batch, channels, height, width) are channels-last in memory."""
    count, images = math.prod(shape), len(shape) == 4
    batch, channels = (shape[0], shape[1]) if images else (1, 1)
    mask = torch.empty(len(keys), count, dtype=torch.uint8, device=keys.device)
    grid = (triton.cdiv(count, _BLOCK), len(keys))
    _kept_kernel[grid](keys.contiguous(), mask, count, least, channels, count // (batch * channels), BLOCK=_BLOCK)
    if images:
        last = (len(keys), batch, *shape[2:], channels)
        return mask.view(torch.bool).view(last).permute(0, 1, 4, 2, 3)
    return mask.view(torch.bool).view(len(keys), *shape)


@triton.jit
def _kept_kernel(keys, mask, count, least, C, PLACES, BLOCK: tl.constexpr):
    """mask[i] = (SplitMix64(key + position of i) mod 2²⁴ ≥ least), of one client."""
    client = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    channel, place, image = i % C, (i // C) % PLACES, i // (C * PLACES)
    x = (image * C + channel) * PLACES + place + tl.load(keys + client)
    x = x * -7046029254386353131 + -7046029254386353131
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * -4658895280553007687
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * -7723592293110705685
    x = x ^ ((x >> 31) & 0x1FFFFFFFF)
    tl.store(mask + client * count + i, ((x & 0xFFFFFF) >= least).to(tl.uint8), mask=i < count)
