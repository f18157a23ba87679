"""What travels between server and node, as named fields of bytes and numbers; and what a courier of them must do.

keys       offer                                             → announcement
ready      run                                               → nonce         where the server has none
upload     run, round, attempt, plan, weights (+ roster, shared: once) → upload
consent    run, survivors                                    → consent        signed mode only
unmask     run, request                                      → reveal

Every answer may be `refused` instead, with the reason. Where sums are masked, every answer brings the node's
current `nonce`, which the next plan must have, and so does the refusal of a plan with another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from laconic.errors import WireError, one_line
from laconic.secagg.terms import NONCE_BYTES, RUN_BYTES

Fields = dict[str, bytes | int | str]
REFUSED, NONCE = "refused", "nonce"


@dataclass(frozen=True, kw_only=True)
class UploadRequest:
    """A round, as it is sent to one node.

    `weights` is a `wire` message with the weights that the node lacks. `plan` is the plan of the masked sum, empty
    where nothing is masked. `roster` and `shared` come with a node's first round, and are empty later.
    """

    run: bytes
    round: int
    attempt: int
    weights: bytes
    plan: bytes = b""
    roster: bytes = b""
    shared: bytes = b""

    def to_fields(self) -> Fields:
        return {name: value for name, value in vars(self).items() if value != b""}

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> UploadRequest:
        return cls(
            run=run_in(fields),
            round=_number(fields, "round"),
            attempt=_number(fields, "attempt"),
            weights=bytes_in(fields, "weights"),
            **{name: bytes_in(fields, name) for name in ("plan", "roster", "shared") if name in fields},
        )


def bytes_in(fields: Mapping[str, Any], name: str) -> bytes:
    value = fields.get(name)
    if not isinstance(value, bytes):
        raise WireError(f"the message lacks '{name}'")
    return value


def run_in(fields: Mapping[str, Any]) -> bytes:
    run = bytes_in(fields, "run")
    if len(run) != RUN_BYTES:
        raise WireError(f"a run is named by {RUN_BYTES} bytes, not {len(run)}")
    return run


def _number(fields: Mapping[str, Any], name: str) -> int:
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**32:
        raise WireError(f"the message lacks '{name}', or it is no number of 32 bits")
    return value


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
