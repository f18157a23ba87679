"""The runs of a sweep: their folder, one run in it as `laconic run` would have it, and who is told what became of them.

The folder of a sweep holds its grid, a run folder for each of its runs, and why runs failed.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from laconic.clients.simulated import SimulatedClients
from laconic.errors import ConfigError, Failure, LaconicError, RunFolderError, several
from laconic.experiment.mechanism import planned_cautions, untested
from laconic.observers.observer import Observer, Row, Started, Together
from laconic.runner.run import Run, run_in
from laconic.settings.build import Settled, files_of, resumed_config, settle, tracked
from laconic.settings.config import RunConfig
from laconic.store.finished import finished_run
from laconic.store.folder import RunFolder, json_text
from laconic.sweeps.grid import Grid, Point
from laconic.train.engines.engine import Engine

Through = Callable[[Engine], Engine]


def same(engine: Engine) -> Engine:
    """A run's own engine, as it is."""
    return engine


def run_in_folder(
    config: RunConfig, path: Path, watch: Observer, threads: int | None = None, through: Through = same
) -> None:
    """Start the run, or go on with it; `threads` are those of a new run whose configuration does not say.

    `through` is that of `SimulatedClients`.
    """
    folder = RunFolder(path)
    if folder.exists:
        config = resumed_config(folder, asked_by(config))
    elif threads is not None and config.run.threads is None:
        config = config.with_values({"run.threads": threads})
    following = tracked(config)  # which may need something that is not installed
    with _threads_put_back():
        settled: Settled = settle(config, stored=path)
        for text in [*planned_cautions(settled.experiment), *untested(settled.experiment)]:
            watch.note(text)
        clients = SimulatedClients(settled.experiment, through=through)
        simulation = Run(settled.experiment, clients=clients, observer=Together(watch, following))
        with run_in(folder, simulation, files_of(settled)) as run:
            run.run()


@contextmanager
def _threads_put_back() -> Iterator[None]:
    """A run may ask for a number of threads; the next one in this process must not inherit it."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


def asked_by(config: RunConfig) -> dict[str, Any]:
    """All values of a configuration, by their place."""
    return {f"{section}.{key}": value for section, keys in config.to_dict().items() for key, value in keys.items()}


def failure_of(error: BaseException) -> Failure:
    """Why a run failed, as plain values. An error that no user can mend has its traceback with it."""
    if isinstance(error, LaconicError):
        return {"error": str(error), "exit_code": error.exit_code}
    reason = (str(error).splitlines() or [""])[0]
    return {
        "error": f"{type(error).__name__}: {reason}",
        "exit_code": 1,
        "trace": "".join(traceback.format_exception(error)),
    }


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

    def run(self, watch: Observer) -> Failure | None:
        """Run it here; None, or why it failed."""
        try:
            self.go(watch)
        except Exception as error:
            return failure_of(error)
        return None

    def go(self, watch: Observer, through: Through = same) -> None:
        run_in_folder(self.config, self.path, watch, self.threads, through)


class Runnable(Protocol):
    """A run that can be started or resumed in its folder: a `Job`, or a row of a reproduced table."""

    @property
    def name(self) -> str: ...

    @property
    def config(self) -> RunConfig: ...

    def go(self, watch: Observer, through: Through) -> None:
        """Start or resume it in this process; `through` is that of `SimulatedClients`."""


class Watch:
    """Follows all runs of a sweep. Every method does nothing unless a subclass overrides it."""

    def started(self, name: str, rounds: int, finished: int) -> None:
        """A run starts, or goes on after so many finished rounds."""

    def row(self, name: str, row: Row) -> None:
        """A round of a run is finished."""

    def note(self, name: str, text: str) -> None:
        """Something that a reader of a run's result must know."""

    def ended(self, name: str, failure: Failure | None) -> None:
        """A run is finished, or why it failed."""


Way = Callable[[Sequence[Job], Watch], None]
"""Runs jobs, and tells of them. KeyboardInterrupt ends it; the runs can then be gone on with."""


class Reporting(Observer):
    """The observer of one run, which passes on what happens to the `Watch` of the sweep."""

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


GRID, FAILURES, RUNS = "grid.toml", "failures.json", "runs"
_OURS = (GRID, FAILURES, RUNS, "table.csv", "table.md", "table.png")


@dataclass(frozen=True)
class SweepFolder:
    """Where the files of a sweep are. A run is found by its name: `runs/local_lr=0.1+seed=0`."""

    path: Path

    @property
    def exists(self) -> bool:
        return (self.path / GRID).exists()

    def grid(self) -> Grid:
        """The grid of the sweep in this folder."""
        if not self.exists:
            raise RunFolderError(f"{self.path} holds no sweep (there is no {GRID}): give a grid, or another folder")
        try:
            return Grid.from_file(self.path / GRID)
        except ConfigError as error:
            raise RunFolderError(f"{self.path / GRID} is damaged ({error}): give the grid again") from None

    def run(self, point: Point) -> Path:
        return self.path / RUNS / point.name

    def keep(self, grid: Grid) -> None:
        """Save the grid; refuse a folder that holds something else."""
        folder = RunFolder(self.path)
        if not self.exists and self.path.is_dir() and any(p.name not in _OURS for p in self.path.iterdir()):
            raise RunFolderError(f"{self.path} is not the folder of a sweep and not empty: choose another ⟨out⟩")
        folder.make()
        folder.write(GRID, grid.to_toml())

    def finished(self, point: Point) -> bool:
        """Whether the run is there, with as many rounds as are asked for now; refused if it is another run."""
        folder = RunFolder(self.run(point))
        if not folder.exists:
            return False
        wanted = resumed_config(folder, asked_by(point.config))
        try:
            finished_run(folder.path)
        except RunFolderError:
            return False  # half of a run: what is wrong with it, if anything, is said when it goes on
        return resumed_config(folder, {}).run.rounds >= wanted.run.rounds

    def to_do(self, points: Iterable[Point]) -> list[Point]:
        """The runs that are not finished; refused, with all reasons, if folders hold others than these."""
        found, wrong = [], []
        for point in points:
            try:
                if not self.finished(point):
                    found.append(point)
            except RunFolderError as error:
                wrong.append(str(error))
        if wrong:
            shown = wrong[:5] + ([f"and {len(wrong) - 5} more runs"] if len(wrong) > 5 else [])
            raise RunFolderError(several(shown))
        return found

    def failures(self) -> dict[str, Failure]:
        """Why runs failed the last time, by name."""
        try:
            found = json.loads((self.path / FAILURES).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def note(self, name: str, failure: Failure | None) -> None:
        """Save why a run failed; None: it did not."""
        known = self.failures()
        if known.get(name) == failure:
            return
        known.pop(name, None)
        if failure is not None:
            known[name] = failure
        RunFolder(self.path).write(FAILURES, json_text(known, indent=2) + "\n")
