"""The nonces of a client: random numbers that make every plan new, whatever the client's files say.

Masks, shares and signatures of an attempt follow from the hash of its plan, and that has a nonce of every client of the
cohort. A client masks a vector only under a plan with its own current nonce, and then draws another one. Nonces are in
memory alone. So a client whose files were restored from a copy, and who has forgotten what it sent, cannot be asked
for a second vector under the same masks: the plan of before has a nonce that it does not know any more.
"""

from __future__ import annotations

import secrets

from laconic.errors import WireError
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
