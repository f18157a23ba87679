"""Arithmetic mod 2^b, b from 8 to 64, on whole vectors.

A residue lives in the smallest machine word that holds b bits. Words wrap mod 2^w, and 2^b divides 2^w: sums and masks
are right mod 2^b without any reduction, and the surplus bits fall off when the residues are packed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from laconic.errors import ConfigError
from laconic.packing import pack, packed_size, unpack

MIN_BITS, MAX_BITS = 8, 64


@dataclass(frozen=True)
class Ring:
    """The integers mod 2^bits."""

    bits: int

    def __post_init__(self) -> None:
        if not MIN_BITS <= self.bits <= MAX_BITS:
            raise ConfigError(f"bits must be {MIN_BITS} to {MAX_BITS} for a masked sum, not {self.bits}")

    @property
    def word(self) -> np.dtype:
        """The type of a residue in memory; little-endian, as the keystreams are read."""
        return np.dtype(next(f"<u{size}" for size in (1, 2, 4, 8) if self.bits <= 8 * size))

    def zeros(self, count: int) -> np.ndarray:
        return np.zeros(count, dtype=self.word)

    def words(self, values: np.ndarray) -> np.ndarray:
        """Any integers as words: a new array that may be changed in place."""
        if values.dtype.kind not in "iu":
            raise ConfigError(f"a masked sum takes whole numbers, not {values.dtype}")
        return values.astype(self.word)

    def reduced(self, words: np.ndarray) -> np.ndarray:
        """The residues 0 … 2^b − 1, as uint64."""
        return words.astype(np.uint64) & np.uint64(2**self.bits - 1)

    def packed_size(self, count: int) -> int:
        return packed_size(count, self.bits)

    def pack(self, words: np.ndarray) -> bytes:
        return pack(words, self.bits)

    def unpack(self, data: bytes | memoryview, count: int) -> np.ndarray:
        return unpack(data, count, self.bits).astype(self.word)
