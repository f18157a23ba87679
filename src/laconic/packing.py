"""Numbers of b bits, packed: what travels is b bits a value and nothing more."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Encoding:
    """How the values of a message are packed: floats of 32 bits, signs of one, or integers of some bits."""

    kind: str
    bits: int


FLOAT32, SIGNS = Encoding("float32", 32), Encoding("sign", 1)


def integers(bits: int) -> Encoding:
    return Encoding("integer", bits)


def packed_size(count: int, bits: int) -> int:
    """How many bytes `count` values of `bits` bits take."""
    return -(-count * bits // 8)


def pack(values: np.ndarray, bits: int) -> bytes:
    """The low `bits` bits of each integer (1 to 64), most significant first, in one string of bits."""
    if not 1 <= bits <= 64:
        raise ValueError(f"bits must be 1 to 64, not {bits}")
    big_endian = values.astype(np.int64).astype(">u8").view(np.uint8).reshape(-1, 8)
    if bits % 8 == 0:
        return big_endian[:, 8 - bits // 8 :].tobytes()
    return np.packbits(np.unpackbits(big_endian, axis=1)[:, 64 - bits :].reshape(-1)).tobytes()


def unpack(data: bytes, count: int, bits: int) -> np.ndarray:
    """The integers that `pack` wrote, as residues in 0 … 2^bits − 1 (uint64)."""
    if len(data) != packed_size(count, bits):
        raise ValueError(f"{len(data)} bytes cannot be {count} values of {bits} bits")
    wide = np.zeros((count, 8), dtype=np.uint8)
    raw = np.frombuffer(data, dtype=np.uint8)
    if bits % 8 == 0:
        wide[:, 8 - bits // 8 :] = raw.reshape(count, bits // 8)
    else:
        flat = np.zeros((count, 64), dtype=np.uint8)
        flat[:, 64 - bits :] = np.unpackbits(raw)[: count * bits].reshape(count, bits)
        wide = np.packbits(flat, axis=1)
    return wide.view(">u8").reshape(-1).astype(np.uint64)


def centred(residues: np.ndarray, bits: int) -> np.ndarray:
    """Residues mod 2^bits as signed integers in −2^(bits−1) … 2^(bits−1) − 1."""
    shift = np.uint64(64 - bits)
    return (residues.astype(np.uint64) << shift).view(np.int64) >> np.int64(64 - bits)
