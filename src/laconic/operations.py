"""What an operator of a server or a node watches: events as JSON lines, figures for Prometheus. Standard library only.

*Events* have a time, a level, a name, and fields that are listed here. No record, label or value of one is a field, and
neither is the text of an exception, which may quote them.

*The server* listens on 127.0.0.1, answers GET, and logs nothing. The header Host of a request must name this machine.
Otherwise a page of another site, open in a browser here, could reach the server through a name that it points to
127.0.0.1 (DNS rebinding).

*Figures* are in Prometheus' text format, version 0.0.4, shown by a port of this machine as `GET /metrics`. There is no
option for another address. What is shown (sizes of cohorts, times of rounds) is what the outsider's ε assumes to be
secret, so it must not be readable from elsewhere.
"""

from __future__ import annotations

import collections
import contextlib
import hmac
import json
import math
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from laconic.errors import ConfigError, one_line
from laconic.metrics import HELD_OUT, TEST, columns

LEVELS = ("info", "warning", "error")
_FIELDS = (
    *("run", "round", "attempt", "rounds", "finished", "scheme", "fingerprint", "version", "status", "stop_reason"),
    *("message", "node", "client", "reason", "discarded", "cohort", "groups", "lost_groups", "vote"),
    *("seconds", "bytes_up", "bytes_down", "bytes_in", "bytes_out", "epsilon", "participant_epsilon", "text"),
)
_LONGEST = 300


def fields() -> frozenset[str]:
    """What an event may say: the metrics of the released model among it."""
    return frozenset((*_FIELDS, *columns(TEST, HELD_OUT, released=True)))


class EventLog:
    """Writes to a file that its owner alone may read, or to stderr. A full disk does not end the process."""

    def __init__(self, path: Path | None = None) -> None:
        self._lock = threading.Lock()
        self._file: int | None = None
        if path is not None:
            try:
                self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            except OSError as error:
                raise ConfigError(f"cannot write the log {path}: {error.strerror}") from None

    def write(self, event: str, *, level: str = "info", **named: str | int | float | bool | None) -> None:
        """One line. Texts are cut to one line of 300 characters."""
        unknown = named.keys() - fields()
        if unknown or level not in LEVELS:
            raise ValueError(f"no fields of an event: {sorted(unknown)}, level {level}")
        row: dict[str, object] = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "level": level}
        row["event"] = event
        for name, value in named.items():
            if value is not None:
                row[name] = one_line(value, _LONGEST) if isinstance(value, str) else _finite(value)
        line = json.dumps(row, ensure_ascii=False) + "\n"
        with self._lock:
            try:
                if self._file is None:
                    print(line, end="", file=sys.stderr, flush=True)
                else:
                    os.write(self._file, line.encode())
            except (OSError, ValueError):  # a full disk, or a reader that is gone
                return

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _finite(value: int | float | bool) -> int | float | bool | str:
    """The number; text for one that is not finite, which JSON does not have."""
    return value if value - value == 0 else str(value)


LOOPBACK = "127.0.0.1"
_HOSTS = (LOOPBACK, "localhost")
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Content-Security-Policy": "frame-ancestors 'none'",
}
_TIMEOUT = 0.2
"""Seconds for the thread of an interrupted connection to end."""


class LocalServer(ThreadingHTTPServer):
    """Answers each connection in a thread. Port 0 takes any free one.

    Every user of this machine can connect and send nothing. So there are `most_connections` at a time, as each costs
    the process a thread and a file. For a further one the oldest is interrupted.
    """

    daemon_threads = True
    allow_reuse_address = sys.platform != "win32"  # there it would let another process have the same port

    def __init__(self, port: int, handler: type[LocalHandler], *, most_connections: int) -> None:
        self._room = threading.BoundedSemaphore(most_connections)
        self._connections: collections.deque[socket.socket] = collections.deque()
        self._guard = threading.Lock()
        try:
            super().__init__((LOOPBACK, port), handler)
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise ConfigError(f"cannot listen on port {port} of {LOOPBACK}: {why}; choose another port") from None

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            self._interrupt_oldest()
            if not self._room.acquire(timeout=_TIMEOUT):  # the oldest is being answered, so the new one goes
                self.shutdown_request(request)
                return
        with self._guard:
            self._connections.append(request)
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be started
            self._room.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def shutdown_request(self, request: Any) -> None:
        with self._guard, contextlib.suppress(ValueError):
            self._connections.remove(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing is printed: a browser that closed its connection is no error."""

    def _interrupt_oldest(self) -> None:
        with self._guard:
            oldest = self._connections.popleft() if self._connections else None
        if oldest is not None:
            with contextlib.suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)  # its thread wakes up and ends


class LocalHandler(BaseHTTPRequestHandler):
    """A subclass says in `get` what it answers."""

    server_version, sys_version = "laconic", ""
    timeout = 30

    def get(self) -> None:
        """Call `answer` or `refuse`."""
        raise NotImplementedError

    def do_GET(self) -> None:
        if names_this_machine(self.headers.get_all("Host") or []):
            self.get()
        else:
            self.refuse(HTTPStatus.MISDIRECTED_REQUEST, "This server answers to 127.0.0.1 and localhost only.")

    def answer(self, status: HTTPStatus, text: str, kind: str, **headers: str) -> None:
        """Send the text, whose content type is `kind`."""
        content = text.encode()
        with contextlib.suppress(ConnectionError, TimeoutError):
            self.send_response(status)
            for name, value in (
                _HEADERS | headers | {"Content-Type": kind, "Content-Length": str(len(content))}
            ).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

    def refuse(self, status: HTTPStatus, text: str, **headers: str) -> None:
        """Answer with a line that says why, and close the connection."""
        self.close_connection = True
        self.answer(status, f"{text}\n", "text/plain; charset=utf-8", **headers)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the standard library calls for everything but GET, and for what is no HTTP."""
        if code == HTTPStatus.NOT_IMPLEMENTED:
            self.refuse(HTTPStatus.METHOD_NOT_ALLOWED, "This server can only be read.", Allow="GET")
        else:
            self.refuse(HTTPStatus(code), message or "")

    def log_message(self, format: str, *args: Any) -> None:
        """Addresses may contain a token, so nothing is logged."""


def names_this_machine(hosts: list[str]) -> bool:
    """Whether the one Host header names this machine. The port does not matter: it may be a forwarded one."""
    if len(hosts) != 1:
        return False
    name, colon, port = hosts[0].partition(":")
    return name.lower() in _HOSTS and (not colon or port.isdecimal())


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True)
class Family:
    """Figures of one name. `kind` is gauge or counter; the name of a counter ends in `_total`."""

    name: str
    kind: str
    help: str
    samples: list[tuple[Mapping[str, str], float]] = field(default_factory=list)

    def add(self, value: float, **labels: str) -> Family:
        self.samples.append((labels, float(value)))
        return self


def gauge(name: str, help: str, value: float | None = None) -> Family:
    """A figure that goes up and down."""
    return _with(Family(name, "gauge", help), value)


def counter(name: str, help: str, value: float | None = None) -> Family:
    """A figure that only grows."""
    return _with(Family(name, "counter", help), value)


def exposition(families: Iterable[Family]) -> str:
    """The families as the text of a scrape. Those without a sample are left out."""
    lines = []
    for family in families:
        if not family.samples:
            continue
        lines += [f"# HELP {family.name} {_escaped(family.help)}", f"# TYPE {family.name} {family.kind}"]
        lines += [f"{family.name}{_labels(labels)} {_number(value)}" for labels, value in family.samples]
    return "".join(f"{line}\n" for line in lines)


def _with(family: Family, value: float | None) -> Family:
    return family if value is None else family.add(value)


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value, quote=True)}"' for name, value in labels.items()) + "}"


def _escaped(text: str, *, quote: bool = False) -> str:
    plain = text.replace("\\", r"\\").replace("\n", r"\n")
    return plain.replace('"', r"\"") if quote else plain


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value.is_integer() and abs(value) < 1 << 53 else repr(value)


MOST_CONNECTIONS = 8
"""At a time. Every user of this machine can open some, and the process needs its threads and files for other things."""


class Endpoint:
    """Answers scrapes with what `text` says at the time, from a thread of its own. Port 0 takes any free one.

    With a `token`, a request must have the header `Authorization: Bearer TOKEN`: other users of the machine do not know
    it.
    """

    def __init__(self, port: int, text: Callable[[], str], token: bytes | None = None) -> None:
        self._server = _MetricsServer(port, text, token)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _MetricsServer(LocalServer):
    def __init__(self, port: int, text: Callable[[], str], token: bytes | None) -> None:
        self.text, self.token = text, token
        super().__init__(port, _Scrape, most_connections=MOST_CONNECTIONS)


class _Scrape(LocalHandler):
    server: _MetricsServer
    timeout = 5

    def get(self) -> None:
        given, token = (self.headers.get("Authorization") or "").encode("utf-8", "replace"), self.server.token
        if token is not None and not hmac.compare_digest(given, b"Bearer " + token):
            return self.refuse(HTTPStatus.UNAUTHORIZED, "missing or wrong bearer token")
        if self.path.partition("?")[0] != "/metrics":
            return self.refuse(HTTPStatus.NOT_FOUND, "there is /metrics and nothing else")
        return self.answer(HTTPStatus.OK, self.server.text(), CONTENT_TYPE)
