"""What a client has sent already: written down before it is sent, so that no restart makes it forget.

Masks follow from run, round, attempt and plan. Two vectors under one attempt would reveal their difference, and two
answers to unmask requests could open what one may not. So every step of an attempt is claimed once, all of them under
one plan, and attempts only go forward.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, Protocol

from laconic.errors import PrivacyError


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
