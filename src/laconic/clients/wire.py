"""Messages as bytes: a fixed header that names scheme, round, attempt and client, then the packed values.

4 magic · 1 version · 1 kind · 1 encoding · 1 bits · 4 round · 4 attempt · 8 client · 8 count · 8 weight
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
from laconic.packing import FLOAT32, Encoding, centred, pack, packed_size, unpack
from laconic.round import in_half

_HEADER = struct.Struct("<4sBBBBIIQQd16sI")
_MAGIC, _VERSION = b"LACN", 1
_KINDS = ("weights", "code", "shared")
_ENCODINGS = ("float32", "sign", "integer", "float16")


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


def message_size(count: int, encoding: Encoding = FLOAT32) -> int:
    """The length in bytes of a message with so many values: what `encode` returns is exactly that long."""
    return _HEADER.size + packed_size(count, encoding.bits)


def encode(message: Message, encoding: Encoding = FLOAT32) -> bytes:
    """The message as bytes."""
    payload = _packed(message.values.detach().cpu(), encoding)
    header = _HEADER.pack(
        _MAGIC,
        _VERSION,
        _KINDS.index(message.kind),
        _ENCODINGS.index(encoding.kind),
        encoding.bits,
        message.round,
        message.attempt,
        message.client,
        message.values.numel(),
        message.weight,
        bytes.fromhex(message.fingerprint),
        zlib.crc32(payload),
    )
    return header + payload


def decode(
    data: bytes, *, fingerprint: str, round: int, attempt: int, size: int, encoding: Encoding = FLOAT32
) -> Message:
    """The message, or a `WireError` that says why it is refused.

    Args:
        data: what arrived.
        fingerprint: of the scheme that the message must belong to.
        round: of which it must be.
        attempt: of which it must be.
        size: how many values it must have.
        encoding: how its values must be packed.
    """
    if len(data) < _HEADER.size:
        raise WireError(f"message of {len(data)} bytes is shorter than its header ({_HEADER.size})")
    magic, version, kind, packing, bits, its_round, its_attempt, client, count, weight, print_, crc = (
        _HEADER.unpack_from(data)
    )
    if magic != _MAGIC or version != _VERSION:
        raise WireError("not a message of this version of laconic")
    if kind >= len(_KINDS) or packing >= len(_ENCODINGS):
        raise WireError(f"message of unknown kind {kind} or encoding {packing}")
    if (_ENCODINGS[packing], bits) != (encoding.kind, encoding.bits):
        raise WireError(f"message of {_ENCODINGS[packing]} values of {bits} bits, expected {encoding.kind}")
    if print_.hex() != fingerprint:
        raise WireError(f"message of scheme {print_.hex()[:8]}…, but this round runs {fingerprint[:8]}…")
    if (its_round, its_attempt) != (round, attempt):
        raise WireError(f"message of round {its_round}.{its_attempt}, but this is round {round}.{attempt}")
    if count != size or len(data) != message_size(count, encoding):
        raise WireError(f"message of {len(data)} bytes with {count} values, expected {size} values")
    payload = data[_HEADER.size :]
    if zlib.crc32(payload) != crc:
        raise WireError("message is corrupted: its checksum does not match")
    if not (np.isfinite(weight) and weight >= 0):
        raise WireError(f"message has weight {weight}")
    return Message(_KINDS[kind], its_round, its_attempt, client, weight, print_.hex(), _read(payload, size, encoding))


def survives(values: Tensor, encoding: Encoding) -> bool:
    """Whether packing keeps the values as they are."""
    plain = values.detach().cpu()
    return torch.equal(_read(_packed(plain, encoding), plain.numel(), encoding).to(plain.dtype), plain)


def _packed(values: Tensor, encoding: Encoding) -> bytes:
    if encoding.kind == "float32":
        return values.to(torch.float32).contiguous().numpy().astype("<f4", copy=False).tobytes()
    if encoding.kind == "float16":
        return in_half(values).to(torch.float16).contiguous().numpy().astype("<f2", copy=False).tobytes()
    return pack((values > 0).numpy() if encoding.kind == "sign" else values.numpy(), encoding.bits)


def _read(payload: bytes, count: int, encoding: Encoding) -> Tensor:
    if encoding.kind == "float32":
        return torch.from_numpy(np.frombuffer(payload, dtype="<f4").astype(np.float32))
    if encoding.kind == "float16":
        return torch.from_numpy(np.frombuffer(payload, dtype="<f2").astype(np.float32))
    residues = unpack(payload, count, encoding.bits)
    if encoding.kind == "sign":
        return torch.from_numpy(residues.astype(np.float32) * 2 - 1)
    return torch.from_numpy(centred(residues, encoding.bits))
