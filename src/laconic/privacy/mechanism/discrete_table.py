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

    `answers[row, b]` is the value that every word with leading bits b means, or the smallest number of its type where
    that depends on the other bits: some entry's own word begins with b. Few words do, so most draws take one look.
    """

    first: int
    high: Tensor
    low: Tensor
    answers: Tensor
    leading_bits: int

    def draw(self, rows: Tensor | None, count: int, stream: Stream, device: Any) -> Tensor:
        """Draws as int64: from row 0, or for each draw from its own row."""
        import torch

        words = stream.words(count, device)
        index = (words >> (64 - self.leading_bits)).add_(1 << (self.leading_bits - 1))
        if rows is not None:
            index.add_(rows, alpha=self.answers.shape[1])
        found = torch.index_select(self.answers.reshape(-1), 0, index)
        unclear = (found == torch.iinfo(found.dtype).min).nonzero().reshape(-1)
        values: Tensor = found.long()
        if len(unclear):
            values[unclear] = self._searched(rows, unclear, words[unclear], count, stream)
        return values

    def _searched(self, rows: Tensor | None, places: Tensor, words: Tensor, count: int, stream: Stream) -> Tensor:
        """The values of draws whose words may be those of an entry: the first entry that is not below the word."""
        import torch

        high, width = self.high.reshape(-1), self.high.shape[1]
        if rows is None:
            index, before = torch.searchsorted(high, words), torch.zeros_like(words)
        else:
            before = rows[places] * width
            index = before.clone()
            step = width // 2  # a power of two, see `discrete_tables`
            while step:
                index.add_(high[index + (step - 1)] < words, alpha=step)
                step //= 2
        even = (high[index] == words).nonzero().reshape(-1)
        if len(even):
            more = stream.fork("boundary").words_at(places[even], count)
            index[even] = self._decided(index[even], words[even], more)
        return index.sub_(before).add_(self.first)

    def _decided(self, index: Tensor, words: Tensor, more: Tensor) -> Tensor:
        """Moved on over all entries whose 128 bits are below `words` and then `more`.

        The last entry of a row is 2^128 − 1, and no word is above it.
        """
        high, low = self.high.reshape(-1), self.low.reshape(-1)
        while bool((below := (high[index] == words) & (low[index] < more)).any()):
            index = index + below
        return index


@functools.lru_cache(maxsize=64)
def discrete_tables(scale: float, num_means: int, device: str) -> DiscreteTables:
    """Tables of DG(j / num_means, scale) for j = 0 … num_means − 1, on a device."""
    import torch

    reach = math.ceil(scale * math.sqrt(2 * math.log(2) * (TAIL_BITS + 8))) + 2
    support = range(-reach, reach + 2)
    bounds = [_bounds(Decimal(j) / num_means, scale, support) for j in range(num_means)]
    width = len(support) if num_means == 1 else 1 << len(support).bit_length()  # for a search by halving
    bounds = [[*row, *[2**128 - 1] * (width - len(row))] for row in bounds]
    # Signed words, so that torch can compare them: unsigned 64-bit order, shifted by 2⁶³.
    high = np.array([[(b >> 64) - 2**63 for b in row] for row in bounds], dtype=np.int64)
    low = np.array([[(b & (2**64 - 1)) - 2**63 for b in row] for row in bounds], dtype=np.int64)
    leading_bits = 16 if num_means == 1 else 10
    return DiscreteTables(
        first=support[0],
        high=torch.from_numpy(high).to(device),
        low=torch.from_numpy(low).to(device),
        answers=torch.from_numpy(_answers(high, support[0], leading_bits)).to(device),
        leading_bits=leading_bits,
    )


def _answers(high: np.ndarray, first: int, leading_bits: int) -> np.ndarray:
    """What words with the same leading bits mean, by row, in the smallest type that holds every value."""
    starts = (np.arange(1 << leading_bits, dtype=np.int64) - (1 << (leading_bits - 1))) << (64 - leading_bits)
    last = starts + ((1 << (64 - leading_bits)) - 1)
    kind = next(kind for kind in (np.int8, np.int16, np.int32) if -first < np.iinfo(kind).max)
    found = np.empty((len(high), len(starts)), dtype=kind)
    for row, answers in zip(high, found, strict=True):
        entry = np.searchsorted(row, starts)
        # An entry in between, or equal to one of these words, decides: only other bits tell on which side a word is.
        answers[:] = np.where(entry == np.searchsorted(row, last, side="right"), entry + first, np.iinfo(kind).min)
    return found


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
