"""The discrete cosine transform, and the codec that sends its first coefficients."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from laconic.codecs.base import Codec
from laconic.codecs.solvers import Adjoint, Solver
from laconic.parts import one_of, positive_int, rate
from laconic.plan import RoundPlan
from laconic.streams import Stream

ORDERS = ("shuffled", "natural")
_LARGEST_MATRIX = 1 << 26
_COSINE_BITS = 20


def dct(signal: Tensor, count: int) -> Tensor:
    """The first `count` coefficients of the orthonormal DCT-II along the last axis.

    X_k = √((2 − δ_k0)/L)·Σ_i x_i·cos(π·k·(2i + 1)/2L)
    """
    length = signal.shape[-1]
    if count * length <= _LARGEST_MATRIX:
        return signal @ _cosines(length, count, signal.device, signal.dtype).T
    # Even samples forwards, odd ones backwards: one complex FFT of the same length does (Makhoul 1980).
    order = torch.cat([signal[..., ::2], signal[..., 1::2].flip(-1)], -1)
    spectrum = torch.fft.fft(order)[..., :count] * _twiddles(length, count, signal.device)
    return torch.real(spectrum).to(signal.dtype)


def dct_adjoint(coefficients: Tensor, length: int) -> Tensor:
    """Θᵀ: the signal whose first coefficients these are and whose others are 0."""
    count = coefficients.shape[-1]
    if count * length <= _LARGEST_MATRIX:
        wide = _wide_cosines(length, count, coefficients.device, coefficients.dtype)
        return (coefficients @ wide)[..., :length]
    twiddles = _twiddles(length, count, coefficients.device)
    padded = functional.pad(torch.view_as_real(coefficients * twiddles.conj()), (0, 0, 0, length - count))
    order = torch.fft.ifft(torch.view_as_complex(padded)).real * length
    signal = torch.empty_like(order)
    half = (length + 1) // 2
    signal[..., ::2], signal[..., 1::2] = order[..., :half], order[..., half:].flip(-1)
    return signal.to(coefficients.dtype)


@functools.lru_cache(maxsize=8)
def _cosines(length: int, count: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Θ, the first rows of the DCT matrix (count, length)."""
    k = torch.arange(count, dtype=torch.float64)[:, None]
    i = torch.arange(length, dtype=torch.float64)
    rows = torch.cos(math.pi * ((k * (2 * i + 1)) % (4 * length)) / (2 * length)) * math.sqrt(2 / length)
    rows[0] /= math.sqrt(2)
    return rows.to(device, dtype)


@functools.lru_cache(maxsize=8)
def _whole_cosines(length: int, count: int, device: torch.device) -> Tensor:
    """Θ in steps of 2^−20, as whole numbers in float64."""
    return _cosines(length, count, torch.device("cpu"), torch.float64).mul(2.0**_COSINE_BITS).round().to(device)


@functools.lru_cache(maxsize=8)
def _wide_cosines(length: int, count: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Θ with zeros up to a multiple of 16 columns: products with rows of odd lengths are half as fast again."""
    return functional.pad(_cosines(length, count, device, dtype), (0, -length % 16))


@functools.lru_cache(maxsize=8)
def _twiddles(length: int, count: int, device: torch.device) -> Tensor:
    k = torch.arange(count, dtype=torch.float64)
    scale = torch.full((count,), math.sqrt(2 / length), dtype=torch.float64)
    scale[0] /= math.sqrt(2)
    return torch.polar(scale, -math.pi * k / (2 * length)).to(device, torch.complex64)


@dataclass(frozen=True)
class LowPass:
    """Θ: from signals of some length to their first DCT coefficients."""

    length: int
    count: int

    def forward(self, signal: Tensor) -> Tensor:
        return dct(signal, self.count)

    def adjoint(self, code: Tensor) -> Tensor:
        return dct_adjoint(code, self.length)


@dataclass(frozen=True, kw_only=True)
class LowPassDCT(Codec):
    """code = the first m/P DCT coefficients of each of P chunks of the shuffled update (EuroS&P Alg. 3).

    The shuffle is drawn once per run from its public seed: error feedback needs it fixed. The last chunk is padded
    with zeros. `order="natural"` skips the shuffle. `solver` decodes: by least squares with an l1 penalty (FL-CS), or
    by the adjoint alone (FL-FREQ).
    """

    ratio: float
    num_chunks: int
    order: str = "shuffled"
    solver: Solver = Adjoint()

    def __post_init__(self) -> None:
        rate(ratio=self.ratio)
        positive_int(num_chunks=self.num_chunks)
        one_of(ORDERS, order=self.order)

    def chunk_sizes(self, size: int) -> tuple[int, int, int]:
        """(chunks, weights per chunk, coefficients per chunk).

        A small model gets fewer chunks than asked for, so that each has eight coefficients or more: a chunk sends a
        whole number of them, and rounding up two to three would send half as much again.
        """
        chunks = min(self.num_chunks, max(1, int(self.ratio * size / 8)))
        length = -(-size // chunks)
        return chunks, length, min(length, math.ceil(self.ratio * length))

    def code_size(self, size: int) -> int:
        chunks, _, count = self.chunk_sizes(size)
        return chunks * count

    def encode(self, update: Tensor, plan: RoundPlan, streams: Sequence[Stream]) -> Tensor:
        chunks, count = self._chunks(update, plan)
        return dct(chunks, count).flatten(-2)

    def encode_whole(self, update: Tensor, plan: RoundPlan) -> Tensor:
        """With cosines of 20 bits, so that every sum is exact; of chunks that are too long for a matrix as usual."""
        chunks, count = self._chunks(update, plan)
        length = chunks.shape[-1]
        if count * length > _LARGEST_MATRIX:
            return dct(chunks, count).flatten(-2)
        return (chunks @ _whole_cosines(length, count, update.device).T).flatten(-2).mul_(2.0**-_COSINE_BITS)

    def _chunks(self, update: Tensor, plan: RoundPlan) -> tuple[Tensor, int]:
        """The signals (..., chunks, length) of which the first coefficients are sent, and how many these are."""
        size = update.shape[-1]
        chunks, length, count = self.chunk_sizes(size)
        if self.order == "shuffled":
            update = update[..., _shuffle(size, plan.run_seed, update.device)]
        padded = functional.pad(update, (0, chunks * length - size))
        return padded.reshape(*padded.shape[:-1], chunks, length), count

    def decode(self, code: Tensor, size: int, plan: RoundPlan) -> Tensor:
        chunks, length, count = self.chunk_sizes(size)
        signal = self.solver.solve(
            code.reshape(*code.shape[:-1], chunks, count),
            LowPass(length, count),
        )
        flat = signal.flatten(-2)[..., :size]
        if self.order == "natural":
            return flat
        update = torch.empty_like(flat)
        update[..., _shuffle(size, plan.run_seed, code.device)] = flat
        return update


@functools.lru_cache(maxsize=4)
def _shuffle(size: int, seed: int, device: torch.device) -> Tensor:
    rng = np.random.Generator(np.random.Philox(key=seed))
    return torch.from_numpy(rng.permutation(size)).to(device)
