"""What a server needs of whatever carries its messages: ask nodes, have their answers, or the reasons why not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from laconic.errors import one_line
from laconic.federation.requests import NONCE, REFUSED, Fields
from laconic.secagg.terms import NONCE_BYTES

_LONGEST = 300
"""Of a reason that a node gives: it goes into the server's log and into its errors."""


@dataclass
class Answers:
    """What came back: answers by client, and for every other client why there is none.

    `nonces` are those of the answers and of the refusals. `overhead_up` and `overhead_down` are the bytes that the
    carrier added to the fields.
    """

    given: dict[int, Fields] = field(default_factory=dict)
    missing: dict[int, str] = field(default_factory=dict)
    nonces: dict[int, bytes] = field(default_factory=dict)
    overhead_up: int = 0
    overhead_down: int = 0

    def add(self, client: int, fields: Fields) -> None:
        """What a node said: its answer, or why it refuses."""
        nonce = fields.get(NONCE)
        if isinstance(nonce, bytes) and len(nonce) == NONCE_BYTES:
            self.nonces[client] = nonce
        if REFUSED in fields:
            self.missing[client] = f"refuses: {one_line(fields[REFUSED], _LONGEST)}"
        else:
            self.given[client] = fields


class Courier(Protocol):
    """Carries one exchange: a request to each of some clients, and their answers."""

    def ask(self, kind: str, requests: Mapping[int, Fields], *, timeout: float, enough: int | None = None) -> Answers:
        """`kind` is keys, ready, upload, consent or unmask. Waits for all answers, or `enough`, or so many seconds."""


def fields_bytes(fields: Iterable[Fields]) -> int:
    """The bytes of the values themselves; a number counts 4, as it would in a packed message."""
    return sum(_size(value) for some in fields for value in some.values())


def _size(value: bytes | int | str) -> int:
    if isinstance(value, int):
        return 4
    return len(value) if isinstance(value, bytes) else len(value.encode())
