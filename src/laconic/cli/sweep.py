"""`laconic sweep`: every combination of a grid of settings as a run, one table and one picture."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from laconic.sweeps.grid import Grid
    from laconic.sweeps.sweep import Sweep, SweepResult


@click.command()
@click.argument("what", metavar="GRID.toml|FOLDER", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Folder of the sweep.  [sweeps/GRID]")
@click.option("--dry-run", is_flag=True, help="List the runs, with ε and bytes. Nothing is trained or written.")
@click.option("--table", "table_only", is_flag=True, help="Make table and picture of what is there. Nothing is run.")
@click.option("--jobs", type=click.IntRange(1), help="Runs at the same time.  [1; 16 side by side]")
@click.option(
    "--side-by-side/--one-by-one",
    "side_by_side",
    default=None,
    help="Train runs of one shape as one large cohort, or each by itself.  [side by side on a GPU]",
)
@click.option("--on", "place", default="local", show_default=True, help="local, or ray: a Ray cluster.")
@click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="A setting of all runs, other than the base's.")
@click.option("--metric", help="The metric of table and picture, such as auroc or loss.  [one that all runs have]")
@click.option("--against", help="The axis of the picture.  [the one with most numbers]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; progress goes to stderr.")
@click.option("--quiet", is_flag=True, help="No progress display.")
def sweep(
    what: Path,
    out: Path | None,
    dry_run: bool,
    table_only: bool,
    jobs: int | None,
    side_by_side: bool | None,
    place: str,
    sets: tuple[str, ...],
    metric: str | None,
    against: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Run every combination of a grid of settings, each in a folder of its own, and put all of them into one table.

    \b
    laconic sweep grid.toml --dry-run
    laconic sweep grid.toml --jobs 4
    laconic sweep sweeps/grid
    laconic sweep sweeps/grid --table --metric loss --against local_lr

    The grid is a configuration of `laconic run`, or names one (base = "run.toml"), with lists of values under [grid],
    lists that go together under [[zip]], and seeds = 5. Finished runs are not repeated and interrupted ones go on, so
    the same command can be given again; a FOLDER goes on with its own grid. Exit code 6: some runs failed, the others
    are in the table.
    """
    from laconic.settings.config import parse_set
    from laconic.sweeps.grid import Grid
    from laconic.sweeps.jobs import SweepFolder
    from laconic.sweeps.sweep import Sweep

    changes = dict(parse_set(text) for text in sets)
    grid, folder = _asked(what, out, changes, Grid, SweepFolder)
    planned = Sweep.of(grid, folder, jobs=jobs, place=place, side_by_side=side_by_side)
    if dry_run:
        _list(planned, as_json)
        return
    if table_only:
        planned.folder.grid()  # refuses a folder without a sweep
        _show(planned.write(metric=metric, against=against), as_json)
        return
    _show(_run(planned, metric, against, quiet=quiet, bars=not (quiet or as_json)), as_json)


def _asked(what: Path, out: Path | None, changes: dict[str, Any], grid: Any, folder: Any) -> tuple[Grid, Path]:
    """The grid and the folder that the arguments name."""
    from laconic.errors import ConfigError

    if what.is_dir():
        if out is not None and out != what:
            raise ConfigError(f"{what} is the folder of a sweep, which goes on there: leave out --out")
        if changes:
            raise ConfigError("--set changes a new sweep: give the grid, and another --out")
        return folder(what).grid(), what
    return grid.from_file(what, changes), out or Path("sweeps") / what.stem


def _run(planned: Sweep, metric: str | None, against: str | None, *, quiet: bool, bars: bool) -> SweepResult:
    from laconic.cli.run import stop_like_ctrl_c
    from laconic.sweeps.progress import SweepBars, SweepLines

    stop_like_ctrl_c()
    count = len(planned.points)
    finished = count - len(planned.folder.to_do(planned.points))
    shown = SweepBars(count, finished) if bars and sys.stderr.isatty() else SweepLines(count, finished, quiet=quiet)
    try:
        with shown:
            return planned.run(shown, metric=metric, against=against)
    except KeyboardInterrupt:
        command = shlex.join(["laconic", *sys.argv[1:]])
        print(f"laconic: interrupted after {shown.done} of {count} runs; go on with: {command}", file=sys.stderr)
        sys.exit(130)


def _list(planned: Sweep, as_json: bool) -> None:
    """The runs and what they will promise and cost, a line as soon as it is known."""
    from dataclasses import asdict

    from laconic.figures import at_most
    from laconic.report.ledger import human_bytes
    from laconic.store.folder import json_text
    from laconic.sweeps.grid import planned as lines_of

    if as_json:
        click.echo(json_text([asdict(line) for line in lines_of(planned.grid, planned.points)]))
        return
    done = {point.name for point in planned.points} - {p.name for p in planned.folder.to_do(planned.points)}
    seeds = ", ".join(map(str, planned.grid.seeds))
    click.echo(f"{len(planned.points)} runs in {planned.folder.path}, {len(done)} of them finished; seeds {seeds}")
    for line in lines_of(planned.grid, planned.points):
        name = planned.grid.text(line.values) or "base"
        if line.problem is not None:
            click.echo(f"{name}: {line.problem}")
            continue
        private = "not private"
        if line.noise_multiplier is not None:
            epsilon = "not available" if line.epsilon is None else at_most(line.epsilon)
            private = f"σ = {line.noise_multiplier:.4g}, ε = {epsilon}"
        click.echo(f"{name}: {private}, {human_bytes(line.bytes_up)} up, {human_bytes(line.bytes_down)} down")


def _show(result: SweepResult, as_json: bool) -> None:
    """The table on the terminal; an error at the end if runs failed."""
    from laconic.errors import TrainingError

    for warning in result.warnings:
        print(f"laconic: {warning}", file=sys.stderr)
    if as_json:
        from laconic.store.folder import json_text

        click.echo(json_text(result.to_dict()))
    else:
        _print(result)
    if result.failures:
        named = "; ".join(f"{name} ({reason})" for name, reason in list(result.failures.items())[:5])
        more = f"; and {len(result.failures) - 5} more" if len(result.failures) > 5 else ""
        count = len(result.table.lines)
        raise TrainingError(f"{len(result.failures)} of {count} runs failed: {named}{more}; see failures.json")


def _print(result: SweepResult) -> None:
    """Columns below each other, with their names in as many lines as they have words."""
    heads = [title.replace("_", "_ ").split() for title in result.table.head()]
    high = max(len(words) for words in heads)
    lines = [[words[i - high] if i >= high - len(words) else "" for words in heads] for i in range(high)]
    lines += result.table.cells()
    widths = [max(len(line[at]) for line in lines) for at in range(len(heads))]
    for line in lines:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    for remark in result.table.remarks():
        click.echo(remark)
    click.echo(f"Table, picture and runs: {result.folder}")
