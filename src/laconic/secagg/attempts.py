"""What a client has sent already, and the nonces that make every plan new: nothing is sent twice.

*Attempts* are written down before they are sent. Masks follow from run, round, attempt and plan. Two vectors under one
attempt would reveal their difference, and two answers to unmask requests could open what one may not. So every step of
an attempt is claimed once, all of them under one plan, and attempts only go forward.

*Nonces* are random numbers in memory alone. Masks, shares and signatures of an attempt follow from the hash of its
plan, and that has a nonce of every client of the cohort. A client masks a vector only under a plan with its own current
nonce, and then draws another one. Nonces are in memory alone. So a client whose files were restored from a copy, and
who has forgotten what it sent, cannot be asked for a second vector under the same masks: the plan of before has a nonce
that it does not know any more.
"""

from __future__ import annotations

import secrets
from enum import IntEnum
from typing import NamedTuple, Protocol

from laconic.errors import PrivacyError, WireError
from laconic.secagg.terms import NONCE_BYTES


class StaleNonce(WireError):
    """The plan was made for another process of this client, or before its last vector."""

    def __init__(self) -> None:
        super().__init__(
            "the plan has another nonce than this client's: it was restarted or restored since, or has begun another"
            " attempt; it takes part again from the next round"
        )


class Nonces:
    """The current nonce of each run, from when this process first needs it until a vector is masked under it."""

    def __init__(self) -> None:
        self._current: dict[bytes, bytes] = {}

    def current(self, run: bytes) -> bytes:
        """What the next plan of the run must have."""
        if run not in self._current:
            self._current[run] = secrets.token_bytes(NONCE_BYTES)
        return self._current[run]

    def check(self, run: bytes, nonce: bytes) -> None:
        """Refuse the plan of an attempt that was not made for this process, or not since its last vector."""
        if nonce != self.current(run):
            raise StaleNonce

    def spend(self, run: bytes, nonce: bytes) -> None:
        """A vector is about to be masked under this nonce, and none will be again."""
        self.check(run, nonce)
        del self._current[run]


class Step(IntEnum):
    """What a client does once in an attempt, in this order."""

    UPLOAD = 1
    CONSENT = 2
    REVEAL = 3


class Mark(NamedTuple):
    """How far a client is."""

    round: int
    attempt: int
    step: Step
    plan: bytes
    """The hash of the attempt's plan."""


class Attempts(Protocol):
    """The last step that was claimed in each run."""

    def last(self, run: bytes) -> Mark | None: ...

    def claim(self, run: bytes, mark: Mark) -> None:
        """Write the step down, or refuse it if this or a later one was claimed before."""


class AttemptsInMemory:
    """For simulations: forgotten with the process."""

    def __init__(self) -> None:
        self._last: dict[bytes, Mark] = {}

    def last(self, run: bytes) -> Mark | None:
        return self._last.get(run)

    def claim(self, run: bytes, mark: Mark) -> None:
        check_forward(self.last(run), mark)
        self._last[run] = mark


def check_forward(last: Mark | None, mark: Mark) -> None:
    """Refuse a mark that is not after the last one, or that has another plan for the same attempt."""
    if last is None:
        return
    name = f"round {mark.round}, attempt {mark.attempt}"
    if mark[:3] <= last[:3]:
        raise PrivacyError(
            f"{name}: this client is past it (its last was round {last.round}, attempt {last.attempt},"
            f" {last.step.name.lower()}); repeat the round as a new attempt"
        )
    if mark[:2] == last[:2] and mark.plan != last.plan:
        raise PrivacyError(f"{name}: this client has begun it under another plan; repeat the round as a new attempt")
