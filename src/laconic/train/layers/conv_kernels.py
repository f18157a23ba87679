"""The GPU kernels of `client_conv`, in Triton. Memory is channels-last: (clients, batch, height, width, channels)."""

# ruff: noqa: E741

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from laconic.train.layers.conv_window import Window

_BUSY = 4000  # programs that keep a large GPU busy


def _precision() -> str:
    """As for PyTorch's own convolutions."""
    return "tf32" if torch.backends.cudnn.allow_tf32 else "ieee"


def _wide(count: int, most: int) -> int:
    return max(16, min(most, triton.next_power_of_2(count)))


def convolve(x: Tensor, rows: Tensor, bias: Tensor | None, window: Window) -> Tensor:
    """Each client's convolution; `rows` are its weights (clients, kh·kw·C, O)."""
    clients, batch, height, width, channels = x.shape
    (out_height, out_width), kernel = window.outputs, window.kernel
    outputs = rows.shape[-1]
    y = x.new_empty(clients, batch, out_height, out_width, outputs)
    num_rows, wide = batch * out_height * out_width, _wide(outputs, 64)
    grid = (triton.cdiv(num_rows, 128) * triton.cdiv(outputs, wide), clients)
    _conv_kernel[grid](
        x, rows, y if bias is None else bias.contiguous(), y, num_rows, outputs, height, width, out_height, out_width,
        *window.start, *window.stride, C=channels, KH=kernel[0], KW=kernel[1], BM=128, BN=wide, BK=32,
        BIAS=bias is not None, PRECISION=_precision(), num_warps=4, num_stages=3,
    )  # fmt: skip
    return y


def weight_gradients(x: Tensor, gradients: Tensor, window: Window) -> Tensor:
    """The gradients of the weights (clients, kh·kw·C, O), for those of the outputs."""
    clients, batch, height, width, channels = x.shape
    _, _, out_height, out_width, outputs = gradients.shape
    kernel = window.kernel
    patch = kernel[0] * kernel[1] * channels
    tall, wide = _wide(patch, 32), _wide(outputs, 64)
    tiles, num_rows = triton.cdiv(patch, tall) * triton.cdiv(outputs, wide), batch * out_height * out_width
    # A long sum is split where there are too few tiles to keep the GPU busy, in an order that does not change.
    parts = min(triton.cdiv(num_rows, 256), triton.cdiv(_BUSY, tiles * clients))
    length = triton.cdiv(triton.cdiv(num_rows, parts), 32) * 32
    result = x.new_empty(clients, parts, patch, outputs)
    _gradients_kernel[(tiles, clients, parts)](
        x, gradients, result, num_rows, length, outputs, height, width, out_height, out_width,
        *window.start, *window.stride, C=channels, KH=kernel[0], KW=kernel[1], BM=tall, BN=wide, BK=32,
        PRECISION=_precision(), num_warps=2, num_stages=4,
    )  # fmt: skip
    return result.sum(1)


@triton.jit
def _patches(x, m, k, M, H, W, OH, OW, PH, PW, SH, SW, C: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr):
    """The entries (m, k) of the matrix of patches: output m = (image, row, column), k = (kh, kw, channel)."""
    column, row, image = m % OW, (m // OW) % OH, m // (OW * OH)
    channel, kw, kh = k % C, (k // C) % KW, k // (C * KW)
    h, w = row * SH + kh - PH, column * SW + kw - PW
    inside = (m < M) & (k < KH * KW * C) & (h >= 0) & (h < H) & (w >= 0) & (w < W)
    return tl.load(x + ((image * H + h) * W + w) * C + channel, mask=inside, other=0.0)


@triton.jit
def _conv_kernel(
    x, rows, bias, y, M, O, H, W, OH, OW, PH, PW, SH, SW,
    C: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, BIAS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """y[m, o] = Σ_k patch[m, k]·rows[k, o] + bias[o], of one client and one tile."""
    client = tl.program_id(1).to(tl.int64)
    tiles = tl.cdiv(O, BN)
    m = (tl.program_id(0) // tiles) * BM + tl.arange(0, BM)
    n = (tl.program_id(0) % tiles) * BN + tl.arange(0, BN)
    size: tl.constexpr = KH * KW * C
    x += client * (M // (OH * OW)) * H * W * C
    rows += client * size * O
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, size, BK):
        k = start + tl.arange(0, BK)
        a = _patches(x, m[:, None], k[None, :], M, H, W, OH, OW, PH, PW, SH, SW, C, KH, KW)
        b = tl.load(rows + k[:, None] * O + n[None, :], mask=(k[:, None] < size) & (n[None, :] < O), other=0.0)
        total = tl.dot(a, b, total, input_precision=PRECISION)
    if BIAS:
        total += tl.load(bias + client * O + n, mask=n < O, other=0.0)[None, :]
    place = y + client * M * O + m[:, None].to(tl.int64) * O + n[None, :]
    tl.store(place, total, mask=(m[:, None] < M) & (n[None, :] < O))


@triton.jit
def _gradients_kernel(
    x, gradients, result, M, length, O, H, W, OH, OW, PH, PW, SH, SW,
    C: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """result[k, o] = Σ_m patch[m, k]·gradients[m, o], of one client, one tile and one part of the sum."""
    client = tl.program_id(1).to(tl.int64)
    tiles = tl.cdiv(O, BN)
    k = (tl.program_id(0) // tiles) * BM + tl.arange(0, BM)
    n = (tl.program_id(0) % tiles) * BN + tl.arange(0, BN)
    size: tl.constexpr = KH * KW * C
    x += client * (M // (OH * OW)) * H * W * C
    gradients += client * M * O
    total = tl.zeros((BM, BN), dtype=tl.float32)
    first = tl.program_id(2) * length
    for start in range(first, tl.minimum(first + length, M), BK):
        m = start + tl.arange(0, BK)
        a = _patches(x, m[:, None], k[None, :], M, H, W, OH, OW, PH, PW, SH, SW, C, KH, KW)
        b = tl.load(gradients + m[:, None] * O + n[None, :], mask=(m[:, None] < M) & (n[None, :] < O), other=0.0)
        total = tl.dot(tl.trans(a), b, total, input_precision=PRECISION)
    place = result + (client * tl.num_programs(2) + tl.program_id(2)) * size * O + k[:, None] * O + n[None, :]
    tl.store(place, total, mask=(k[:, None] < size) & (n[None, :] < O))
