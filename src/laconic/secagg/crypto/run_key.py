"""The key of a client for one run: one secret that agrees on masks (X25519) and can prove that it is there (Ed25519).

An X25519 key cannot sign, so whoever copies a public one could announce it as its own. Here the key of a run is an
Ed25519 key. Its owner signs with it once, when it is announced. Everyone else maps the public key to the Montgomery
form of the same curve point, u = (1 + y)/(1 − y) mod 2^255 − 19 (RFC 7748, section 4.1), and X25519 works with that.
One key for both is safe as long as the two uses are hashed apart, which labels do: E. Thormarker, "On using the same
key pair for Ed25519 and an X25519 based KEM", 2021.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from laconic.errors import WireError

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
