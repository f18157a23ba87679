"""What travels between server and node, as named fields of bytes and numbers: whatever carries messages can carry them.

keys       offer                                             → announcement
ready      run                                               → nonce         where the server has none
upload     run, round, attempt, plan, weights (+ roster, shared: once) → upload
consent    run, survivors                                    → consent        signed mode only
unmask     run, request                                      → reveal

Every answer may be `refused` instead, with the reason. Where sums are masked, every answer brings the node's
current `nonce`, which the next plan must have, and so does the refusal of a plan with another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from laconic.errors import WireError
from laconic.secagg.terms import RUN_BYTES

Fields = dict[str, bytes | int | str]
REFUSED, NONCE = "refused", "nonce"


@dataclass(frozen=True, kw_only=True)
class UploadRequest:
    """A round, as it is told to one node.

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
