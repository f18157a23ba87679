"""The policy as its owner has saved it, never as half of it: an editor empties the file before it writes it again.

Half a policy is valid, and limits less than the whole. Whoever may send messages could wait for that instant.
"""

from __future__ import annotations

import time
from pathlib import Path

from laconic.federation.node.serve.kept_work import Signature, signature
from laconic.guard.policy import Policy, read_policy

SETTLING = 0.5
"""Seconds in which a changed file must not have changed again."""


class SettledPolicy:
    """A policy file that is read anew for every message."""

    def __init__(self, path: Path) -> None:
        self._path = path.expanduser()
        self._known: Signature | None = None

    def read(self) -> Policy:
        """The policy; `ConfigError` if it is none. A file that was changed is read once it stays as it is."""
        while True:
            before = signature(self._path)
            if self._known is not None and before != self._known:
                time.sleep(SETTLING)
                if signature(self._path) != before:
                    continue
            policy = read_policy(self._path)
            if signature(self._path) == before:
                self._known = before
                return policy
