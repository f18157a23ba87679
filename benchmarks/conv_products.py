"""Convolutions with weights per client as batched products: every patch is written down, then one product a client.

It runs on any device. The patches are kh·kw times as large as the images, so some clients are done at a time.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from laconic.train.layers.conv import Convolutions, Window, padded_for

_MOST_NUMBERS = 1 << 30
"""Numbers in the patches that are there at the same time, at most (4 GiB)."""


def products() -> Convolutions:
    """Convolutions as products. bfloat16 halves the patches, and keeps 8 bits of every factor."""
    return Convolutions(convolve, weight_gradients)


def convolve(x: Tensor, rows: Tensor, bias: Tensor | None, window: Window) -> Tensor:
    """Each client's convolution; `rows` are its weights (clients, kh·kw·C, O), products and result of x's type."""
    outputs = rows.shape[-1]
    y = x.new_empty(*x.shape[:2], *window.outputs, outputs)
    rows = rows.to(x.dtype)
    for some, patches in _patches(x, window):
        product = torch.bmm(patches, rows[some]).view(y[some].shape)
        y[some] = product if bias is None else product + bias[some, None, None, None]
    return y


def weight_gradients(x: Tensor, gradients: Tensor, window: Window) -> Tensor:
    """The gradients of the weights (clients, kh·kw·C, O), for those of the outputs."""
    parts = [
        torch.bmm(patches.mT, gradients[some].flatten(1, 3)).to(torch.promote_types(x.dtype, torch.float32))
        for some, patches in _patches(x, window)
    ]
    return torch.cat(parts)


def _patches(x: Tensor, window: Window) -> Iterator[tuple[slice, Tensor]]:
    """Some clients, and the rows that their outputs look at: (clients, batch·oh·ow, kh·kw·C)."""
    (kh, kw), (sh, sw), (oh, ow) = window.kernel, window.stride, window.outputs
    clients, batch, _, _, channels = x.shape
    rows, columns = batch * oh * ow, kh * kw * channels
    step = max(1, _MOST_NUMBERS // (rows * columns))
    for start in range(0, clients, step):
        some = slice(start, min(start + step, clients))
        padded = padded_for(x[some], window).contiguous()
        of_client, of_image, of_row, of_column, _ = padded.stride()
        seen = padded.as_strided(
            (len(padded), batch, oh, ow, kh, kw, channels),
            (of_client, of_image, sh * of_row, sw * of_column, of_row, of_column, 1),
        )
        yield some, seen.reshape(len(padded), rows, columns)
