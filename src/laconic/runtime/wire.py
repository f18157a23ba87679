"""Messages as bytes: a fixed header that names scheme, round, attempt and client, then the packed values.

4 magic · 1 version · 1 kind · 1 encoding · 1 zero · 4 round · 4 attempt · 8 client · 8 count · 8 weight
· 16 scheme fingerprint · 4 CRC-32 of the payload, all little-endian, then the payload
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from laconic.errors import WireError

_HEADER = struct.Struct("<4sBBBBIIQQd16sI")
_MAGIC, _VERSION = b"LACN", 1
KINDS = {"weights": 0, "code": 1}
ENCODINGS = {"float32": 0}
_BITS = {"float32": 32}


@dataclass(frozen=True)
class Message:
    """A decoded message. `weight` is how much the client counts in the mean; 0 on the way down."""

    kind: str
    round: int
    attempt: int
    client: int
    weight: float
    fingerprint: str
    values: Tensor


def message_size(count: int, encoding: str = "float32") -> int:
    """The length in bytes of a message with so many values: what `encode` returns is exactly that long."""
    return _HEADER.size + -(-count * _BITS[encoding] // 8)


def encode(message: Message) -> bytes:
    """The message as bytes."""
    payload = message.values.detach().to("cpu", torch.float32).contiguous().numpy().astype("<f4", copy=False).tobytes()
    header = _HEADER.pack(
        _MAGIC,
        _VERSION,
        KINDS[message.kind],
        ENCODINGS["float32"],
        0,
        message.round,
        message.attempt,
        message.client,
        message.values.numel(),
        message.weight,
        bytes.fromhex(message.fingerprint),
        zlib.crc32(payload),
    )
    return header + payload


def decode(data: bytes, *, fingerprint: str, round: int, attempt: int, size: int) -> Message:
    """The message, or a `WireError` that says why it is refused."""
    if len(data) < _HEADER.size:
        raise WireError(f"message of {len(data)} bytes is shorter than its header ({_HEADER.size})")
    magic, version, kind, encoding, zero, its_round, its_attempt, client, count, weight, print_, crc = (
        _HEADER.unpack_from(data)
    )
    if magic != _MAGIC or version != _VERSION or zero != 0:
        raise WireError("not a message of this version of laconic")
    if kind not in KINDS.values() or encoding not in ENCODINGS.values():
        raise WireError(f"message of unknown kind {kind} or encoding {encoding}")
    if print_.hex() != fingerprint:
        raise WireError(f"message of scheme {print_.hex()[:8]}…, but this round runs {fingerprint[:8]}…")
    if (its_round, its_attempt) != (round, attempt):
        raise WireError(f"message of round {its_round}.{its_attempt}, but this is round {round}.{attempt}")
    if count != size or len(data) != message_size(count):
        raise WireError(f"message of {len(data)} bytes with {count} values, expected {size} values")
    payload = data[_HEADER.size :]
    if zlib.crc32(payload) != crc:
        raise WireError("message is corrupted: its checksum does not match")
    if not (np.isfinite(weight) and weight >= 0):
        raise WireError(f"message has weight {weight}")
    values = torch.from_numpy(np.frombuffer(payload, dtype="<f4").astype(np.float32))
    kind_name = next(name for name, number in KINDS.items() if number == kind)
    return Message(kind_name, its_round, its_attempt, client, weight, print_.hex(), values)
