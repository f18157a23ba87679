"""A node's last answers, kept in its folder before they are sent: asked the same once more, it sends the same bytes.

A courier or the node's process may die between the answer and its way out. A second vector in the same attempt would be
refused, and the node would be missing in that round. The same bytes tell nobody anything new. They are kept under the
digest of the whole question and of the policy: after a change of the policy nothing is repeated.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from laconic.federation.requests import Fields
from laconic.guard.folder import NodeFolder
from laconic.secagg.terms import RUN_BYTES

_DIGEST = 32


class LastAnswers:
    """One for each run and kind of message."""

    def __init__(self, folder: NodeFolder, policy: bytes) -> None:
        self._folder, self._policy = folder, policy

    def known(self, kind: str, fields: Mapping[str, Any]) -> Fields | None:
        """What this node has answered to exactly this, if that was its last answer of the kind."""
        run = _run(kind, fields)
        kept = None if run is None else self._folder.kept(run, f"answer-{kind}")
        if kept is None or kept[:_DIGEST] != self._digest(kind, fields):
            return None
        name, _, data = kept[_DIGEST:].partition(b"\n")
        return {name.decode(): data}

    def keep(self, kind: str, fields: Mapping[str, Any], answer: Fields) -> None:
        run = _run(kind, fields)
        if run is None:
            return
        ((name, data),) = answer.items()
        assert isinstance(data, bytes)
        self._folder.keep(run, f"answer-{kind}", self._digest(kind, fields) + name.encode() + b"\n" + data)

    def _digest(self, kind: str, fields: Mapping[str, Any]) -> bytes:
        digest = hashlib.sha256(self._policy)
        for text in (kind, *(part for name in sorted(fields) for part in (name, fields[name]))):
            data = text if isinstance(text, bytes) else f"{type(text).__name__} {text}".encode()
            digest.update(len(data).to_bytes(8, "little") + data)
        return digest.digest()


def _run(kind: str, fields: Mapping[str, Any]) -> bytes | None:
    """The run of a message whose answer is kept. An offer names its own, and what is ready now may not be so later."""
    run = None if kind in ("keys", "ready") else fields.get("run")
    return run if isinstance(run, bytes) and len(run) == RUN_BYTES else None
