"""Keys: an Ed25519 identity for long, an X25519 key for a run, and what is derived for one attempt.

A client announces its X25519 key once per run, signed by its identity. Whoever has the list of identities refuses
unknown and swapped keys; without a list, the first key that is heard of a client is the client's for the whole run.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand

from laconic.errors import WireError
from laconic.secagg.masks import SEED_BYTES
from laconic.secagg.plan import MAX_CLIENT, RUN_BYTES

SIGNATURE_BYTES = 64
_ENTRY = struct.Struct("<I32s32s64s")
ENTRY_BYTES = _ENTRY.size
_FRAME = struct.Struct(f"<4sBB{RUN_BYTES}s")
ANNOUNCEMENT_BYTES = _FRAME.size + ENTRY_BYTES
_MAGIC, _VERSION, _KIND = b"LSEC", 1, 1


@dataclass(frozen=True)
class PublicKeys:
    """A client's keys of one run, as they are relayed: 4 client · 32 X25519 · 32 Ed25519 · 64 signature."""

    client: int
    agreement: bytes
    identity: bytes
    signature: bytes

    @classmethod
    def signed(cls, run: bytes, client: int, agreement: X25519PrivateKey, identity: Ed25519PrivateKey) -> PublicKeys:
        key = agreement.public_key().public_bytes_raw()
        return cls(client, key, identity.public_key().public_bytes_raw(), identity.sign(_statement(run, client, key)))

    def entry(self) -> bytes:
        return _ENTRY.pack(self.client, self.agreement, self.identity, self.signature)

    @classmethod
    def from_entry(cls, data: bytes) -> PublicKeys:
        return cls(*_ENTRY.unpack(data))

    def announcement(self, run: bytes) -> bytes:
        """What the client sends: 4 magic · 1 version · 1 kind · 16 run, then the entry."""
        return _FRAME.pack(_MAGIC, _VERSION, _KIND, run) + self.entry()

    @classmethod
    def from_announcement(cls, data: bytes, run: bytes) -> PublicKeys:
        if len(data) != ANNOUNCEMENT_BYTES:
            raise WireError(f"an announcement of keys has {ANNOUNCEMENT_BYTES} bytes, not {len(data)}")
        magic, version, kind, its_run = _FRAME.unpack_from(data)
        if (magic, version, kind) != (_MAGIC, _VERSION, _KIND):
            raise WireError("not an announcement of keys of this version of laconic")
        if its_run != run:
            raise WireError("these keys were announced for another run")
        return cls.from_entry(data[_FRAME.size :])


class KeyBook:
    """The keys that one party knows in one run. A key that was learnt is never replaced."""

    def __init__(self, run: bytes, identities: Mapping[int, bytes] | None = None) -> None:
        self._run, self._identities = run, identities
        self._known: dict[int, PublicKeys] = {}

    def __contains__(self, client: int) -> bool:
        return client in self._known

    def __getitem__(self, client: int) -> PublicKeys:
        return self._known[client]

    def learn(self, keys: PublicKeys) -> None:
        """Keep the keys, or refuse them with the reason."""
        client = keys.client
        if client > MAX_CLIENT:
            raise WireError(f"client {client}: no such client number")
        if self._identities is not None:
            if client not in self._identities:
                raise WireError(f"client {client} is not in the list of identities")
            if self._identities[client] != keys.identity:
                raise WireError(f"the keys of client {client} come from another identity than the list has")
        known = self._known.get(client)
        if known is not None and (known.agreement, known.identity) != (keys.agreement, keys.identity):
            raise WireError(f"client {client} has other keys in this run already")
        if not _are_signed(self._run, keys):
            raise WireError(f"the signature of the keys of client {client} is wrong")
        self._known[client] = keys


class PairSecrets:
    """The secrets that one client shares with each other client of the run: X25519, then HKDF. Computed once each."""

    def __init__(self, run: bytes, private: X25519PrivateKey, book: KeyBook) -> None:
        self._run, self._private, self._book = run, private, book
        self._own = private.public_key().public_bytes_raw()
        self._known: dict[int, bytes] = {}

    def __getitem__(self, client: int) -> bytes:
        if client not in self._known:
            other = self._book[client].agreement
            try:
                shared = self._private.exchange(X25519PublicKey.from_public_bytes(other))
            except ValueError:
                raise WireError(
                    f"the key of client {client} is of low order: nothing can be kept secret with it"
                ) from None
            both = b"".join(sorted((self._own, other)))
            derive = HKDF(SHA256(), SEED_BYTES, salt=self._run, info=b"laconic secagg pair" + both)
            self._known[client] = derive.derive(shared)
        return self._known[client]


def pair_seed(pair_secret: bytes, plan_hash: bytes) -> bytes:
    """The seed of the mask of two neighbours in one attempt."""
    return _derived(pair_secret, b"laconic secagg mask" + plan_hash)


def share_key(pair_secret: bytes, plan_hash: bytes, dealer: int, member: int) -> bytes:
    """The key that encrypts the dealer's shares for the member in one attempt."""
    return _derived(pair_secret, b"laconic secagg share" + plan_hash + struct.pack("<II", dealer, member))


def is_signed(identity: bytes, signature: bytes, message: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(identity).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


@lru_cache(maxsize=1 << 14)  # in a simulation every client verifies the same keys
def _are_signed(run: bytes, keys: PublicKeys) -> bool:
    return is_signed(keys.identity, keys.signature, _statement(run, keys.client, keys.agreement))


def _statement(run: bytes, client: int, agreement: bytes) -> bytes:
    return b"laconic secagg keys" + run + client.to_bytes(4, "little") + agreement


def _derived(secret: bytes, purpose: bytes) -> bytes:
    return HKDFExpand(SHA256(), SEED_BYTES, info=purpose).derive(secret)
