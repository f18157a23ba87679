"""The roster of a run: the keys of all its nodes, told to each of them once.

With it every node knows from whom masks and shares may come, and that its own key is among them. The run's public
randomness (`beacon`) is a hash of the roster: fixed after all keys, so no party chooses it alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from itertools import pairwise

from laconic.errors import WireError
from laconic.secagg.keys import ENTRY_BYTES, PublicKeys


def write_roster(keys: Iterable[PublicKeys]) -> bytes:
    return b"".join(entry.entry() for entry in sorted(keys, key=lambda entry: entry.client))


def read_roster(data: bytes) -> list[PublicKeys]:
    """The entries, in ascending order of the clients. Signatures are checked by whoever learns the keys."""
    if not data or len(data) % ENTRY_BYTES:
        raise WireError(f"a roster of {len(data)} bytes, but every node has {ENTRY_BYTES}")
    entries = [PublicKeys.from_entry(data[at : at + ENTRY_BYTES]) for at in range(0, len(data), ENTRY_BYTES)]
    if any(a.client >= b.client for a, b in pairwise(entries)):
        raise WireError("a roster names the nodes in ascending order, each once")
    return entries


def beacon_of(run: bytes, roster: bytes) -> bytes:
    """32 bytes of public randomness."""
    return hashlib.sha256(b"laconic beacon" + run + roster).digest()
