"""A sweep from its grid to its table: what is not finished is run, in one of several ways, and all of it is shown."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from laconic.data.sources import sources_kept
from laconic.errors import ConfigError, Failure
from laconic.observers.observer import Row
from laconic.report.plots import plots_available
from laconic.store.folder import RunFolder
from laconic.sweeps.grid import Grid, Point
from laconic.sweeps.jobs import Job, SweepFolder, Watch, Way, in_turn
from laconic.sweeps.table import Table, table_of
from laconic.sweeps.workers import in_processes

PLACES = ("local", "ray")


@dataclass(frozen=True, kw_only=True)
class SweepResult:
    """What a sweep has: its table, its folder, and why runs failed, by name.

    Attributes:
        folder: where the files are: `table.csv`, `table.md`, `table.png`, `runs/`.
        table: a line per run, and means over seeds.
        failures: the reason of every run that failed.
        warnings: what could not be drawn.
    """

    folder: Path
    table: Table
    failures: dict[str, str]
    warnings: tuple[str, ...] = ()

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame` with a row per run."""
        import io

        try:
            import pandas
        except ImportError:
            from laconic.errors import how_to_install

            raise ConfigError(f"to_pandas needs pandas: {how_to_install('tables')}") from None
        return pandas.read_csv(io.StringIO(self.table.csv()))

    def to_dict(self) -> dict[str, Any]:
        """For JSON: a dictionary per run, and why runs failed."""
        lines = [
            {**line.point.values, "seed": line.point.seed, "state": line.state, "rounds": line.rounds}
            | line.figures
            | {"folder": str(self.folder / "runs" / line.point.name)}
            for line in self.table.lines
        ]
        return {"folder": str(self.folder), "metric": self.table.metric, "runs": lines, "failures": self.failures}

    def __repr__(self) -> str:
        return self.table.markdown()


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """The runs of a grid, in a folder. `jobs` run at once; `place` is 'local' or 'ray'.

    `side_by_side` trains runs of one shape as one large cohort; None: on a GPU.
    """

    grid: Grid
    folder: SweepFolder
    points: list[Point]
    jobs: int | None = None
    place: str = "local"
    side_by_side: bool | None = None

    @classmethod
    def of(cls, grid: Grid, out: Path, **options: Any) -> Sweep:
        """The sweep of a grid; all that is wrong with any of its runs is said now."""
        return cls(grid=grid, folder=SweepFolder(out), points=grid.points(), **options)

    def __post_init__(self) -> None:
        if self.place not in PLACES:
            raise ConfigError(f"⟨on⟩ {self.place}: use {' or '.join(PLACES)}")
        if self.jobs is not None and self.jobs < 1:
            raise ConfigError(f"⟨jobs⟩ must be 1 or more, not {self.jobs}")
        if self.side_by_side and self.place == "ray":
            raise ConfigError("⟨side-by-side⟩ trains in one process: leave it out, or leave out ⟨on⟩ ray")

    def run(self, watch: Watch, *, metric: str | None = None, against: str | None = None) -> SweepResult:
        """Run what is not finished. The table is written also where runs fail, and when the sweep is interrupted."""
        way = self.way()  # which may need something that is not installed
        to_do = self.folder.to_do(self.points)
        self.folder.keep(self.grid)
        jobs = [Job(point.name, point.config, self.folder.run(point)) for point in to_do]
        try:
            with sources_kept():
                way(jobs, _Noting(self.folder, watch))
        except KeyboardInterrupt:
            self.write(pictures=False)
            raise
        return self.write(metric=metric, against=against)

    def way(self) -> Way:
        """The function that runs the jobs: in turn, in processes, side by side or on Ray."""
        if self.place == "ray":
            from laconic.sweeps.workers import check_installed, on_ray

            check_installed()
            return partial(on_ray, out=self.folder.path, most=self.jobs)
        if self.side_by_side or (self.side_by_side is None and self._on_a_gpu):
            from laconic.sweeps.together import side_by_side

            return partial(side_by_side, most=self.jobs)
        if self.jobs is not None and self.jobs > 1:
            return partial(in_processes, count=self.jobs, threads=max(1, (os.cpu_count() or 1) // self.jobs))
        return in_turn

    @property
    def _on_a_gpu(self) -> bool:
        from laconic.experiment.identity import choose_device

        return all(choose_device(point.config.run.device).type == "cuda" for point in self.points)

    def write(self, *, pictures: bool = True, metric: str | None = None, against: str | None = None) -> SweepResult:
        """Make the table and the picture of what is there now."""
        table = table_of(self.folder, self.grid, self.points, metric)
        files, warnings = RunFolder(self.folder.path), []
        files.write("table.csv", table.csv())
        files.write("table.md", table.markdown())
        if pictures and plots_available():
            from laconic.sweeps.table import draw

            warning = draw(table, self.folder.path / "table.png", against)
            warnings += [warning] if warning else []
        elif pictures:
            warnings.append("no picture: matplotlib is not installed")
        known = self.folder.failures()
        failures = {
            line.point.name: str(known[line.point.name].get("error"))
            for line in table.lines
            if line.state != "finished" and line.point.name in known
        }
        return SweepResult(folder=self.folder.path, table=table, failures=failures, warnings=tuple(warnings))


class _Noting(Watch):
    """Saves which runs failed, and passes all calls on to another watch."""

    def __init__(self, folder: SweepFolder, watch: Watch) -> None:
        self._folder, self._watch = folder, watch

    def started(self, name: str, rounds: int, finished: int) -> None:
        self._watch.started(name, rounds, finished)

    def row(self, name: str, row: Row) -> None:
        self._watch.row(name, row)

    def note(self, name: str, text: str) -> None:
        self._watch.note(name, text)

    def ended(self, name: str, failure: Failure | None) -> None:
        self._folder.note(name, failure)
        self._watch.ended(name, failure)


def sweep(
    grid: str | Path | Mapping[str, Any],
    out: str | Path,
    *,
    jobs: int | None = None,
    on: str = "local",
    side_by_side: bool | None = None,
    watch: Watch | None = None,
    metric: str | None = None,
    against: str | None = None,
) -> SweepResult:
    """Run every combination of a grid, and put the runs into one table. What is finished in `out` is not repeated.

    Args:
        grid: a TOML file, or a dictionary with the same keys: the sections of a configuration, `grid`, `zip`, `seeds`.
        out: the folder of the sweep.
        jobs: how many runs go at the same time.
        on: 'local', or 'ray' for a Ray cluster.
        side_by_side: train runs of one shape as one large cohort; None: on a GPU.
        watch: is told of every run and round.
        metric: the metric of the table, such as 'loss'.
        against: the axis of the picture.

    Returns:
        The table, the folder, and why runs failed.

    Examples:
        >>> import tempfile
        >>> grid = {"scheme": {"name": "fl-std"}, "data": {"num_clients": 40}, "run": {"rounds": 2, "device": "cpu"},
        ...         "sampler": {"sampling_rate": 0.25}, "model": {"name": "logistic"},
        ...         "grid": {"local_lr": [0.1, 0.5]}, "seeds": 2}
        >>> with tempfile.TemporaryDirectory() as out:
        ...     result = laconic.sweep(grid, out)
        >>> [(mean.values["scheme.local_lr"], mean.seeds) for mean in result.table.means()]
        [(0.1, 2), (0.5, 2)]
    """
    read = Grid.from_dict(grid) if isinstance(grid, Mapping) else Grid.from_file(Path(grid))
    planned = Sweep.of(read, Path(out), jobs=jobs, place=on, side_by_side=side_by_side)
    return planned.run(watch or Watch(), metric=metric, against=against)
