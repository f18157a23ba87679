"""The folder of a sweep: its grid, a run folder for each of its runs, and why runs failed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from laconic.errors import ConfigError, RunFolderError, several
from laconic.settings.launch import resumed_config
from laconic.store.finished import finished_run
from laconic.store.folder import RunFolder, json_text
from laconic.sweeps.grid import Grid, Point
from laconic.sweeps.single import asked_by

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
        """Write the grid down; refuse a folder that holds something else."""
        folder = RunFolder(self.path)
        if not self.exists and self.path.is_dir() and any(p.name not in _OURS for p in self.path.iterdir()):
            raise RunFolderError(f"{self.path} is not the folder of a sweep and not empty: choose another --out")
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

    def failures(self) -> dict[str, dict[str, Any]]:
        """Why runs failed the last time, by name."""
        try:
            found = json.loads((self.path / FAILURES).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def note(self, name: str, failure: dict[str, Any] | None) -> None:
        """Write down why a run failed; None: it did not."""
        known = self.failures()
        if known.get(name) == failure:
            return
        known.pop(name, None)
        if failure is not None:
            known[name] = failure
        RunFolder(self.path).write(FAILURES, json_text(known, indent=2) + "\n")
