"""Messages between a courier and the node's process, over a Unix socket.

*The courier's side* opens the socket, hands the fields over and takes the answer. The node's process may be restarted
at any time, so a courier tries again for a while. That is safe: the node writes down what it will send before it sends
it, and masks no second vector in an attempt.

*A message as bytes* is a kind and its named fields:

4 magic · 1 version · 4 length of the head · 8 length of the body · head (JSON) · body

The head has the kind and, for each field, its name, its type and its length in the body. Nothing here needs more than
the standard library: a courier starts quickly, and has nothing in it that could be attacked.

*The node's side* is `Daemon`. It takes one message at a time; a bounded number wait.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from logging import getLogger
from pathlib import Path
from typing import Any

from laconic.errors import WireError, one_line
from laconic.federation.requests import REFUSED, Fields
from laconic.guard.withheld import WITHHELD

_LONGEST = 100


@contextmanager
def short_path(path: str | Path) -> Iterator[str]:
    """A socket's path in the 100 bytes or so that `bind` and `connect` take."""
    path = Path(path)
    if len(os.fsencode(path)) <= _LONGEST or not Path("/proc/self/fd").is_dir():
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


_HEAD = struct.Struct("<4sBIQ")
_MAGIC, _VERSION = b"LNOD", 1
_MOST_HEAD = 1 << 16
_TYPES = ("bytes", "int", "str")
MOST_BYTES = 1 << 30
"""Of a body, where nothing smaller is asked for."""


def send(stream: socket.socket, kind: str, fields: Fields) -> None:
    """Write one message."""
    parts, described = [], []
    for name, value in fields.items():
        data = value if isinstance(value, bytes) else str(value).encode()
        described.append([name, type(value).__name__, len(data)])
        parts.append(data)
    head = json.dumps({"kind": kind, "fields": described}).encode()
    stream.sendall(_HEAD.pack(_MAGIC, _VERSION, len(head), sum(map(len, parts))) + head)
    for part in parts:
        stream.sendall(part)


def receive(stream: socket.socket, *, most: int = MOST_BYTES, within: float | None = None) -> tuple[str, Fields] | None:
    """Read one message; None if the other side has closed the connection before it began one.

    The whole message must arrive `within` this many seconds.
    """
    end = None if within is None else time.monotonic() + within
    start = _some(stream, 1, end)
    if not start:
        return None
    magic, version, head_size, body_size = _HEAD.unpack(start + _exactly(stream, _HEAD.size - 1, end))
    if magic != _MAGIC or version != _VERSION:
        raise WireError("this socket does not speak the node's protocol, or another version of it")
    if head_size > _MOST_HEAD or body_size > most:
        raise WireError(f"a message of {body_size:,} bytes, more than {most:,}")
    kind, described = _described(_exactly(stream, head_size, end))
    if sum(size for _, _, size in described) != body_size:
        raise WireError("a message whose fields are not as long as it is")
    return kind, {name: _value(type_, _exactly(stream, size, end)) for name, type_, size in described}


def _described(head: bytes) -> tuple[str, list[tuple[str, str, int]]]:
    try:
        values = json.loads(head)
        kind, fields = values["kind"], [(name, type_, size) for name, type_, size in values["fields"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise WireError("a message whose head cannot be read") from None
    names = [name for name, _, _ in fields]
    if not isinstance(kind, str) or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise WireError("a message whose head cannot be read")
    for _, type_, size in fields:
        if (
            not isinstance(type_, str)
            or type_ not in _TYPES
            or isinstance(size, bool)
            or not isinstance(size, int)
            or size < 0
        ):
            raise WireError("a message whose head cannot be read")
    return kind, fields


def _value(type_: str, data: bytes) -> Any:
    if type_ == "bytes":
        return data
    try:
        text = data.decode()
        return text if type_ == "str" else _number(text)
    except ValueError:
        raise WireError("a message with a field that is not what it says") from None


def _number(text: str) -> int:
    if len(text) > 20:  # no field of ours is longer, and Python's own limit is an error of another kind
        raise ValueError
    return int(text)


def _some(stream: socket.socket, most: int, end: float | None) -> bytes:
    if end is not None:
        left = end - time.monotonic()
        if left <= 0:
            raise TimeoutError("the message did not come in time")
        stream.settimeout(left)
    return stream.recv(most)


def _exactly(stream: socket.socket, size: int, end: float | None) -> bytes:
    data = bytearray()
    while len(data) < size:
        chunk = _some(stream, min(size - len(data), 1 << 20), end)
        if not chunk:
            raise ConnectionError("the connection ended in the middle of a message")
        data += chunk
    return bytes(data)


TIMEOUT = 30.0
"""Seconds in which a node's process that is gone has to come back."""
_POLL = 0.2
ANSWER = "answer"


def hand_over(
    path: str | Path, kind: str, fields: Fields, *, timeout: float = TIMEOUT, within: float | None = None
) -> Fields:
    """The node's answer. If its process is not there, that is an answer too: a refusal that says so.

    A process that is there has as long as it takes, or so many seconds for each step (`within`).
    """
    end = time.monotonic() + timeout
    while True:
        try:
            return _asked(path, kind, fields, within)
        except PermissionError:
            return {REFUSED: "this node's courier may not open the node's socket; its owner must allow it"}
        except OSError:
            if time.monotonic() > end:
                return {REFUSED: "this node's own process does not answer; its owner must start it"}
            time.sleep(_POLL)
        except WireError:
            return {REFUSED: "this node's courier and its process do not understand each other: install the same"}


def _asked(path: str | Path, kind: str, fields: Fields, within: float | None) -> Fields:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stream:
        stream.settimeout(within)
        with short_path(path) as short:
            stream.connect(short)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            send(stream, kind, fields)  # a busy node answers and hangs up before it reads: its answer waits
        answer = receive(stream)
    if answer is None:
        raise ConnectionError("the node's process ended before it answered")
    return answer[1]


_LOG = getLogger("laconic.node")
_ENDS_WITHIN = 0.25
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
        self._listening.settimeout(_ENDS_WITHIN)
        while not self._ended.is_set():
            try:
                stream, _ = self._listening.accept()
            except TimeoutError:
                continue
            except OSError:
                if self._ended.is_set():
                    break
                _LOG.error("a connection could not be taken")
                self._ended.wait(_ENDS_WITHIN)  # as if there were too many open files, which passes
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
