"""The roster of a run: the keys of all its nodes, told to each of them once.

With it every node knows from whom masks and shares may come, and that its own key is among them. The run's public
randomness (`beacon`) is a hash of the roster: fixed after all keys, so no party chooses it alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from itertools import pairwise

from laconic.errors import PrivacyError, WireError
from laconic.secagg.crypto import labels
from laconic.secagg.crypto.keys import ENTRY_BYTES, KeyBook, PublicKeys
from laconic.secagg.crypto.labels import labelled


def write_roster(keys: Iterable[PublicKeys]) -> bytes:
    return b"".join(entry.entry() for entry in sorted(keys, key=lambda entry: entry.client))


def read_roster(data: bytes) -> list[PublicKeys]:
    """The entries, in ascending order of the clients. Signatures are checked by the client that learns the keys."""
    if not data or len(data) % ENTRY_BYTES:
        raise WireError(f"a roster of {len(data)} bytes, but every node has {ENTRY_BYTES}")
    entries = [PublicKeys.from_entry(data[at : at + ENTRY_BYTES]) for at in range(0, len(data), ENTRY_BYTES)]
    if any(a.client >= b.client for a, b in pairwise(entries)):
        raise WireError("a roster names the nodes in ascending order, each once")
    return entries


def check_roster(data: bytes, context: bytes, num_clients: int, own: PublicKeys, identities: Collection[str]) -> None:
    """Refuse a roster that is not of all nodes of this very offer, each with a key and an identity of its own.

    `identities` are those that the node's owner lists, in hexadecimal; without any, all are taken.
    """
    entries = read_roster(data)
    if [entry.client for entry in entries] != list(range(num_clients)):
        raise WireError(f"a roster of {len(entries)} nodes, but the offer is to nodes 0 to {num_clients - 1}")
    mine = entries[own.client]
    if (mine.agreement, mine.identity) != (own.agreement, own.identity):
        raise WireError("this node's own key is not in the roster")
    check_listed(entries, identities)
    book = KeyBook(context)
    for entry in entries:
        book.learn(entry)


def check_listed(entries: Iterable[PublicKeys], identities: Collection[str]) -> None:
    """Refuse nodes that the owner has not listed, if there is a list."""
    strangers = [entry.client for entry in entries if identities and entry.identity.hex() not in identities]
    if strangers:
        raise PrivacyError(f"nodes {strangers} of the roster are not among the identities of the policy")


def beacon_of(run: bytes, roster: bytes) -> bytes:
    """32 bytes of public randomness."""
    return hashlib.sha256(labelled(labels.BEACON, run, roster)).digest()
