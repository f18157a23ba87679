"""Bounds a vector and draws integers around it, from the discrete Gaussian, with a stated distance from it.

DG(μ, ξ) has the pmf ∝ exp(−(x − μ)²/2ξ²) on the integers (thesis Eq. 5.1). The bounds work on numpy's arrays, and the
sampler on the arrays that its source of words hands it: numpy's, or torch's on any device.

*Tables.* Inversion with a 64-bit uniform word is off by up to 2⁻⁶⁴ per entry of a table, too much for 3·10¹⁰ draws. So
a table has 128 bits of each cumulative probability: the first 64 decide, and only where a word equals a boundary (once
in 10¹⁵ draws or so) 64 more are drawn. Then the draw is the first entry whose 128 bits are not below the word's. In the
tails many entries share their first 64 bits, so it may be far from the first of them.

*Scales.* Where θ(ξ) = 2·exp(−2π²ξ²)/(1 − exp(−6π²ξ²)) (thesis Lemma 1),
  DG(μ, ξ₁) + k·DG(0, ξ₂) is DG(μ, √(ξ₁² + k²ξ₂²)) up to a factor 1 ± 3θ(s), s = ξ₁ξ₂/√(ξ₁² + k²ξ₂²), at every point:
completing the square leaves a sum of exp(−(a − c)²/2s²) over integers a, which is √(2π)·s·(1 ± θ(s)) for every c. So a
real mean is drawn with the scale 2, from one of 256 tables, and the rest with an integer mean, from one table; and a
scale above 1024 is put together from smaller ones. A mean is a multiple of 1/256: values are cut towards zero before
anything is drawn, which cannot lengthen a clipped vector.

*Distance.* A draw takes one table and one word of 64 bits. A real mean with a scale of 4 or more takes two of each, and
a scale above 1024 one more for each step down. A table is cut and rounded, within 2⁻⁹⁹ in total variation. So n draws
with a additions each are together within n·(1 + a)·2⁻⁹⁹ of draws for which the factors above hold: 10⁹ draws, of a
million coordinates in a thousand rounds, with real means and scales from 4 to 1024 (a = 1) within 2⁻⁶⁸.
`draw_total_variation` and `draw_gap` compute both.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import Any, Protocol, Self

import numpy as np

from laconic.parts import positive

TAIL_BITS = 100
"""Values whose tails hold less than 2^−100 are cut off."""
TABLE_TOTAL_VARIATION = 2.0**-99
"""How far a draw is from the exact distribution at most: the tails, and 2^−128 for each of at most 2^28 entries.

For the tables in use it is 2^−111 or less; a test computes it exactly."""
MEAN_BITS = 8
SAFE = 1.0 - 2.0**-20
"""Norms are clipped to S times this, so that float32 rounding cannot push one above S."""
SMALLEST_NORM, LARGEST_NORM = 1e-30, 1e30
"""Where float32 has all its bits: among the smallest numbers of all, rounding doubles a norm; and of the largest, the
sum of a few is infinite."""
_SMALL, _COARSE, _LARGE = 2.0, 100.0, 1024.0
_BLOCK = 1 << 16

Array = Any
"""A numpy array, or a tensor of torch: what their methods have in common is enough here."""


class Source(Protocol):
    """Where a draw has its words and tables from, both in arrays of one library on one device."""

    def words(self, count: int) -> Array:
        """Uniform 64-bit words, as int64."""

    def words_at(self, places: Array, count: int) -> Array:
        """Words for some of `count` places that words were drawn for."""

    def fork(self, name: str) -> Source:
        """Independent words, named after these and by what they are for."""

    def tables(self, scale: float, num_means: int) -> Tables:
        """`exact_tables`, where the arrays are."""


@dataclass(frozen=True)
class Entropy:
    """Words as they are read, little-endian, one after the other: of the operating system's generator."""

    read: Callable[[int], bytes] = os.urandom

    def words(self, count: int) -> np.ndarray:
        return np.frombuffer(self.read(8 * count), dtype="<i8")

    def words_at(self, places: np.ndarray, count: int) -> np.ndarray:
        return self.words(len(places))

    def fork(self, name: str) -> Entropy:
        return self

    def tables(self, scale: float, num_means: int) -> Tables:
        return exact_tables(scale, num_means)


# Bounds


def clip_l2(code: np.ndarray, clip_norm: float) -> np.ndarray:
    """code / max(1, ‖code‖₂ / S) in float32 (thesis Alg. 10, line 13); zeros where a NaN or an infinity has no norm.

    The scale is applied in two factors: one alone could be so small that float32 holds only a few bits of it.
    """
    squares = (np.square(code[i : i + _BLOCK], dtype=np.float64).sum() for i in range(0, len(code), _BLOCK))
    norm, target = math.sqrt(math.fsum(squares)), clip_norm * SAFE
    if not math.isfinite(norm):
        return np.zeros_like(code)
    root = np.float32(math.sqrt(target / max(norm, target)))
    return code * root * root


def clip_entries(code: np.ndarray) -> np.ndarray:
    """Entries within ±1, as signs are: ‖code‖₂ ≤ √m (thesis section 5.2.1)."""
    bounded: np.ndarray = np.nan_to_num(code, nan=0.0, posinf=1.0, neginf=-1.0).clip(-1, 1)
    return bounded


def clip_marks(code: np.ndarray, ratio: float) -> np.ndarray:
    """Entries of 0 and 1, the first ⌈r·m⌉ of those above 0: ‖code‖₂ ≤ √⌈r·m⌉ (thesis section 5.4.3)."""
    marked = code > 0
    return (marked & (marked.cumsum() <= marks_of(ratio, len(code)))).astype(code.dtype)


def marks_of(ratio: float, code_size: int) -> int:
    """M = ⌈r·m⌉: how many of m entries may be marked."""
    return min(code_size, math.ceil(ratio * code_size))


# Noise


def fixed_point(code: np.ndarray, units: float, *, whole: bool) -> np.ndarray:
    """units·code in 256ths, cut towards zero, as int64; of a `whole` code, such as signs, in whole units."""
    return (code.astype(np.float64) * (units if whole else units * 2**MEAN_BITS)).astype(np.int64)


def noisy_residues(fixed: Array, scale: float, bits: int, source: Source, *, whole: bool) -> Array:
    """DG(fixed / 256, scale) mod 2^bits, or DG(fixed, scale) mod 2^bits if `whole`, one per entry (int64)."""
    return (draw_centred(scale, fixed, source) if whole else draw_around(fixed, scale, source)) & ((1 << bits) - 1)


def draw_around(fixed: Array, scale: float, source: Source) -> Array:
    """Integers (int64) from DG(fixed / 256, scale), one per entry of `fixed` (int64)."""
    positive(scale=scale)
    flat = fixed.reshape(-1)
    small = scale if scale < 2 * _SMALL else _SMALL
    drawn = flat >> MEAN_BITS
    drawn += source.tables(small, 1 << MEAN_BITS).draw(
        flat & ((1 << MEAN_BITS) - 1), len(flat), source.fork("fraction")
    )
    if small != scale:
        drawn = draw_centred(math.sqrt(scale**2 - small**2), drawn, source)
    return drawn.reshape(fixed.shape)


def draw_centred(scale: float, mean: Array, source: Source) -> Array:
    """Integers (int64) from DG(mean, scale), one per entry of `mean` (int64)."""
    positive(scale=scale)
    drawn = mean.reshape(-1)
    for factor, part in _parts(scale):
        name = "whole" if factor == 1 else f"coarse {factor}"
        more = source.tables(part, 1).draw(None, len(drawn), source.fork(name))
        if factor > 1:
            more *= factor
        more += drawn
        drawn = more
    return drawn.reshape(mean.shape)


def theta_gap(scale: float) -> float:
    """θ(ξ): how far Σ exp(−(x − μ)²/2ξ²) over the integers is from √(2π)·ξ, relatively, at most (thesis Lemma 1)."""
    r = math.exp(-2 * math.pi**2 * scale**2)
    return 2 * r / (1 - r**3)


def draw_gap(scale: float, *, integer_mean: bool = False) -> float:
    """How far one draw's probability of any value is from DG's, relatively, at most: the 3θ(s) of every addition."""
    return sum(3 * theta_gap(s) for s in _additions(scale, integer_mean=integer_mean))


def draw_total_variation(scale: float, *, integer_mean: bool = False) -> float:
    """At most how far, in total variation, one draw is from that: each table that it takes is cut and rounded.

    `scale` is meant as a float: where a draw is put together, its scale is that up to a float's rounding, 2^−52 of it.
    """
    return (1 + len(_additions(scale, integer_mean=integer_mean))) * TABLE_TOTAL_VARIATION


def _additions(scale: float, *, integer_mean: bool) -> list[float]:
    """The s = ξ₁ξ₂/√(ξ₁² + k²ξ₂²) of every addition by which a draw is put together."""
    found = []
    if not integer_mean:
        if scale < 2 * _SMALL:
            return []
        rest = math.sqrt(scale**2 - _SMALL**2)
        found.append(_SMALL * rest / scale)
        scale = rest
    for factor, part in _parts(scale)[:-1]:
        rest = math.sqrt(scale**2 - (factor * part) ** 2)
        found.append(part * rest / scale)
        scale = rest
    return found


def _parts(scale: float) -> list[tuple[int, float]]:
    """(k, ξ₂) such that Σ k·DG(0, ξ₂) is the draw: one table up to 1024, else first k·100, which leaves 3k or more."""
    parts = []
    while scale > _LARGE:
        factor = math.floor(scale / math.sqrt(_COARSE**2 + 9))
        parts.append((factor, _COARSE))
        scale = math.sqrt(scale**2 - (factor * _COARSE) ** 2)
    return [*parts, (1, scale)]


# Tables


@dataclass(frozen=True)
class Tables:
    """P(X ≤ first + i) for several means: rows of 128 bits, split into two signed words, 2^63 less than the bits say.

    `answers[row, b]` is the value that every word with leading bits b means, or the smallest number of its type where
    that depends on the other bits: some entry's own word begins with b. Few words do, so most draws take one look.
    """

    first: int
    high: Array
    low: Array
    answers: Array
    leading_bits: int

    def mapped(self, moved: Callable[[np.ndarray], Array]) -> Self:
        """These tables, with each array mapped."""
        return type(self)(self.first, moved(self.high), moved(self.low), moved(self.answers), self.leading_bits)

    def draw(self, rows: Array | None, count: int, source: Source) -> Array:
        """Draws as int64: from row 0, or for each draw from its own row."""
        words = source.words(count)
        index = words >> (64 - self.leading_bits)
        index += 1 << (self.leading_bits - 1)
        if rows is not None:
            index += rows << self.leading_bits
        found = self.answers.reshape(-1).take(index)
        unclear = _places(found == _unclear(self.first))
        values = index
        values[:] = found
        if len(unclear):
            own = 0 * unclear if rows is None else rows[unclear]
            values[unclear] = self._searched(own, words[unclear], lambda even: _more(source, unclear[even], count))
        return values

    def _searched(self, rows: Array, words: Array, more: Callable[[Array], Array]) -> Array:
        """The values of draws whose words may be those of an entry: the first entry that is not below the word."""
        high, before = self.high.reshape(-1), rows * self.high.shape[1]
        index, step = before + 0, self.high.shape[1] // 2  # a power of two, see `exact_tables`
        while step:
            index += (high[index + (step - 1)] < words) * step
            step //= 2
        even = _places(high[index] == words)
        if len(even):
            index[even] = self._decided(index[even], words[even], more(even))
        return index - before + self.first

    def _decided(self, index: Array, words: Array, more: Array) -> Array:
        """Moved on over all entries whose 128 bits are below `words` and then `more`.

        The last entry of a row is 2^128 − 1, and no word is above it.
        """
        high, low = self.high.reshape(-1), self.low.reshape(-1)
        while bool((below := (high[index] == words) & (low[index] < more)).any()):
            index = index + below
        return index


def _more(source: Source, places: Array, count: int) -> Array:
    return source.fork("boundary").words_at(places, count)


def _places(mask: Array) -> Array:
    """Where a mask of one axis is true."""
    found = mask.nonzero()
    return found[0] if isinstance(found, tuple) else found.reshape(-1)


@functools.lru_cache(maxsize=64)
def exact_tables(scale: float, num_means: int) -> Tables:
    """Tables of DG(j / num_means, scale) for j = 0 … num_means − 1."""
    reach = math.ceil(scale * math.sqrt(2 * math.log(2) * (TAIL_BITS + 8))) + 2
    support = range(-reach, reach + 2)
    width = 1 << len(support).bit_length()  # for a search by halving
    bounds = [_bounds(Decimal(j) / num_means, scale, support) for j in range(num_means)]
    bounds = [[*row, *[2**128 - 1] * (width - len(row))] for row in bounds]
    # Signed words, so that torch can compare them: unsigned 64-bit order, shifted by 2⁶³.
    high = np.array([[(b >> 64) - 2**63 for b in row] for row in bounds], dtype=np.int64)
    low = np.array([[(b & (2**64 - 1)) - 2**63 for b in row] for row in bounds], dtype=np.int64)
    leading_bits = 16 if num_means == 1 else 10
    return Tables(support[0], high, low, _answers(high, support[0], leading_bits), leading_bits)


def _answers(high: np.ndarray, first: int, leading_bits: int) -> np.ndarray:
    """What words with the same leading bits mean, by row, in the smallest type that holds every value."""
    starts = (np.arange(1 << leading_bits, dtype=np.int64) - (1 << (leading_bits - 1))) << (64 - leading_bits)
    last = starts + ((1 << (64 - leading_bits)) - 1)
    kind = _kind(first)
    found = np.empty((len(high), len(starts)), dtype=kind)
    for row, answers in zip(high, found, strict=True):
        entry = np.searchsorted(row, starts)
        # An entry in between, or equal to one of these words, decides: only other bits tell on which side a word is.
        answers[:] = np.where(entry == np.searchsorted(row, last, side="right"), entry + first, _unclear(first))
    return found


def _kind(first: int) -> type[np.signedinteger[Any]]:
    return next(kind for kind in (np.int8, np.int16, np.int32) if -first < np.iinfo(kind).max)


def _unclear(first: int) -> int:
    """What stands in `answers` where more bits decide."""
    return int(np.iinfo(_kind(first)).min)


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
