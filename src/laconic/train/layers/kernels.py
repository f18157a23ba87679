"""GPU kernels for many clients at once, in Triton: their convolutions and poolings (`conv`), the masks of `dropout`.

Images are channels-last in memory: (clients, batch, height, width, channels). The masks have the same bits as those of
the plain computation.
"""

# ruff: noqa: E741

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import torch
import triton
import triton.language as tl
from torch import Tensor

from laconic.train.layers.conv import Convolutions, Window

_BUSY = 4000  # programs that keep a large GPU busy


@dataclass(frozen=True)
class Tiles:
    """How a product is divided: a program computes `rows` × `columns` of it, `depth` terms of the sums at a time.

    With `by_tap` these terms are of one place of the window (there must be `depth` channels, or a multiple), so that
    places are computed once for all of them. With `by_output` a client's weights are laid out with the terms of a sum
    side by side, the only order in which the tensor cores of Hopper multiply TF32.
    """

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int
    by_tap: bool = False
    by_output: bool = False


CONVOLUTION = Tiles(rows=128, columns=64, depth=32, warps=4, stages=3, by_output=True)
EXACT = Tiles(rows=128, columns=64, depth=32, warps=4, stages=3)
WIDE = Tiles(rows=128, columns=128, depth=32, warps=4, stages=3, by_tap=True, by_output=True)
WEIGHTS = Tiles(rows=32, columns=64, depth=32, warps=2, stages=4)
HALF = Tiles(rows=128, columns=128, depth=32, warps=4, stages=4)
WIDE_HALF = Tiles(rows=128, columns=256, depth=64, warps=8, stages=3)
HALF_WEIGHTS = Tiles(rows=128, columns=128, depth=64, warps=4, stages=3)


def kernels(convolution: Tiles | None = None, weights: Tiles | None = None) -> Convolutions:
    """The convolutions as kernels, divided so; None chooses by the layer."""
    return Convolutions(partial(convolve, tiles=convolution), partial(weight_gradients, tiles=weights), pool, unpool)


def _precision() -> str:
    """As for PyTorch's own convolutions."""
    return "tf32" if torch.backends.cudnn.allow_tf32 else "ieee"


def _wide(count: int, most: int) -> int:
    return max(16, min(most, triton.next_power_of_2(count)))


def tiles_for(channels: int, outputs: int, *, half: bool = False) -> Tiles:
    """Wide tiles for wide layers: All-CNN-C's two largest take 8.2 and 8.0 ms on an H200, not 11.8 and 10.2.

    With bfloat16 (`half`) they take 2.5 and 1.8 ms; there `by_tap` costs more than it saves (5.7 and 5.4). Products of
    float32 have no tensor cores, so a layout for them gains nothing.
    """
    if half:
        return WIDE_HALF if outputs > HALF.columns else HALF
    if _precision() == "ieee":
        return EXACT
    return WIDE if channels % WIDE.depth == 0 and outputs >= 96 else CONVOLUTION


def convolve(x: Tensor, rows: Tensor, bias: Tensor | None, window: Window, *, tiles: Tiles | None = None) -> Tensor:
    """Each client's convolution; `rows` are its weights (clients, kh·kw·C, O), products and result of x's type."""
    tiles = tiles or tiles_for(x.shape[-1], rows.shape[-1], half=x.dtype is torch.bfloat16)
    rows = rows.to(x.dtype)
    clients, batch, height, width, channels = x.shape
    (out_height, out_width), kernel = window.outputs, window.kernel
    outputs = rows.shape[-1]
    rows = rows.mT.contiguous().mT if tiles.by_output else rows.contiguous()
    y = x.new_empty(clients, batch, out_height, out_width, outputs)
    num_rows, wide = batch * out_height * out_width, _wide(outputs, tiles.columns)
    grid = (triton.cdiv(num_rows, tiles.rows) * triton.cdiv(outputs, wide), clients)
    _conv_kernel[grid](
        x, rows, y if bias is None else bias.contiguous(), y, num_rows, outputs, height, width, out_height, out_width,
        *window.start, *window.stride, rows.stride(1), rows.stride(2), C=channels, KH=kernel[0], KW=kernel[1],
        BM=tiles.rows, BN=wide, BK=tiles.depth, BIAS=bias is not None, PRECISION=_precision(),
        TAPS=tiles.by_tap and channels % tiles.depth == 0, num_warps=tiles.warps, num_stages=tiles.stages,
    )  # fmt: skip
    return y


def weight_gradients(x: Tensor, gradients: Tensor, window: Window, *, tiles: Tiles | None = None) -> Tensor:
    """The gradients of the weights (clients, kh·kw·C, O), for those of the outputs; summed in float32."""
    tiles = tiles or (HALF_WEIGHTS if x.dtype is torch.bfloat16 else WEIGHTS)
    clients, batch, height, width, channels = x.shape
    _, _, out_height, out_width, outputs = gradients.shape
    kernel = window.kernel
    patch = kernel[0] * kernel[1] * channels
    tall, wide = _wide(patch, tiles.rows), _wide(outputs, tiles.columns)
    count, num_rows = triton.cdiv(patch, tall) * triton.cdiv(outputs, wide), batch * out_height * out_width
    # A long sum is split where there are too few tiles to keep the GPU busy, in an order that does not change.
    parts = min(triton.cdiv(num_rows, 256), triton.cdiv(_BUSY, count * clients))
    length = triton.cdiv(triton.cdiv(num_rows, parts), tiles.depth) * tiles.depth
    result = x.new_empty(clients, parts, patch, outputs, dtype=torch.float32)
    _gradients_kernel[(count, clients, parts)](
        x, gradients, result, num_rows, length, outputs, height, width, out_height, out_width,
        *window.start, *window.stride, C=channels, KH=kernel[0], KW=kernel[1], BM=tall, BN=wide, BK=tiles.depth,
        PRECISION=_precision(), num_warps=tiles.warps, num_stages=tiles.stages,
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
    x, rows, bias, y, M, O, H, W, OH, OW, PH, PW, SH, SW, RK, RN,
    C: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, BIAS: tl.constexpr,
    PRECISION: tl.constexpr, TAPS: tl.constexpr,
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
    column, row, image = m % OW, (m // OW) % OH, m // (OW * OH)
    for start in range(0, size, BK):
        k = start + tl.arange(0, BK)
        if TAPS:
            tap = start // C
            h, w = row * SH + tap // KW - PH, column * SW + tap % KW - PW
            inside = (m < M) & (h >= 0) & (h < H) & (w >= 0) & (w < W)
            channel = start % C + tl.arange(0, BK)
            a = tl.load(
                x + (((image * H + h) * W + w) * C)[:, None] + channel[None, :], mask=inside[:, None], other=0.0
            )
        else:
            a = _patches(x, m[:, None], k[None, :], M, H, W, OH, OW, PH, PW, SH, SW, C, KH, KW)
        b = tl.load(rows + k[:, None] * RK + n[None, :] * RN, mask=(k[:, None] < size) & (n[None, :] < O), other=0.0)
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


_AT_ONCE = 1024
"""Numbers of a program that works entry by entry."""


def pool(y: Tensor, window: tuple[int, int], relu: bool) -> tuple[Tensor, Tensor]:
    """The maxima of windows side by side over y (clients, batch, height, width, channels), and their places.

    After ReLU if asked for; then the place of a maximum of 0 or less is the number of entries, which is none of them.
    """
    clients, batch, height, width, channels = y.shape
    rows, columns = height // window[0], width // window[1]
    pooled = y.new_empty(clients, batch, rows, columns, channels)
    places = torch.empty_like(pooled, dtype=torch.uint8)
    count = pooled[0].numel()
    _pool_kernel[(triton.cdiv(count, _AT_ONCE), clients)](
        y, pooled, places, count, batch * height * width * channels, height, width, rows, columns,
        C=channels, KH=window[0], KW=window[1], RELU=relu, BLOCK=_AT_ONCE,
    )  # fmt: skip
    return pooled, places


def unpool(gradients: Tensor, places: Tensor, window: tuple[int, int], image: tuple[int, int]) -> Tensor:
    """Each gradient at the place of its maximum in images of that size; 0 elsewhere."""
    clients, batch, rows, columns, channels = gradients.shape
    back = gradients.new_empty(clients, batch, *image, channels)
    count = back[0].numel()
    _unpool_kernel[(triton.cdiv(count, _AT_ONCE), clients)](
        gradients, places, back, count, batch * rows * columns * channels, *image, rows, columns,
        C=channels, KH=window[0], KW=window[1], BLOCK=_AT_ONCE,
    )  # fmt: skip
    return back


@triton.jit
def _pool_kernel(
    y, pooled, places, count, size, H, W, OH, OW,
    C: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, RELU: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """pooled[i] = max over window i of y, of one client; the first of equal ones, and NaN if there is one."""
    client = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    channel, column, row = i % C, (i // C) % OW, (i // (C * OW)) % OH
    image = i // (C * OW * OH)
    first = y + client * size + ((image * H + row * KH) * W + column * KW) * C + channel
    best = tl.load(first, mask=i < count, other=0.0)
    place = tl.zeros((BLOCK,), dtype=tl.int32)
    for k in tl.static_range(1, KH * KW):
        value = tl.load(first + ((k // KW) * W + k % KW) * C, mask=i < count, other=0.0)
        take = (value > best) | (value != value)
        best, place = tl.where(take, value, best), tl.where(take, k, place)
    if RELU:
        stopped = best <= 0
        best, place = tl.where(stopped, 0.0, best), tl.where(stopped, KH * KW, place)
    tl.store(pooled + client * count + i, best, mask=i < count)
    tl.store(places + client * count + i, place.to(tl.uint8), mask=i < count)


@triton.jit
def _unpool_kernel(
    gradients, places, back, count, size, H, W, OH, OW,
    C: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """back[i] = the gradient of the window of i if its maximum was at i, of one client."""
    client = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    channel, w, h, image = i % C, (i // C) % W, (i // (C * W)) % H, i // (C * W * H)
    inside = (i < count) & (h // KH < OH) & (w // KW < OW)
    window = client * size + ((image * OH + h // KH) * OW + w // KW) * C + channel
    mine = tl.load(places + window, mask=inside, other=255).to(tl.int32) == (h % KH) * KW + w % KW
    value = tl.load(gradients + window, mask=inside, other=0.0)
    tl.store(back + client * count + i, tl.where(mine & inside, value, 0.0), mask=i < count)


def kept(keys: Tensor, shape: tuple[int, ...], least: int) -> Tensor:
    """Which entries stay, (clients, *shape). Images (batch, channels, height, width) are channels-last in memory."""
    count, images = math.prod(shape), len(shape) == 4
    batch, channels = (shape[0], shape[1]) if images else (1, 1)
    mask = torch.empty(len(keys), count, dtype=torch.uint8, device=keys.device)
    grid = (triton.cdiv(count, _AT_ONCE), len(keys))
    _kept_kernel[grid](keys.contiguous(), mask, count, least, channels, count // (batch * channels), BLOCK=_AT_ONCE)
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
