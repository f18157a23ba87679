"""GPU kernels of private sums, in Triton: clipped codes added up in one pass, and draws from tables.

Nothing here waits for the device: what follows the training of a cohort is under way while it is still trained.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from laconic.guard.noise import Source, Tables

_AT_ONCE = 512
"""Numbers of a program."""


def clipped_sum(codes: Tensor, roots: Tensor, units: float | None) -> Tensor:
    """Σ_k root_k²·code_k (m,), without the codes whose root is NaN.

    With `units` each clipped value is multiplied by them in float64 and cut towards zero: a sum of int64.
    """
    total = torch.empty(codes.shape[-1], dtype=codes.dtype if units is None else torch.int64, device=codes.device)
    # In memory, since a number that is handed over has 32 bits.
    exact = codes.new_full((1,), units or 0.0, dtype=torch.float64)
    _clipped_sum_kernel[(triton.cdiv(len(total), _AT_ONCE),)](
        codes, roots.reshape(-1).contiguous(), total, exact, *codes.shape, codes.stride(0),
        WHOLE=units is not None, BLOCK=_AT_ONCE,
    )  # fmt: skip
    return total


@dataclass(frozen=True)
class KernelTables(Tables):
    """Tables whose draws are one kernel.

    A word that equals a boundary is decided by a second one, which every draw has ready: to look first which draws need
    it would mean to wait for the device.
    """

    def draw(self, rows: Tensor | None, count: int, source: Source) -> Tensor:
        words = source.words(2 * count)
        drawn: Tensor = torch.empty_like(words[:count])
        _draw_kernel[(triton.cdiv(count, _AT_ONCE),)](
            words, words if rows is None else rows.contiguous(), self.high, self.low, self.answers, drawn, count,
            self.first, int(torch.iinfo(self.answers.dtype).min), WIDTH=self.high.shape[1],
            HALVINGS=self.high.shape[1].bit_length() - 1, LEADING=self.leading_bits, ROWS=rows is not None,
            BLOCK=_AT_ONCE,
        )  # fmt: skip
        return drawn


@triton.jit
def _clipped_sum_kernel(
    codes, roots, total, exact, clients, size, stride, WHOLE: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """total[i] = Σ_k root_k²·codes[k, i], of one block of values."""
    units = tl.load(exact)
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    found = tl.zeros((BLOCK,), dtype=tl.int64 if WHOLE else tl.float32)
    for k in range(clients):
        root = tl.load(roots + k)
        value = tl.load(codes + i, mask=i < size, other=0.0)
        value = tl.where(root == root, (value * root) * root, 0.0)
        if WHOLE:
            found += (value.to(tl.float64) * units).to(tl.int64)
        else:
            found += value
        codes += stride
    tl.store(total + i, found, mask=i < size)


@triton.jit
def _draw_kernel(
    words, rows, high, low, answers, drawn, count, first, unclear,
    WIDTH: tl.constexpr, HALVINGS: tl.constexpr, LEADING: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """See `Tables.draw`: the answer that the leading bits give, or else the first entry that is not below the word."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    word = tl.load(words + i, mask=i < count, other=0)
    row = tl.load(rows + i, mask=i < count, other=0) if ROWS else tl.zeros((BLOCK,), dtype=tl.int64)
    answer = tl.load(
        answers + (word >> (64 - LEADING)) + (1 << (LEADING - 1)) + (row << LEADING), mask=i < count, other=0
    ).to(tl.int64)
    searched = (answer == unclear) & (i < count)
    place = row * WIDTH
    for halved in tl.static_range(1, HALVINGS + 1):
        step = WIDTH >> halved
        place += tl.where(tl.load(high + place + (step - 1), mask=searched, other=0) < word, step, 0)
    even = searched & (tl.load(high + place, mask=searched, other=0) == word)
    if tl.sum(even.to(tl.int32)) > 0:  # once in 10^15 draws or so
        more = tl.load(words + count + i, mask=even, other=0)
        for _ in range(WIDTH):
            below = even & (tl.load(high + place, mask=even, other=0) == word)
            below = below & (tl.load(low + place, mask=even, other=0) < more)
            place += below.to(tl.int64)
    tl.store(drawn + i, tl.where(searched, place - row * WIDTH + first, answer), mask=i < count)
