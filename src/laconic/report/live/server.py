"""The server of `laconic watch`: pages for those who know the token, on this machine alone.

It serves no files. Every answer is a page that this process made; a path only chooses which.
"""

from __future__ import annotations

import json
import secrets
import threading
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, urlsplit

from laconic.operations.local_server import LOOPBACK, LocalHandler, LocalServer
from laconic.report.live.runs import Runs

_MOST_CONNECTIONS = 64


class WatchServer(LocalServer):
    """Serves the pages of some runs under an address that contains a random token."""

    def __init__(self, runs: Runs, port: int = 0) -> None:
        self.runs, self.token = runs, secrets.token_urlsafe(24)
        self._ticket: str | None = None
        self._redeeming = threading.Lock()
        super().__init__(port, _Page, most_connections=_MOST_CONNECTIONS)

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
        with self._redeeming:
            valid = self._ticket is not None and secrets.compare_digest(ticket.encode(), self._ticket.encode())
            self._ticket = None if valid else self._ticket
        return valid


class _Page(LocalHandler):
    server: WatchServer

    def get(self) -> None:
        try:
            asked = urlsplit(self.path)
        except ValueError:
            return self.refuse(HTTPStatus.BAD_REQUEST, "This is no address.")
        token, slash, rest = asked.path.removeprefix("/").partition("/")
        if token == "once" and self.server.redeem(rest):
            return self.refuse(HTTPStatus.SEE_OTHER, "This way.", Location=f"/{self.server.token}/")
        if not slash or not secrets.compare_digest(token.encode(), self.server.token.encode()):
            return self.refuse(HTTPStatus.NOT_FOUND, "Not found: use the whole address that laconic watch printed.")
        key, _, what = rest.rpartition("/")
        try:
            found = self.server.runs.page(key) if what in ("", "news") else None
        except Exception as error:  # a browser is told, and the next round is another chance
            text = f"The page of this run could not be made ({type(error).__name__})."
            return self.refuse(HTTPStatus.INTERNAL_SERVER_ERROR, text)
        if found is None:
            return self.refuse(HTTPStatus.NOT_FOUND, "There is no such run.")
        if what == "":
            return self.answer(HTTPStatus.OK, found.page, "text/html; charset=utf-8")
        news: dict[str, Any] = {"version": found.version, "state": found.state, "parts": {}}
        if parse_qs(asked.query).get("seen") != [found.version]:
            news["parts"] = found.parts
        return self.answer(HTTPStatus.OK, json.dumps(news), "application/json; charset=utf-8")
