"""A small HTTP server for this machine alone: it listens on 127.0.0.1, answers GET, and logs nothing.

The header Host of a request must name this machine. Otherwise a page of another site, open in a browser here, could
reach the server through a name that it points to 127.0.0.1 (DNS rebinding).
"""

from __future__ import annotations

import collections
import contextlib
import socket
import sys
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from laconic.errors import ConfigError

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
        """A browser that went away is no error."""

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
