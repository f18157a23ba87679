"""Watch a trial until its run ends: show its rounds, and go on after the SuperLink or the server's process died."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from laconic.errors import (
    ConfigError,
    DataError,
    LaconicError,
    PrivacyError,
    RunFolderError,
    TrainingError,
    WireError,
)
from laconic.federation.server.outcome import what_became
from laconic.federation.trial.trial import Trial, last_words
from laconic.settings.config import RunConfig
from laconic.store.folder import RunFolder

_POLL = 0.3
_START_SECONDS = 120.0
_MOST_RESTARTS = 3
_ERRORS: tuple[type[LaconicError], ...] = (
    ConfigError,
    PrivacyError,
    DataError,
    RunFolderError,
    TrainingError,
    WireError,
)


class Supervisor:
    """`on_row` is called with every finished round, `on_notice` with what a node did not do and with restarts."""

    def __init__(
        self,
        trial: Trial,
        folder: RunFolder,
        *,
        on_row: Callable[[dict[str, Any]], None],
        on_notice: Callable[[str], None],
    ) -> None:
        self._trial, self._folder = trial, folder
        self._on_row, self._on_notice = on_row, on_notice
        self._seen_rounds = max((row["round"] for row in folder.rows("rounds.jsonl")), default=0)
        self._seen_notices = len(folder.rows("notices.jsonl"))
        self._restarts = 0

    @property
    def finished_rounds(self) -> int:
        return self._seen_rounds

    def run(self, config: RunConfig) -> dict[str, Any]:
        """Submit the run, watch it, and return its summary."""
        self._forget_last_end()
        self._submit(config)
        while True:
            time.sleep(_POLL)
            self._trial.keeper.look(self._on_notice)
            self._show_news()
            summary = self._read("summary.json")
            if summary is not None:  # first: a run that is incomplete has both
                self._show_news()
                return summary
            failure = self._read("failure.json")
            if failure is not None:
                raise _error(failure)
            self._mend(config)

    def _submit(self, config: RunConfig) -> None:
        (self._folder.path / "process.json").unlink(missing_ok=True)
        self._trial.submit(config, self._folder.path, resume=self._folder.exists)
        self._submitted = time.monotonic()

    def _mend(self, config: RunConfig) -> None:
        """If the SuperLink or the server's process is gone, start it again: the run goes on from its checkpoint."""
        link = self._trial.link
        link_died = link is not None and link.poll() is not None
        process = self._read("process.json")
        if process is None and not link_died:
            if time.monotonic() - self._submitted > _START_SECONDS:
                raise RunFolderError(f"the server did not start; last words: {last_words(self._trial.link_log)}")
            return
        if not link_died and (process is None or lives(process["pid"])):
            return
        if self._read("summary.json") is not None or self._read("failure.json") is not None:
            return
        what = "the SuperLink" if link_died else "the server's process"
        self._restarts += 1
        if self._restarts > _MOST_RESTARTS:
            raise RunFolderError(f"{what} died again and again; last words: {last_words(self._trial.link_log)}")
        self._on_notice(f"{what} died; the run goes on from its checkpoint")
        if link_died:
            self._trial.start_link()
        while process is not None and lives(process["pid"]):  # it must let go of the folder
            time.sleep(_POLL)
        self._submit(config)

    def _show_news(self) -> None:
        for notice in self._folder.rows("notices.jsonl")[self._seen_notices :]:
            self._seen_notices += 1
            when = f"round {notice['round']}" if notice["round"] else "joining"
            self._on_notice(f"{when}: node {notice['client']} {notice['reason']}")
        for row in self._folder.rows("rounds.jsonl"):
            if row["round"] > self._seen_rounds:
                self._seen_rounds = row["round"]
                if "discarded" in row:
                    self._on_notice(f"round {row['round']} is discarded: {row['discarded']} (it {what_became(row)})")
                self._on_row(row)

    def _forget_last_end(self) -> None:
        for name in ("summary.json", "failure.json"):
            (self._folder.path / name).unlink(missing_ok=True)

    def _read(self, name: str) -> dict[str, Any] | None:
        path: Path = self._folder.path / name
        if not path.exists():
            return None
        content: dict[str, Any] = json.loads(path.read_text())
        return content


def lives(pid: int) -> bool:
    """Whether the process is there and more than a zombie."""
    shown = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    state = shown.stdout.strip()
    return bool(state) and not state.startswith("Z")


def _error(failure: dict[str, Any]) -> LaconicError:
    kind = next((kind for kind in _ERRORS if kind.exit_code == failure["exit_code"]), RunFolderError)
    return kind(failure["error"])
