"""Figures on a port of this machine: `GET /metrics` on 127.0.0.1, and nothing else.

There is no option for another address. What is shown (sizes of cohorts, times of rounds) is what the outsider's ε
assumes to be secret, so it must not be readable from elsewhere. A page in a browser on this machine cannot read it
either: a request must name this machine as its host.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from laconic.errors import ConfigError
from laconic.operations.exposition import CONTENT_TYPE

ADDRESS = "127.0.0.1"
_NAMES = (ADDRESS, "localhost")


class Endpoint:
    """Answers scrapes with what `text` says at the time, from a thread of its own. Port 0 takes any free one."""

    def __init__(self, port: int, text: Callable[[], str]) -> None:
        try:
            self._server = ThreadingHTTPServer((ADDRESS, port), _handler(text))
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or error
            raise ConfigError(f"cannot listen on port {port} of {ADDRESS} for metrics: {why}") from None
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(text: Callable[[], str]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 5  # of a client that says nothing
        server_version, sys_version = "laconic", ""

        def do_GET(self) -> None:
            host = (self.headers.get("Host") or "").rpartition(":")[0] or self.headers.get("Host")
            if host not in _NAMES:
                self.send_error(403, "this port is for this machine")
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
