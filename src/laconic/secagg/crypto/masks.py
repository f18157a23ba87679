"""Masks: the AES-256-CTR keystream of a 32-byte seed, read as words and added to a vector in place.

A keystream word is uniform mod 2^w and b ≤ w, so its low b bits are uniform mod 2^b: no bias, no rejection. A seed
makes one keystream in its life, from counter zero: seeds are fresh, or derived from the plan of one attempt.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

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
