"""The labels that keep the protocol's hashes, keys and signatures apart, and how values are put behind them.

Every hash, derived key and signature begins with one of these labels, and nothing else in the package may invent one.
`docs/protocol.md` lists them with what each binds; a test compares the two.
"""

from __future__ import annotations

import struct

PROTOCOL = 3
"""The version of all messages. Parties of different versions refuse each other."""

OFFER = b"laconic/3 offer"
OFFERED = b"laconic/3 offered"
CONTEXT = b"laconic/3 context"
KEYS = b"laconic/3 keys"
POSSESSION = b"laconic/3 possession"
BEACON = b"laconic/3 beacon"
TERMS = b"laconic/3 terms"
PLAN = b"laconic/3 plan"
RING = b"laconic/3 ring"
COMMITTEE = b"laconic/3 committee"
PAIR = b"laconic/3 pair"
MASK = b"laconic/3 mask"
SHARE = b"laconic/3 share"
CHECK = b"laconic/3 check"
MESSAGE = b"laconic/3 message"
AT_REST = b"laconic/2 key at rest"
"""Of files, which outlive a version of the messages."""


def labelled(label: bytes, *parts: bytes | int) -> bytes:
    """Label and parts as one text from which both can be read back: each part has its length in front of it.

    So no two different lists of values have the same text, and no text of one label is one of another. Whole numbers,
    such as the numbers of clients, take 8 bytes.
    """
    pieces = [struct.pack("<B", len(label)), label]
    for part in parts:
        value = part.to_bytes(8, "little") if isinstance(part, int) else part
        pieces += [struct.pack("<Q", len(value)), value]
    return b"".join(pieces)
