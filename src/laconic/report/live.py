"""`laconic watch`: pages of runs that change, from a server on this machine alone, for those who know the token.

The run folders below what was asked for are only read. The server serves no files: every answer is a page that this
process made, and a path only chooses which.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from laconic.operations import LOOPBACK, LocalHandler, LocalServer
from laconic.report.drawing import Markup, tag
from laconic.report.page.document import run_page, run_parts
from laconic.report.page.overlay import overlay_page, overlay_parts, short_names
from laconic.report.page.reading import FILES, RunView, common_metric, read_run

_DEEPEST, _LOOKED, _MOST = 4, 2000, 200
"""How deep runs are looked for, into how many folders, and how many runs are shown."""
_SIGNS = ("config.toml", "rounds.jsonl", "charges.jsonl", "identity.json", "federation.json")
"""Any of these makes a folder that of a run."""


def run_folders(asked: Path) -> list[Path]:
    """The folder itself, if it is that of a run or not there yet; else the runs below it, as a sweep leaves them.

    Looks into the nearest folders first and does not look at more than a few thousand.
    """
    if _is_run(asked) or not asked.is_dir():
        return [asked]
    found: list[Path] = []
    level, looked = [asked], 0
    for _ in range(_DEEPEST):
        below = [path for folder in level[: _LOOKED - looked] for path in _inside(folder)]
        looked += len(level)
        found += [path for path in below if _is_run(path)]
        level = [path for path in below if not _is_run(path)]
        if looked >= _LOOKED:
            break
    return sorted(found) or [asked]


def _is_run(folder: Path) -> bool:
    return any((folder / name).is_file() for name in _SIGNS)


def _inside(folder: Path) -> list[Path]:
    """Its folders; links to others are not followed."""
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink())
    except OSError:
        return []


@dataclass(frozen=True)
class Watched:
    """A page: its HTML, its sections for a page that is open already, and one line on how it stands."""

    page: str
    parts: dict[str, str]
    version: str
    state: str


class Runs:
    """What is watched. A page is made again only when one of its files has changed."""

    look_every, look_share = 1.0, 0.05
    """Seconds after which new run folders are looked for; longer in a large tree: it takes this share of the time."""

    def __init__(
        self, asked: Sequence[Path], metric: str | None = None, read: Callable[[Path], RunView] = read_run
    ) -> None:
        self.asked, self.metric, self._read = list(asked), metric, read
        self._views: dict[Path, tuple[object, RunView]] = {}
        self._made: dict[str, tuple[object, Watched]] = {}
        self._found: list[Path] = []
        self._next_look = -math.inf
        self._lock = threading.Lock()

    def folders(self) -> dict[str, Path]:
        """Every run by a short name for addresses; runs that begin later are found, too."""
        began = time.monotonic()
        if began >= self._next_look:
            self._found = [folder for path in self.asked for folder in run_folders(path)][:_MOST]
            now = time.monotonic()
            self._next_look = now + max(self.look_every, (now - began) / self.look_share)
        return {hashlib.blake2b(os.fsencode(path.absolute()), digest_size=6).hexdigest(): path for path in self._found}

    def page(self, key: str) -> Watched | None:
        """The page of a run by its short name; that of all runs for an empty one; None if there is no such run."""
        with self._lock:
            folders = self.folders()
            if key == "" and len(folders) == 1:
                key = next(iter(folders))
            if key == "":
                return self._several(folders)
            return self._one(key, folders[key], many=len(folders) > 1) if key in folders else None

    def _one(self, key: str, folder: Path, *, many: bool) -> Watched:
        stamp, view = self._view(folder)
        known = self._made.get(key)
        if known is not None and known[0] == (stamp, many):
            page = known[1]
            return Watched(page.page, page.parts, page.version, _state(view))
        above = _way_back() if many else None
        parts = {name: str(part) for name, part in run_parts(view).items()}
        made = Watched(run_page(view, live="news", above=above), parts, _version(parts), _state(view))
        self._made[key] = ((stamp, many), made)
        return made

    def _several(self, folders: dict[str, Path]) -> Watched:
        stamps, views, links = [], {}, {}
        names = short_names([str(path) for path in folders.values()])
        for (key, folder), name in zip(folders.items(), names, strict=True):
            stamp, views[name] = self._view(folder)
            stamps.append((key, stamp))
            links[name] = f"{key}/"
        state = f"{len(views)} runs, {sum(view.finished for view in views.values())} finished"
        known = self._made.get("")
        if known is None or known[0] != stamps:
            metric = self.metric or common_metric([view.rows for view in views.values()])
            parts = {name: str(part) for name, part in overlay_parts(views, metric, links).items()}
            page = overlay_page(views, metric, live="news", links=links)
            known = self._made[""] = (stamps, Watched(page, parts, _version(parts), state))
        return known[1]

    def _view(self, folder: Path) -> tuple[object, RunView]:
        """What the files say, read again only if one of them changed."""
        stamp = tuple(_stamp(folder / name) for name in FILES)
        known = self._views.get(folder)
        if known is None or known[0] != stamp:
            known = self._views[folder] = (stamp, self._read(folder))
        return known


def _way_back() -> Markup:
    return tag("p", tag("a", "All runs", href="../"), class_="above")


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def _version(parts: dict[str, str]) -> str:
    return hashlib.blake2b("\0".join(parts.values()).encode(), digest_size=8).hexdigest()


def _state(view: RunView) -> str:
    """How the run stands at this moment."""
    if not view.rows:
        return "waiting for the first round"
    done = view.rows[-1]["round"]
    if view.finished:
        return f"finished after round {done:,}"
    if view.failure:
        return f"gave up after round {done:,}"
    since = 0.0 if view.written is None else max(0.0, time.time() - view.written)
    text = f"round {done:,}" + (f" of {view.planned:,}" if view.planned else "") + f", {_ago(since)} ago"
    return text if since < 120 else f"{text}: is the run still there? If not, --resume goes on with it"


def _ago(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


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
