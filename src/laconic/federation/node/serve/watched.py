"""A node that is watched: every message is counted and logged, with nothing of what was in it."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any, Protocol

from laconic.errors import RunFolderError
from laconic.federation.courier import fields_bytes
from laconic.federation.requests import REFUSED, Fields
from laconic.operations.events import EventLog
from laconic.secagg.terms import RUN_BYTES

KINDS = ("keys", "ready", "upload", "consent", "unmask")


class Answers(Protocol):
    """`Node`, or something that answers in its place."""

    def answer(self, kind: str, fields: Mapping[str, Any]) -> Fields: ...


class WatchedNode:
    """Answers as `node` does. A refusal is logged with the reason that the server was told, never with the detail that
    stays in the node's own log: that may quote records."""

    def __init__(self, node: Answers, events: EventLog | None = None) -> None:
        self._node, self._events, self._lock = node, events, threading.Lock()
        self.messages: Counter[tuple[str, str]] = Counter()
        """By kind of message and "given" or "refused"."""
        self.seconds: Counter[str] = Counter()
        self.bytes_in: Counter[str] = Counter()
        self.bytes_out: Counter[str] = Counter()

    def answer(self, kind: str, fields: Mapping[str, Any]) -> Fields:
        began = time.perf_counter()
        try:
            answer = self._node.answer(kind, fields)
        except Exception as error:
            self._failed(error)
            raise
        seconds = time.perf_counter() - began
        refused, named = REFUSED in answer, kind if kind in KINDS else "unknown"
        came, went = fields_bytes([dict(fields)]), fields_bytes([answer])
        with self._lock:
            self.messages[named, "refused" if refused else "given"] += 1
            self.seconds[named] += seconds  # type: ignore[assignment]
            self.bytes_in[named] += came
            self.bytes_out[named] += went
        if self._events is not None:
            run = fields.get("run")
            self._events.write(
                "refused" if refused else "answered",
                level="warning" if refused else "info",
                message=named,
                run=run.hex() if isinstance(run, bytes) and len(run) == RUN_BYTES else None,
                round=_number(fields.get("round")),
                attempt=_number(fields.get("attempt")),
                seconds=round(seconds, 4),
                bytes_in=came,
                bytes_out=went,
                reason=str(answer[REFUSED]) if refused else None,
            )
        return answer

    def _failed(self, error: Exception) -> None:
        """The folder cannot be read or written (a full disk, say). Of any other error only its kind is safe to say."""
        if self._events is not None:
            reason = str(error) if isinstance(error, RunFolderError) else type(error).__name__
            self._events.write("failed", level="error", reason=reason)


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) else None
