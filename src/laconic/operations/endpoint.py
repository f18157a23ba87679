"""Figures on a port of this machine: `GET /metrics` on 127.0.0.1, and nothing else.

There is no option for another address. What is shown (sizes of cohorts, times of rounds) is what the outsider's ε
assumes to be secret, so it must not be readable from elsewhere. A page in a browser on this machine cannot read it
either: a request must name this machine as its host.
"""

from __future__ import annotations

import hmac
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from laconic.errors import ConfigError
from laconic.operations.exposition import CONTENT_TYPE

ADDRESS = "127.0.0.1"
_NAMES = (ADDRESS, "localhost")
MOST_CONNECTIONS = 8
"""At a time. Every user of this machine can open some, and the process needs its threads and files for other things."""


class Endpoint:
    """Answers scrapes with what `text` says at the time, from a thread of its own. Port 0 takes any free one.

    With a `token`, whoever asks must bring it, as `Authorization: Bearer TOKEN`: other users of the machine cannot.
    """

    def __init__(self, port: int, text: Callable[[], str], token: bytes | None = None) -> None:
        try:
            self._server = _Server((ADDRESS, port), _handler(text, token))
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or error
            raise ConfigError(f"cannot listen on port {port} of {ADDRESS} for metrics: {why}") from None
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    """Takes some connections at a time, and closes any further one."""

    daemon_threads = True

    def __init__(self, place: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._room = threading.BoundedSemaphore(MOST_CONNECTIONS)
        super().__init__(place, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
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


def _handler(text: Callable[[], str], token: bytes | None) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 5  # of a client that says nothing
        server_version, sys_version = "laconic", ""

        def do_GET(self) -> None:
            host = (self.headers.get("Host") or "").rpartition(":")[0] or self.headers.get("Host")
            if host not in _NAMES:
                self.send_error(403, "this port is for this machine")
                return
            brought = (self.headers.get("Authorization") or "").encode("utf-8", "replace")
            if token is not None and not hmac.compare_digest(brought, b"Bearer " + token):
                self.send_error(401, "bring the token of this port")
                return
            if self.path.partition("?")[0] != "/metrics":
                self.send_error(404, "there is /metrics and nothing else")
                return
            body = text().encode()
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            """Scrapes are no events."""

    return Handler
