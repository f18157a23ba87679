"""Numbers of b bits, packed: what travels is b bits a value and nothing more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Encoding:
    """How the values of a message are packed: floats of 32 or 16 bits, signs of one, or integers of some bits."""

    kind: str
    bits: int


FLOAT32, FLOAT16, SIGNS = Encoding("float32", 32), Encoding("float16", 16), Encoding("sign", 1)


def integers(bits: int) -> Encoding:
    return Encoding("integer", bits)


def packed_size(count: int, bits: int) -> int:
    """How many bytes `count` values of `bits` bits take."""
    return -(-count * bits // 8)


def pack(values: np.ndarray, bits: int) -> bytes:
    """The low `bits` bits of each integer (1 to 64), most significant first, in one string of bits."""
    if not 1 <= bits <= 64:
        raise ValueError(f"bits must be 1 to 64, not {bits}")
    whole = values.reshape(-1)
    if whole.dtype.kind not in "iu":
        whole = whole.astype(np.int64)
    if bits % 8 == 0:
        width = _word_bytes(bits)
        return whole.astype(f">u{width}").view(np.uint8).reshape(-1, width)[:, width - bits // 8 :].tobytes()
    packed = np.empty((-(-len(whole) // 8), bits), dtype=np.uint8)
    for rows in _blocks(len(packed)):
        piece = whole[8 * rows.start : 8 * rows.stop]
        group = np.zeros((rows.stop - rows.start, 8), dtype=np.uint64)
        group.reshape(-1)[: len(piece)] = piece.astype(np.uint64)
        group &= np.uint64(2**bits - 1)
        # One row at a time in memory: the same value, or the same byte, of all groups.
        columns = np.ascontiguousarray(group.T)
        out = np.zeros((bits, len(group)), dtype=np.uint8)
        for value, byte, shift in _overlaps(bits):
            column = columns[value]
            moved = column >> np.uint64(shift) if shift >= 0 else column << np.uint64(-shift)
            out[byte] |= moved.astype(np.uint8)
        packed[rows] = out.T
    return packed.reshape(-1)[: packed_size(len(whole), bits)].tobytes()


def unpack(data: bytes | memoryview, count: int, bits: int) -> np.ndarray:
    """The integers that `pack` wrote, as residues in 0 … 2^bits − 1 (uint64)."""
    if not 1 <= bits <= 64:
        raise ValueError(f"bits must be 1 to 64, not {bits}")
    if len(data) != packed_size(count, bits):
        raise ValueError(f"{len(data)} bytes cannot be {count} values of {bits} bits")
    raw = np.frombuffer(data, dtype=np.uint8)
    if bits % 8 == 0:
        width = _word_bytes(bits)
        wide = np.zeros((count, width), dtype=np.uint8)
        wide[:, width - bits // 8 :] = raw.reshape(count, bits // 8)
        return wide.view(f">u{width}").reshape(-1).astype(np.uint64)
    values = np.empty((-(-count // 8), 8), dtype=np.uint64)
    for rows in _blocks(len(values)):
        piece = raw[bits * rows.start : bits * rows.stop]
        group = np.zeros((rows.stop - rows.start, bits), dtype=np.uint8)
        group.reshape(-1)[: len(piece)] = piece
        columns = np.ascontiguousarray(group.T).astype(np.uint64)
        out = np.zeros((8, len(group)), dtype=np.uint64)
        for value, byte, shift in _overlaps(bits):
            column = columns[byte]
            out[value] |= column << np.uint64(shift) if shift >= 0 else column >> np.uint64(-shift)
        out &= np.uint64(2**bits - 1)
        values[rows] = out.T
    return values.reshape(-1)[:count]


def centred(residues: np.ndarray, bits: int) -> np.ndarray:
    """Residues mod 2^bits as signed integers in −2^(bits−1) … 2^(bits−1) − 1."""
    shift = np.uint64(64 - bits)
    return (residues.astype(np.uint64) << shift).view(np.int64) >> np.int64(64 - bits)


def _word_bytes(bits: int) -> int:
    """The smallest machine word that holds so many bits: 1, 2, 4 or 8 bytes."""
    return next(size for size in (1, 2, 4, 8) if bits <= 8 * size)


def _overlaps(bits: int) -> Iterator[tuple[int, int, int]]:
    """Eight values of b bits are b bytes: which value meets which byte, and how far to the right it is shifted."""
    for value in range(8):
        first, last = value * bits, (value + 1) * bits - 1
        for byte in range(first // 8, last // 8 + 1):
            yield value, byte, last - (8 * byte + 7)


def _blocks(groups: int, size: int = 1 << 13) -> Iterator[slice]:
    """Slices of the groups, each small enough to stay in the cache."""
    for start in range(0, groups, size):
        yield slice(start, min(start + size, groups))
