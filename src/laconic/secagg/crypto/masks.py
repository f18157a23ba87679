"""Arithmetic mod 2^b on whole vectors, b from 8 to 64, and the masks that are added to them.

A residue lives in the smallest machine word that holds b bits. Words wrap mod 2^w, and 2^b divides 2^w: sums and masks
are right mod 2^b without any reduction, and the surplus bits fall off when the residues are packed.

A mask is the AES-256-CTR keystream of a 32-byte seed, read as words and added to a vector in place. A keystream word is
uniform mod 2^w and b ≤ w, so its low b bits are uniform mod 2^b: no bias, no rejection. A seed makes one keystream in
its life, from counter zero: seeds are fresh, or derived from the plan of one attempt.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

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


SEED_BYTES = 32
_BLOCK = 16
_CHUNK = 1 << 17  # bytes of keystream at a time: it is still in the cache when it is added


def keystream(seed: bytes, size: int) -> np.ndarray:
    """The first bytes of the seed's keystream."""
    out = np.empty(size + _BLOCK, dtype=np.uint8)
    _cipher(seed).update_into(np.zeros(size, dtype=np.uint8).data, out.data)
    return out[:size]


def add_masks(words: np.ndarray, *, plus: Iterable[bytes] = (), minus: Iterable[bytes] = ()) -> None:
    """Add to the words the masks of the seeds `plus` and subtract those of the seeds `minus`, in place."""
    zeros = np.zeros(_CHUNK, dtype=np.uint8)
    buffer = np.empty(_CHUNK + _BLOCK, dtype=np.uint8)
    masks = buffer[:_CHUNK].view(words.dtype)
    step = len(masks)
    for operation, seeds in ((np.add, plus), (np.subtract, minus)):
        for seed in seeds:
            cipher = _cipher(seed)
            for start in range(0, len(words), step):
                piece = words[start : start + step]
                cipher.update_into(zeros[: piece.nbytes].data, buffer.data)
                operation(piece, masks[: len(piece)], out=piece)


def _cipher(seed: bytes) -> CipherContext:
    return Cipher(AES(seed), CTR(bytes(_BLOCK))).encryptor()
