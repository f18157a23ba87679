"""Keys: an Ed25519 identity for long, a key for a run, and what is derived from them for one attempt.

A client announces the key of a run once. Its identity signs that key, and the key signs itself in return, so no client
announces a key that is not theirs. A client with the list of identities refuses unknown and swapped keys; without it,
the first key that is heard of a client is the client's for the whole run. No key and no identity stands for two
clients.

*The key of a run* agrees on masks (X25519) and can prove that it is there (Ed25519). An X25519 key cannot sign, so
a client could announce a copied public one as its own. Here the key of a run is an Ed25519 key. Its owner signs with
it once, when it is announced. Everyone else maps the public key to the Montgomery form of the same curve point, u = (1
+ y)/(1 − y) mod 2^255 − 19 (RFC 7748, section 4.1), and X25519 works with that. One key for both is safe as long as the
two uses are hashed apart, which labels do: E. Thormarker, "On using the same key pair for Ed25519 and an X25519 based
KEM", 2021.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand

from laconic.errors import WireError
from laconic.secagg.crypto import labels
from laconic.secagg.crypto.labels import labelled
from laconic.secagg.crypto.masks import SEED_BYTES
from laconic.secagg.terms import MAX_CLIENT, RUN_BYTES

_PRIME = 2**255 - 19


class RunKey:
    """A client's secret of one run."""

    def __init__(self, seed: bytes) -> None:
        self._signing = Ed25519PrivateKey.from_private_bytes(seed)
        # RFC 8032, section 5.1.5: the scalar of an Ed25519 key. X25519 clamps it in the same way.
        self._agreeing = X25519PrivateKey.from_private_bytes(hashlib.sha512(seed).digest()[:32])
        self.public = self._signing.public_key().public_bytes_raw()

    @classmethod
    def generate(cls) -> Self:
        return cls(Ed25519PrivateKey.generate().private_bytes_raw())

    def sign(self, statement: bytes) -> bytes:
        return self._signing.sign(statement)

    def agree(self, other: bytes) -> bytes:
        """The secret with the owner of another public run key; `WireError` if nothing can be kept secret with it."""
        try:
            return self._agreeing.exchange(X25519PublicKey.from_public_bytes(montgomery(other)))
        except ValueError:
            raise WireError("the key is of low order: nothing can be kept secret with it") from None


@lru_cache(maxsize=1 << 14)
def montgomery(public: bytes) -> bytes:
    """The X25519 form of a public run key. A point and its negative have the same one."""
    y = int.from_bytes(public, "little") & ((1 << 255) - 1)
    if y >= _PRIME or y == 1:
        raise WireError("the key is no point that a secret can be kept with")
    return ((1 + y) * pow(1 - y, -1, _PRIME) % _PRIME).to_bytes(32, "little")


@lru_cache(maxsize=1 << 14)
def check_order(public: bytes) -> None:
    """Refuse a key of low order. X25519 multiplies by 8, so any secret of ours finds it out."""
    _ANY.agree(public)


_ANY = RunKey(bytes(32))


SIGNATURE_BYTES = 64
_ENTRY = struct.Struct("<I32s32s64s64s")
ENTRY_BYTES = _ENTRY.size
_FRAME = struct.Struct(f"<4sBB{RUN_BYTES}s")
ANNOUNCEMENT_BYTES = _FRAME.size + ENTRY_BYTES
_MAGIC, _KIND = b"LSEC", 1


@dataclass(frozen=True)
class PublicKeys:
    """A client's keys of one run, as they are relayed: 4 client · 32 run key · 32 identity · 64 signature by the
    identity · 64 signature by the run key itself."""

    client: int
    agreement: bytes
    identity: bytes
    signature: bytes
    possession: bytes

    @classmethod
    def signed(cls, context: bytes, client: int, agreement: RunKey, identity: Ed25519PrivateKey) -> PublicKeys:
        """`context` names the run and what was offered (`Terms.context`)."""
        name = identity.public_key().public_bytes_raw()
        statements = (_statement(label, context, client, agreement.public, name) for label in _SIGNED)
        return cls(client, agreement.public, name, identity.sign(next(statements)), agreement.sign(next(statements)))

    def entry(self) -> bytes:
        return _ENTRY.pack(self.client, self.agreement, self.identity, self.signature, self.possession)

    @classmethod
    def from_entry(cls, data: bytes) -> PublicKeys:
        return cls(*_ENTRY.unpack(data))

    def announcement(self, run: bytes) -> bytes:
        """What the client sends: 4 magic · 1 version · 1 kind · 16 run, then the entry."""
        return _FRAME.pack(_MAGIC, labels.PROTOCOL, _KIND, run) + self.entry()

    @classmethod
    def from_announcement(cls, data: bytes, run: bytes) -> PublicKeys:
        check_version(data, "an announcement of keys")
        if len(data) != ANNOUNCEMENT_BYTES:
            raise WireError(f"an announcement of keys has {ANNOUNCEMENT_BYTES} bytes, not {len(data)}")
        _, _, kind, its_run = _FRAME.unpack_from(data)
        if kind != _KIND:
            raise WireError(f"message of kind {kind}, expected an announcement of keys")
        if its_run != run:
            raise WireError("these keys were announced for another run")
        return cls.from_entry(data[_FRAME.size :])


def check_version(data: bytes, what: str) -> None:
    """Refuse what does not begin with the magic and the version of this protocol."""
    if data[:4] != _MAGIC or len(data) < 5:
        raise WireError(f"not {what} of laconic")
    if data[4] != labels.PROTOCOL:
        raise WireError(
            f"{what} of protocol version {data[4]}, but this is version {labels.PROTOCOL}: install the same laconic"
        )


class KeyBook:
    """The keys that one party knows in one run. A key that was learnt is never replaced, and none is learnt twice."""

    def __init__(self, context: bytes, identities: Mapping[int, bytes] | None = None) -> None:
        self._context, self._identities = context, identities
        self._known: dict[int, PublicKeys] = {}
        self._owners: dict[bytes, int] = {}

    def __contains__(self, client: int) -> bool:
        return client in self._known

    def __getitem__(self, client: int) -> PublicKeys:
        return self._known[client]

    def learn(self, keys: PublicKeys) -> None:
        """Keep the keys, or refuse them with the reason."""
        self._check_new(keys)
        _check_signatures(self._context, keys)
        try:
            check_order(keys.agreement)
        except WireError as error:
            raise WireError(f"client {keys.client}: {error}") from None
        self._keep(keys)

    def recall(self, keys: PublicKeys) -> None:
        """Keep keys whose signatures this party has checked before, when it learnt them."""
        self._check_new(keys)
        self._keep(keys)

    def _check_new(self, keys: PublicKeys) -> None:
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
        for what, key in (("key", montgomery(keys.agreement)), ("identity", keys.identity)):
            owner = self._owners.get(key, client)
            if owner != client:
                raise WireError(f"client {client} announces the {what} of client {owner} as its own")

    def _keep(self, keys: PublicKeys) -> None:
        self._known[keys.client] = keys
        self._owners[montgomery(keys.agreement)] = self._owners[keys.identity] = keys.client


class PairSecrets:
    """The secrets that one client shares with each other client of the run: X25519, then HKDF. Computed once each."""

    def __init__(self, context: bytes, client: int, private: RunKey, book: KeyBook) -> None:
        self._context, self._client, self._private, self._book = context, client, private, book
        self._known: dict[int, bytes] = {}

    def __getitem__(self, client: int) -> bytes:
        if client not in self._known:
            other = self._book[client].agreement
            try:
                shared = self._private.agree(other)
            except WireError as error:
                raise WireError(f"client {client}: {error}") from None
            ends = sorted(((self._client, self._private.public), (client, other)))
            info = labelled(labels.PAIR, *(value for end in ends for value in end))
            derive = HKDF(SHA256(), SEED_BYTES, salt=self._context, info=info)
            self._known[client] = derive.derive(shared)
        return self._known[client]


def pair_seed(pair_secret: bytes, plan_hash: bytes, one: int, other: int) -> bytes:
    """The seed of the mask of two neighbours in one attempt."""
    first, second = (one, other) if one < other else (other, one)
    return _derived(pair_secret, _beginning(labels.MASK, plan_hash) + _TWO_NUMBERS.pack(8, first, 8, second))


def share_key(pair_secret: bytes, plan_hash: bytes, dealer: int, member: int) -> bytes:
    """The key that encrypts the dealer's shares for the member in one attempt."""
    return _derived(pair_secret, _beginning(labels.SHARE, plan_hash) + _TWO_NUMBERS.pack(8, dealer, 8, member))


def is_signed(identity: bytes, signature: bytes, message: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(identity).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


_beginning = lru_cache(maxsize=64)(labelled)  # of the many keys of one attempt
_TWO_NUMBERS = struct.Struct("<QQQQ")
"""As `labelled` writes two numbers."""
_SIGNED = (labels.KEYS, labels.POSSESSION)


def _check_signatures(context: bytes, keys: PublicKeys) -> None:
    by_identity, by_key = _are_signed(context, keys)
    if not by_identity:
        raise WireError(f"the signature of the keys of client {keys.client} is wrong")
    if not by_key:
        raise WireError(f"client {keys.client} does not show that the key which it announces is its own")


@lru_cache(maxsize=1 << 14)  # in a simulation every client verifies the same keys
def _are_signed(context: bytes, keys: PublicKeys) -> tuple[bool, bool]:
    """Whether the identity has signed the keys, and whether the key has."""
    statements = [_statement(label, context, keys.client, keys.agreement, keys.identity) for label in _SIGNED]
    return (
        is_signed(keys.identity, keys.signature, statements[0]),
        is_signed(keys.agreement, keys.possession, statements[1]),
    )


def _statement(label: bytes, context: bytes, client: int, agreement: bytes, identity: bytes) -> bytes:
    return labelled(label, context, client, agreement, identity)


def _derived(secret: bytes, purpose: bytes) -> bytes:
    return HKDFExpand(SHA256(), SEED_BYTES, info=purpose).derive(secret)
