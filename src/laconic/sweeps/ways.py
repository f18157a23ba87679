"""What a sweep hands out and hears back, whoever trains: jobs, and what became of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from laconic.observers.observer import Observer, Row, Started
from laconic.settings.config import RunConfig
from laconic.store.folder import json_text
from laconic.sweeps.single import Through, failure_of, run_in_folder, same


@dataclass(frozen=True)
class Job:
    """A run that is to be started, or gone on with. `threads` are those of a new run that does not say itself."""

    name: str
    config: RunConfig
    path: Path
    threads: int | None = None

    def to_json(self) -> str:
        return json_text(
            {"name": self.name, "config": self.config.to_dict(), "path": str(self.path), "threads": self.threads}
        )

    @classmethod
    def from_json(cls, text: str) -> Job:
        data = json.loads(text)
        return cls(data["name"], RunConfig.from_dict(data["config"]), Path(data["path"]), data["threads"])

    def run(self, watch: Observer) -> dict[str, Any] | None:
        """Run it here; None, or why it failed."""
        try:
            self.go(watch)
        except Exception as error:
            return failure_of(error)
        return None

    def go(self, watch: Observer, through: Through = same) -> None:
        run_in_folder(self.config, self.path, watch, self.threads, through)


class Runnable(Protocol):
    """A run that knows its folder, and what else is to be done with it."""

    @property
    def name(self) -> str: ...

    @property
    def config(self) -> RunConfig: ...

    def go(self, watch: Observer, through: Through) -> None:
        """Start it, or go on with it, here; `through` is that of `SimulatedClients`."""


class Watch:
    """Is told of all runs of a sweep. Every method does nothing unless a subclass says otherwise."""

    def started(self, name: str, rounds: int, finished: int) -> None:
        """A run starts, or goes on after so many finished rounds."""

    def row(self, name: str, row: Row) -> None:
        """A round of a run is finished."""

    def note(self, name: str, text: str) -> None:
        """Something that a reader of a run's result must know."""

    def ended(self, name: str, failure: dict[str, Any] | None) -> None:
        """A run is finished, or why it failed."""


Way = Callable[[Sequence[Job], Watch], None]
"""Runs jobs, and tells of them. KeyboardInterrupt ends it; the runs can then be gone on with."""


class Reporting(Observer):
    """The observer of one run that tells the watch of a sweep."""

    def __init__(self, name: str, watch: Watch) -> None:
        self._name, self._watch = name, watch

    def start(self, run: Started) -> None:
        self._watch.started(self._name, run.rounds, run.finished)

    def row(self, row: Row) -> None:
        self._watch.row(self._name, row)

    def note(self, text: str) -> None:
        self._watch.note(self._name, text)


def in_turn(jobs: Sequence[Job], watch: Watch) -> None:
    """One run after another, in this process."""
    for job in jobs:
        watch.ended(job.name, job.run(Reporting(job.name, watch)))
