"""Messages as bytes. What a message must look like follows from the plan, down to its length.

Every message but the announcement of keys begins with

4 magic · 1 version · 1 kind · 16 run · 4 round · 4 attempt · 4 sender · 32 hash of the plan, little-endian

and those of clients end with 64 bytes of Ed25519 signature over all before it. `docs/protocol.md` has the
bodies.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from laconic.errors import ConfigError, WireError
from laconic.secagg.crypto import labels
from laconic.secagg.crypto.keys import ENTRY_BYTES, SIGNATURE_BYTES, KeyBook, PublicKeys, check_version, is_signed
from laconic.secagg.crypto.labels import labelled
from laconic.secagg.crypto.shamir import LIMBS
from laconic.secagg.shares import CHECK_BYTES, SHARE_BYTES, Dealing, num_corrected, num_secrets, unpack_elements
from laconic.secagg.terms import FINGERPRINT_BYTES, NONCE_BYTES, RUN_BYTES, SumPlan, Terms

_HEADER = struct.Struct(f"<4sBB{RUN_BYTES}sIII32s")
_PLAN = struct.Struct(f"<{FINGERPRINT_BYTES}s32sBQII")
_CONSENT = struct.Struct(f"<H{SIGNATURE_BYTES}s")
_MAGIC = b"LSEC"
SERVER = 2**32 - 1
HEADER_BYTES = _HEADER.size


class Kind(IntEnum):
    PLAN = 2
    UPLOAD = 3
    SURVIVORS = 4
    CONSENT = 5
    UNMASK = 6
    REVEAL = 7


@dataclass(frozen=True)
class Signed:
    """A client's message whose form is right; its signature is not verified yet."""

    sender: int
    body: memoryview
    signed: bytes
    signature: bytes

    def verify(self, book: KeyBook) -> None:
        if self.sender not in book or not is_signed(book[self.sender].identity, self.signature, self.signed):
            raise WireError(f"the signature is not client {self.sender}'s")


def framed(kind: Kind, plan: SumPlan, sender: int, *parts: bytes) -> bytes:
    header = _HEADER.pack(_MAGIC, labels.PROTOCOL, kind, plan.terms.run, plan.round, plan.attempt, sender, plan.hash)
    return b"".join((header, *parts))


def signed(identity: Ed25519PrivateKey, frame: bytes) -> bytes:
    return frame + identity.sign(_statement(frame))


def read_signed(data: bytes, kind: Kind, plan: SumPlan, body_bytes: int) -> Signed:
    """A client's message of this attempt, or a `WireError` that says why it is refused."""
    sender = _read_header(data, kind, plan)
    if sender not in plan.position:
        raise WireError(f"client {sender} is not in the cohort")
    if len(data) != HEADER_BYTES + body_bytes + SIGNATURE_BYTES:
        raise WireError(
            f"client {sender}: {kind.name.lower()} message of {len(data)} bytes, expected"
            f" {HEADER_BYTES + body_bytes + SIGNATURE_BYTES}"
        )
    frame = memoryview(data)[:-SIGNATURE_BYTES]
    return Signed(sender, frame[HEADER_BYTES:], _statement(frame), bytes(data[-SIGNATURE_BYTES:]))


# The plan: 16 fingerprint · 32 digest of the terms · 1 bits · 8 size · 4 clients · 4 keys; clients, nonces, keys


def write_plan(plan: SumPlan, keys: Iterable[PublicKeys]) -> bytes:
    entries = [entry.entry() for entry in keys]
    fingerprint = bytes.fromhex(plan.terms.fingerprint)
    fixed = _PLAN.pack(fingerprint, plan.terms.digest, plan.bits, plan.size, len(plan.cohort), len(entries))
    cohort = np.array(plan.cohort, dtype="<u4").tobytes()
    return framed(Kind.PLAN, plan, SERVER, fixed, cohort, *plan.nonces, *entries)


def plan_bytes(plan: SumPlan) -> int:
    """The length of a plan without keys."""
    return HEADER_BYTES + _PLAN.size + (4 + NONCE_BYTES) * len(plan.cohort)


def read_plan(data: bytes, terms: Terms) -> tuple[SumPlan, list[PublicKeys]]:
    round, attempt, _, plan_hash = _read_any_header(data, Kind.PLAN, terms.run)
    if len(data) < HEADER_BYTES + _PLAN.size:
        raise WireError(f"a plan of {len(data)} bytes is cut short")
    fingerprint, digest, bits, size, num_clients, num_keys = _PLAN.unpack_from(data, HEADER_BYTES)
    if fingerprint.hex() != terms.fingerprint:
        raise WireError(f"a plan for scheme {fingerprint.hex()[:8]}…, but this run is {terms.fingerprint[:8]}…")
    if digest != terms.digest:
        raise WireError("a plan under other terms than were agreed for this run")
    clients_at = HEADER_BYTES + _PLAN.size
    nonces_at = clients_at + 4 * num_clients
    keys_at = nonces_at + NONCE_BYTES * num_clients
    if len(data) != keys_at + ENTRY_BYTES * num_keys:
        raise WireError(f"a plan of {len(data)} bytes with {num_clients} clients and {num_keys} keys")
    cohort = np.frombuffer(data, dtype="<u4", count=num_clients, offset=clients_at)
    nonces = tuple(data[at : at + NONCE_BYTES] for at in range(nonces_at, keys_at, NONCE_BYTES))
    try:
        plan = SumPlan(
            terms=terms,
            round=round,
            attempt=attempt,
            bits=bits,
            size=size,
            cohort=tuple(cohort.tolist()),
            nonces=nonces,
        )
    except ConfigError as error:
        raise WireError(f"refused plan: {error}") from None
    if plan.hash != plan_hash:
        raise WireError("a plan whose hash does not match it")
    starts = range(keys_at, len(data), ENTRY_BYTES)
    return plan, [PublicKeys.from_entry(data[start : start + ENTRY_BYTES]) for start in starts]


# Upload: the packed masked vector, the check values, the packed corrections


def write_upload(plan: SumPlan, sender: int, vector: bytes, dealing: Dealing) -> bytes:
    return framed(Kind.UPLOAD, plan, sender, vector, dealing.checks, dealing.packed)


def share_bytes(plan: SumPlan) -> int:
    """The part of an upload that is neither payload nor frame."""
    return num_secrets(plan) * (CHECK_BYTES + num_corrected(plan) * SHARE_BYTES)


def read_upload(data: bytes, plan: SumPlan) -> tuple[Signed, memoryview, Dealing]:
    payload = plan.ring.packed_size(plan.size)
    message = read_signed(data, Kind.UPLOAD, plan, payload + share_bytes(plan))
    checks_end = payload + CHECK_BYTES * num_secrets(plan)
    dealing = Dealing(bytes(message.body[payload:checks_end]), bytes(message.body[checks_end:]))
    dealing.corrections(plan)  # refuses what are no elements of the field
    return message, message.body[:payload], dealing


# Survivors and consent (signed mode): one bit for each client of the cohort


def write_survivors(plan: SumPlan, survivors: Collection[int]) -> bytes:
    return framed(Kind.SURVIVORS, plan, SERVER, bitmap(plan, survivors))


def read_survivors(data: bytes, plan: SumPlan) -> tuple[int, ...]:
    _read_header(data, Kind.SURVIVORS, plan)
    return read_bitmap(data[HEADER_BYTES:], plan)


def write_consent(plan: SumPlan, sender: int, survivors: Collection[int]) -> bytes:
    return framed(Kind.CONSENT, plan, sender, bitmap(plan, survivors))


def read_consent(data: bytes, plan: SumPlan) -> tuple[Signed, tuple[int, ...]]:
    message = read_signed(data, Kind.CONSENT, plan, bitmap_bytes(plan))
    return message, read_bitmap(bytes(message.body), plan)


# Unmask request: the survivors and, in signed mode, the signatures of t consents: (2 member · 64 signature)*


def write_unmask(plan: SumPlan, survivors: Collection[int], consents: dict[int, bytes]) -> bytes:
    rows = [_CONSENT.pack(plan.point[member] - 1, signature) for member, signature in consents.items()]
    return framed(Kind.UNMASK, plan, SERVER, bitmap(plan, survivors), *rows)


def read_unmask(data: bytes, plan: SumPlan, book: KeyBook) -> tuple[tuple[int, ...], set[int]]:
    """The survivors, and the members who signed them."""
    _read_header(data, Kind.UNMASK, plan)
    end = HEADER_BYTES + bitmap_bytes(plan)
    survivors = read_bitmap(data[HEADER_BYTES:end], plan)
    if (len(data) - end) % _CONSENT.size or len(data) - end > _CONSENT.size * len(plan.committee):
        raise WireError(f"an unmask request of {len(data)} bytes is cut short or too long")
    consenting = set()
    for place, signature in _CONSENT.iter_unpack(data[end:]):
        if place >= len(plan.committee):
            raise WireError(f"a consent of member {place}, but there are {len(plan.committee)}")
        member = plan.committee[place]
        Signed(member, memoryview(b""), _statement(write_consent(plan, member, survivors)), signature).verify(book)
        consenting.add(member)
    return survivors, consenting


# Reveal: the pads of the secrets to open, by dealer and secret in ascending order


def write_reveal(plan: SumPlan, sender: int, packed_pads: bytes) -> bytes:
    return framed(Kind.REVEAL, plan, sender, packed_pads)


def read_reveal(data: bytes, plan: SumPlan, num_opened: int) -> tuple[Signed, np.ndarray]:
    """The pads (secrets to open, 16)."""
    message = read_signed(data, Kind.REVEAL, plan, num_opened * SHARE_BYTES)
    if message.sender not in plan.point:
        raise WireError(f"client {message.sender} is not in the committee")
    return message, unpack_elements(message.body, num_opened * LIMBS).reshape(num_opened, LIMBS)


def bitmap_bytes(plan: SumPlan) -> int:
    return -(-len(plan.cohort) // 8)


def bitmap(plan: SumPlan, clients: Collection[int]) -> bytes:
    bits = np.zeros(len(plan.cohort), dtype=np.uint8)
    bits[[plan.position[client] for client in clients]] = 1
    return np.packbits(bits).tobytes()


def read_bitmap(data: bytes, plan: SumPlan) -> tuple[int, ...]:
    if len(data) != bitmap_bytes(plan):
        raise WireError(f"a list of survivors of {len(data)} bytes, expected {bitmap_bytes(plan)}")
    bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8))
    if bits[len(plan.cohort) :].any():
        raise WireError("a list of survivors with more clients than the cohort has")
    return tuple(plan.cohort[place] for place in np.flatnonzero(bits))


def _read_header(data: bytes, kind: Kind, plan: SumPlan) -> int:
    """The sender of a message of this attempt."""
    round, attempt, sender, plan_hash = _read_any_header(data, kind, plan.terms.run)
    if (round, attempt) != (plan.round, plan.attempt):
        raise WireError(f"message of round {round}.{attempt}, but this is round {plan.round}.{plan.attempt}")
    if plan_hash != plan.hash:
        raise WireError("message made under another plan: scheme, cohort, keys or parameters differ")
    return sender


def _read_any_header(data: bytes, kind: Kind, run: bytes) -> tuple[int, int, int, bytes]:
    if len(data) < HEADER_BYTES:
        raise WireError(f"message of {len(data)} bytes is shorter than its header ({HEADER_BYTES})")
    check_version(data, "a message")
    _, _, its_kind, its_run, round, attempt, sender, plan_hash = _HEADER.unpack_from(data)
    if its_kind != kind:
        raise WireError(f"message of kind {its_kind}, expected {kind.name.lower()}")
    if its_run != run:
        raise WireError("message of another run")
    return round, attempt, sender, plan_hash


def _statement(frame: bytes | memoryview) -> bytes:
    return labelled(labels.MESSAGE, hashlib.sha256(frame).digest())
