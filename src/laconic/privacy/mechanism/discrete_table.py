"""Exact tables of the discrete Gaussian, and vectorised draws from them.

DG(μ, ξ) has pmf ∝ exp(−(x − μ)²/2ξ²) on the integers (thesis Eq. 5.1). Inversion with a 64-bit uniform word is off by
up to 2⁻⁶⁴ per entry of the table, which is too much for 3·10¹⁰ draws. So the table holds 128 bits of each cumulative
probability: the first 64 decide, and only where a word equals a boundary (once in 10¹⁵ draws or so) 64 more are drawn.
Then the draw is the first entry whose 128 bits are not below the word's. In the tails many entries share their first 64
bits, so it may be far from the first of them: to look at one alone would be off by 2⁻⁶⁴ (scale 2) to 2⁻⁵⁹ (scale 400).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

    from laconic.streams import Stream

TAIL_BITS = 100
"""Values whose tails hold less than 2^−100 are cut off."""
TABLE_TOTAL_VARIATION = 2.0**-99
"""How far a draw is from the exact distribution at most: the tails, and 2^−128 for each of at most 2^28 entries.

For the tables in use it is 2^−111 or less; a test computes it exactly."""


@dataclass(frozen=True)
class DiscreteTables:
    """P(X ≤ first + i) for several means: rows of 128 bits, split into two signed words.

    `guide[row, b]` is the first entry, counted over all rows, that a word with leading bits b can mean.
    """

    first: int
    high: Tensor
    low: Tensor
    guide: Tensor
    guide_bits: int

    def draw(self, rows: Tensor | None, count: int, stream: Stream, device: Any) -> Tensor:
        """Draws as int64: from row 0, or for each draw from its own row."""
        words = stream.words(count, device)
        index = (words >> (64 - self.guide_bits)).add_(1 << (self.guide_bits - 1))
        if rows is not None:
            index.add_(rows, alpha=self.guide.shape[1])
        index = self.guide.reshape(-1)[index]
        flat = self.high.reshape(-1)
        late = (flat[index] < words).nonzero().reshape(-1)
        if rows is None and len(late):
            import torch

            index[late] = torch.searchsorted(flat, words[late])
        elif len(late):
            self._advance(index, late, words)
        even = (flat[index] == words).nonzero().reshape(-1)
        if len(even):
            self._decide(index, even, words, stream.fork("boundary").words_at(even, count))
        if rows is not None:
            index.sub_(rows, alpha=self.high.shape[1])
        return index.add_(self.first)

    def _advance(self, index: Tensor, late: Tensor, words: Tensor) -> None:
        """Move each of the late on to its entry: few have far to go, since hardly a word is in a tail."""
        flat = self.high.reshape(-1)
        place, wanted = index[late], words[late]
        while len(late):
            place += 1
            there = flat[place] >= wanted
            index[late[there]] = place[there]
            late, place, wanted = late[~there], place[~there], wanted[~there]

    def _decide(self, index: Tensor, even: Tensor, words: Tensor, more: Tensor) -> None:
        """Move each of the even on over all entries whose 128 bits are below its own, `words` and then `more`.

        The last entry of a row is 2^128 − 1, and no word is above it.
        """
        high, low = self.high.reshape(-1), self.low.reshape(-1)
        place, wanted = index[even], words[even]
        while bool((below := (high[place] == wanted) & (low[place] < more)).any()):
            place += below
        index[even] = place


@functools.lru_cache(maxsize=64)
def discrete_tables(scale: float, num_means: int, device: str) -> DiscreteTables:
    """Tables of DG(j / num_means, scale) for j = 0 … num_means − 1, on a device."""
    import torch

    reach = math.ceil(scale * math.sqrt(2 * math.log(2) * (TAIL_BITS + 8))) + 2
    support = range(-reach, reach + 2)
    bounds = [_bounds(Decimal(j) / num_means, scale, support) for j in range(num_means)]
    # Signed words, so that torch can compare them: unsigned 64-bit order, shifted by 2⁶³.
    high = np.array([[(b >> 64) - 2**63 for b in row] for row in bounds], dtype=np.int64)
    low = np.array([[(b & (2**64 - 1)) - 2**63 for b in row] for row in bounds], dtype=np.int64)
    guide_bits = 16 if num_means == 1 else 8
    starts = (np.arange(1 << guide_bits, dtype=np.int64) - (1 << (guide_bits - 1))) << (64 - guide_bits)
    guide = np.stack([np.searchsorted(row, starts) + place * high.shape[1] for place, row in enumerate(high)])
    return DiscreteTables(
        first=support[0],
        high=torch.from_numpy(high).to(device),
        low=torch.from_numpy(low).to(device),
        guide=torch.from_numpy(guide).to(device),
        guide_bits=guide_bits,
    )


def _bounds(mean: Decimal, scale: float, support: range) -> list[int]:
    """The last 128-bit word that means each value, computed with 60 digits."""
    with localcontext() as context:
        context.prec = 60
        two_variances = 2 * Decimal(scale) ** 2
        mass = [(-((x - mean) ** 2) / two_variances).exp() for x in support]
        total, running, bounds = sum(mass, Decimal(0)), Decimal(0), []
        for part in mass:
            running += part
            bounds.append(min(max(int(running / total * 2**128), 1), 2**128) - 1)
    bounds[-1] = 2**128 - 1
    return bounds
