"""What a server needs of whatever carries its messages: ask nodes, have their answers, or the reasons why not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from laconic.federation.requests import Fields


@dataclass
class Answers:
    """What came back: answers by client, and for every other client why there is none.

    `overhead_up` and `overhead_down` are the bytes that the carrier added to the fields.
    """

    given: dict[int, Fields] = field(default_factory=dict)
    missing: dict[int, str] = field(default_factory=dict)
    overhead_up: int = 0
    overhead_down: int = 0


class Courier(Protocol):
    """Carries one exchange: a request to each of some clients, and their answers."""

    def ask(self, kind: str, requests: Mapping[int, Fields], *, timeout: float, enough: int | None = None) -> Answers:
        """`kind` is keys, upload, consent or unmask. Waits for all answers, or `enough`, or so many seconds."""


def fields_bytes(fields: Iterable[Fields]) -> int:
    """The bytes of the values themselves; a number counts 4, as it would in a packed message."""
    return sum(_size(value) for some in fields for value in some.values())


def _size(value: bytes | int | str) -> int:
    if isinstance(value, int):
        return 4
    return len(value) if isinstance(value, bytes) else len(value.encode())
