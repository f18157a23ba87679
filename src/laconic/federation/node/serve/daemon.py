"""A node behind a Unix socket. It takes one message at a time; a bounded number wait."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from logging import getLogger

from laconic.errors import WireError, one_line
from laconic.federation.node.serve.hand_over import ANSWER, receive, send
from laconic.federation.requests import REFUSED, Fields
from laconic.guard.withheld import WITHHELD

_LOG = getLogger("laconic.node")
_POLL = 0.25
_READING, _WRITING, _ENDING = 30.0, 30.0, 30.0
"""Seconds that a courier has to hand a message over and to take its answer; and that the last answer has when the
process is told to end."""
HELLO = "hello"


class Daemon:
    """`answer` is the node's; `most_bytes` says how long a message may be, `waiting` how many may be open at a time."""

    def __init__(
        self,
        listening: socket.socket,
        answer: Callable[[str, Fields], Fields],
        *,
        most_bytes: Callable[[], int],
        waiting: int,
        reading: float = _READING,
    ) -> None:
        self._listening, self._answer, self._most_bytes = listening, answer, most_bytes
        self._room, self._turn = threading.BoundedSemaphore(waiting), threading.Lock()
        self._waiting, self._reading, self._ended = waiting, reading, threading.Event()

    def serve(self) -> None:
        """Answer until `stop`. A message that is being answered then is answered to its end."""
        self._listening.settimeout(_POLL)
        while not self._ended.is_set():
            try:
                stream, _ = self._listening.accept()
            except TimeoutError:
                continue
            except OSError:
                if self._ended.is_set():
                    break
                _LOG.error("a connection could not be taken")
                self._ended.wait(_POLL)  # as if there were too many open files, which passes
                continue
            threading.Thread(target=self._visited, args=(stream,), daemon=True).start()
        self._listening.close()
        self._turn.acquire(timeout=_ENDING)

    def stop(self) -> None:
        self._ended.set()

    def _visited(self, stream: socket.socket) -> None:
        with stream, contextlib.suppress(OSError):
            stream.settimeout(_WRITING)
            if not self._room.acquire(blocking=False):
                send(stream, ANSWER, {REFUSED: f"this node is busy: {self._waiting} messages wait already"})
                return
            try:
                self._one_message(stream)
            finally:
                self._room.release()

    def _one_message(self, stream: socket.socket) -> None:
        try:
            message = receive(stream, most=self._most_bytes(), within=self._reading)
            stream.settimeout(_WRITING)
        except WireError as error:
            send(stream, ANSWER, {REFUSED: one_line(error, 300)})
            return
        if message is None:
            return
        kind, fields = message
        if kind == HELLO:
            send(stream, ANSWER, {HELLO: 1})
            return
        with self._turn:
            if self._ended.is_set():
                return  # the next process will be asked again
            answer = self._safe(kind, fields)
        send(stream, ANSWER, answer)

    def _safe(self, kind: str, fields: Fields) -> Fields:
        try:
            return self._answer(kind, fields)
        except Exception as error:  # it must not end the process; its text may quote records, so it goes nowhere
            _LOG.error("a %s message could not be answered: %s", one_line(kind, 30), type(error).__name__)
            return {REFUSED: WITHHELD}
