"""The server of `laconic watch`: it listens on loopback alone, answers GET alone, and only who knows the token.

It serves no files. Every answer is a page that this process made; a path only chooses which. The header Host must name
this machine, so that a page of another site cannot reach it through a name that it points here (DNS rebinding).
"""

from __future__ import annotations

import collections
import contextlib
import json
import secrets
import socket
import sys
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from laconic.errors import ConfigError
from laconic.report.live.runs import Runs

LOOPBACK = "127.0.0.1"
_HOSTS = ("127.0.0.1", "localhost")
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Content-Security-Policy": "frame-ancestors 'none'",
}
_MOST_CONNECTIONS = 64
"""So many at once. Anybody on this machine can connect and say nothing: then the oldest connection goes."""


class WatchServer(ThreadingHTTPServer):
    """Serves the pages of some runs under an address that contains a random token."""

    daemon_threads = True
    allow_reuse_address = sys.platform != "win32"  # there it would let another process have the same port

    def __init__(self, runs: Runs, port: int = 0) -> None:
        self.runs, self.token = runs, secrets.token_urlsafe(24)
        self._ticket: str | None = None
        self._guard = threading.Lock()
        self._connections: collections.deque[socket.socket] = collections.deque()
        try:
            super().__init__((LOOPBACK, port), _Handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise ConfigError(f"--port {port}: {reason}; choose another, or leave it out for a free one") from None

    @property
    def address(self) -> str:
        return f"http://{LOOPBACK}:{self.server_address[1]}/{self.token}/"

    def ticket(self) -> str:
        """An address that leads to the page a single time.

        Command lines are visible to every user of a machine, and that of a browser has the address which it opens.
        """
        self._ticket = secrets.token_urlsafe(24)
        return f"http://{LOOPBACK}:{self.server_address[1]}/once/{self._ticket}"

    def redeem(self, ticket: str) -> bool:
        """Whether this is the ticket; then it is used up."""
        with self._guard:
            valid = self._ticket is not None and secrets.compare_digest(ticket.encode(), self._ticket.encode())
            self._ticket = None if valid else self._ticket
        return valid

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._guard:
            self._connections.append(request)
            oldest = self._connections.popleft() if len(self._connections) > _MOST_CONNECTIONS else None
        if oldest is not None:
            with contextlib.suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)  # its thread wakes up and ends
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._guard, contextlib.suppress(ValueError):
            self._connections.remove(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that went away is no error."""


class _Handler(BaseHTTPRequestHandler):
    server: WatchServer
    server_version, sys_version = "laconic", ""
    timeout = 30

    def do_GET(self) -> None:
        if not _is_here(self.headers.get_all("Host") or []):
            return self._refuse(HTTPStatus.MISDIRECTED_REQUEST, "This server answers to 127.0.0.1 and localhost only.")
        try:
            asked = urlsplit(self.path)
        except ValueError:
            return self._refuse(HTTPStatus.BAD_REQUEST, "This is no address.")
        token, slash, rest = asked.path.removeprefix("/").partition("/")
        if token == "once" and self.server.redeem(rest):
            return self._refuse(HTTPStatus.SEE_OTHER, "This way.", Location=f"/{self.server.token}/")
        if not slash or not secrets.compare_digest(token.encode(), self.server.token.encode()):
            return self._refuse(HTTPStatus.NOT_FOUND, "Not found: use the whole address that laconic watch printed.")
        key, _, what = rest.rpartition("/")
        try:
            found = self.server.runs.page(key) if what in ("", "news") else None
        except Exception as error:  # a browser is told, and the next round is another chance
            text = f"The page of this run could not be made ({type(error).__name__})."
            return self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, text)
        if found is None:
            return self._refuse(HTTPStatus.NOT_FOUND, "There is no such run.")
        if what == "":
            return self._answer(HTTPStatus.OK, found.page, "text/html; charset=utf-8")
        news: dict[str, Any] = {"version": found.version, "state": found.state, "parts": {}}
        if parse_qs(asked.query).get("seen") != [found.version]:
            news["parts"] = found.parts
        return self._answer(HTTPStatus.OK, json.dumps(news), "application/json; charset=utf-8")

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Every other method comes here."""
        if code == HTTPStatus.NOT_IMPLEMENTED:
            return self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, "This server can only be read.", Allow="GET")
        return self._refuse(HTTPStatus(code), message or "")

    def _refuse(self, status: HTTPStatus, text: str, **headers: str) -> None:
        self.close_connection = True
        self._answer(status, f"{text}\n", "text/plain; charset=utf-8", **headers)

    def _answer(self, status: HTTPStatus, text: str, kind: str, **headers: str) -> None:
        content = text.encode()
        with contextlib.suppress(ConnectionError, TimeoutError):
            self.send_response(status)
            for name, value in (
                _HEADERS | headers | {"Content-Type": kind, "Content-Length": str(len(content))}
            ).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Addresses contain the token, so nothing is logged."""


def _is_here(hosts: list[str]) -> bool:
    """Whether the one Host header names this machine. The port does not matter: it may be a forwarded one."""
    if len(hosts) != 1:
        return False
    name, colon, port = hosts[0].partition(":")
    return name.lower() in _HOSTS and (not colon or port.isdecimal())
