"""`laconic reproduce`: the papers' tables, run again, with published and measured figures side by side."""

from __future__ import annotations

import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from laconic.runner.run import Run
    from laconic_studies.reproduce.reproduction import Reproduction
    from laconic_studies.reproduce.tables import Row, Table


@click.command()
@click.argument("names", metavar="[TABLE]...", nargs=-1)
@click.option("--list", "listed", is_flag=True, help="The tables; with TABLE, its rows as published. Nothing is run.")
@click.option("--on", "others", multiple=True, help="Tables of private data: the data set to run instead (repeatable).")
@click.option("--rows", multiple=True, help="Numbers (3), ranges (5-8), schemes (fl-cs), headline; with commas.  [all]")
@click.option("--seeds", type=click.IntRange(1), default=1, show_default=True, help="How many seeds: 0, 1, …")
@click.option("--quick", is_flag=True, help="A small version for a laptop; its figures are not comparable.")
@click.option("--device", default="auto", show_default=True, help="cpu, cuda, cuda:0 … or auto.")
@click.option("--precision", default="auto", show_default=True, help="Products on a GPU, as `laconic run` has it.")
@click.option("--threads", type=int, help="CPU threads.  [all]")
@click.option("--data-dir", type=str, help="Where the files of the data sets are.  [LACONIC_DATA]")
@click.option("--out", type=click.Path(path_type=Path), default=Path("reproduced"), show_default=True, help="Folder.")
@click.option("--side-by-side", is_flag=True, help="Train runs of one shape as one large cohort, on a GPU.")
@click.option("--keep-weights", is_flag=True, help="Keep the model of every run (6.7 MB each, twice).")
@click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="A setting other than the paper's.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; progress goes to stderr.")
@click.option("--quiet", is_flag=True, help="No progress display.")
def reproduce(
    names: tuple[str, ...],
    listed: bool,
    others: tuple[str, ...],
    rows: tuple[str, ...],
    seeds: int,
    quick: bool,
    device: str,
    precision: str,
    threads: int | None,
    data_dir: str | None,
    out: Path,
    side_by_side: bool,
    keep_weights: bool,
    sets: tuple[str, ...],
    as_json: bool,
    quiet: bool,
) -> None:
    """Run the rows of published tables and put paper and measurement side by side.

    \b
    laconic reproduce --list
    laconic reproduce eurosp-table3 --rows fl-cs,fl-cs-dp --device cuda
    laconic reproduce uai-table8 --rows headline --seeds 3 --device cuda
    laconic reproduce thesis-table5.2 --quick
    laconic reproduce uai-table2 --rows headline --on diabetes130 --on ehr-synthetic

    Tables that were measured on private data run on other data: --on ehr-synthetic (made, the default), diabetes130 or
    eicu-demo. Their files say so.

    Finished runs are not repeated and interrupted ones go on, so the same command can be given again. The table is in
    OUT/TABLE as table.md, table.csv and table.png; the runs are in OUT/runs.
    """
    from laconic.errors import ConfigError
    from laconic_studies.cli.published import list_inferences, reproduce_inferences, taken_out
    from laconic_studies.reproduce.tables import STAND_INS, all_tables, choose_rows, find_table, on_other_data

    names, inferences = taken_out(names)
    tables = [find_table(name) for name in names]
    if inferences:
        idle = {"--rows": rows, "--on": others, "--keep-weights": keep_weights, "--side-by-side": side_by_side}
        idle |= {"another table": tables}
        if wrong := next((name for name, value in idle.items() if value), None):
            raise ConfigError(f"{inferences[0].name} is not a table of runs: leave out {wrong}")
        if listed:
            list_inferences(inferences, as_json)
            return
        reproduce_inferences(
            inferences,
            seeds=seeds,
            sets=sets,
            device=device,
            threads=threads,
            as_json=as_json,
            quiet=quiet,
            data_dir=data_dir,
            quick=quick,
            out=out,
        )
        return
    if not tables:
        list_tables(all_tables(), as_json)
        return
    if listed:
        list_rows(tables, as_json)
        return
    if others and not any(table.needs for table in tables):
        on_other_data(tables[0], others[0])  # refuses
    tables = [
        chosen
        for table in tables
        for chosen in ([on_other_data(table, name) for name in others or STAND_INS[:1]] if table.needs else [table])
    ]
    from laconic.cli.run import stop_like_ctrl_c
    from laconic.data.sources import sources_kept
    from laconic.errors import TrainingError
    from laconic.settings.config import parse_set
    from laconic_studies.reproduce.reproduction import Reproduction
    from laconic_studies.reproduce.table_files import write_table

    stop_like_ctrl_c()
    common: dict[str, Any] = {
        "out": out,
        "quick": quick,
        "device": device,
        "precision": precision,
        "threads": threads,
        "data_dir": data_dir,
        "keep_weights": keep_weights,
        "changes": dict(parse_set(text) for text in sets),
    }
    work = [(Reproduction(table=table, **common), choose_rows(table, rows)) for table in tables]
    failed: list[str] = []
    with sources_kept():
        for reproduction, chosen in work:
            try:
                run_rows = _rows_together if side_by_side else _run_rows
                failed += run_rows(reproduction, chosen, seeds, quiet=quiet)
            except KeyboardInterrupt:
                write_table(reproduction, plots=False)
                command = shlex.join(["laconic", *sys.argv[1:]])
                print(f"laconic: interrupted; go on with: {command}", file=sys.stderr)
                sys.exit(130)
            for warning in write_table(reproduction, plots=True):
                print(f"laconic: {warning}", file=sys.stderr)
    show([reproduction for reproduction, _ in work], as_json)
    if failed:
        raise TrainingError(f"{len(failed)} runs failed: {'; '.join(failed)}")


def _run_rows(reproduction: Reproduction, rows: list[Row], seeds: int, *, quiet: bool) -> list[str]:
    """Run what is not finished yet, every row with the first seed, then with the next; returns what went wrong."""
    from laconic.errors import TrainingError
    from laconic_studies.reproduce.table_files import write_table

    todo = [(row, seed) for seed in range(seeds) for row in rows if not reproduction.finished(row, seed)]
    failed = []
    for place, (row, seed) in enumerate(todo, start=1):
        title = f"{reproduction.table.name}, row {row.number}: {row.label}, seed {seed}"
        if not quiet:
            print(f"[{place}/{len(todo)}] {title}", file=sys.stderr, flush=True)
        try:
            reproduction.run(row, seed, lambda simulation: _watched(simulation, quiet))
        except TrainingError as error:
            failed.append(f"{title} ({error})")
        write_table(reproduction, plots=False)  # so that a kill leaves a table too
    return failed


def _rows_together(reproduction: Reproduction, rows: list[Row], seeds: int, *, quiet: bool) -> list[str]:
    """The same with all that can be side by side."""
    from laconic.sweeps.progress import SweepBars, SweepLines
    from laconic.sweeps.together import side_by_side
    from laconic_studies.reproduce.reproduction import RowJob

    every = [(row, seed) for row in rows for seed in range(seeds)]
    jobs = [RowJob(reproduction, row, seed) for row, seed in every if not reproduction.finished(row, seed)]
    counts = len(every), len(every) - len(jobs)
    shown = SweepBars(*counts) if sys.stderr.isatty() and not quiet else SweepLines(*counts, quiet=quiet)
    with shown:
        side_by_side(jobs, shown)
    return [f"{name} ({reason})" for name, reason in shown.failed.items()]


def _watched(simulation: Run, quiet: bool) -> Any:
    from laconic.observers.progress import LiveProgress, PlainProgress

    progress = LiveProgress if sys.stderr.isatty() and not quiet else PlainProgress
    display = progress(simulation.experiment.rounds, simulation.experiment.best_by, quiet=quiet)
    simulation.observer = display
    return display


def show(reproductions: list[Reproduction], as_json: bool) -> None:
    from laconic_studies.reproduce.comparison import compared, reproduced_text

    if as_json:
        from laconic.store.folder import json_text

        entries = [
            {"table": r.table.name, "folder": str(r.folder), "notes": r.notes, "rows": compared(r.table, r.results())}
            for r in reproductions
        ]
        click.echo(json_text(entries))
        return
    for r in reproductions:
        found = compared(r.table, r.results())
        click.secho(r.table.title, bold=True)
        for note in r.notes:
            click.echo(note)
        _echo_columns(_side_by_side(r.table, found))
        click.echo((reproduced_text(found) + " " if not r.notes else "") + f"Files: {r.folder}\n")


def _side_by_side(table: Table, entries: list[dict[str, Any]]) -> list[list[str]]:
    """Rows that were run, as 'paper / here', under their headings."""
    from laconic_studies.reproduce.comparison import (
        accuracy_text,
        auroc_text,
        bound_text,
        data_text,
        difference_text,
        number_text,
        published_text,
    )

    def pair(entry: dict[str, Any], name: str, digits: int) -> str:
        return f"{number_text(entry['published'][name], digits)} / {number_text(entry[name], digits)}"

    if table.of_attacks:
        return _attacks_side_by_side(table, entries)
    private = any(row.private for row in table.rows)
    auroc = any(row.published.auroc is not None for row in table.rows)
    lines = [["row", "scheme", "data", table.metric, *(["AUROC"] if auroc else [])]]
    lines[0] += ["difference"] if not table.stands_in else []
    lines[0] += ["round", f"up, {table.unit}", f"down, {table.unit}"]
    lines[0] += ["ε", "outsider's ε", "server's ε"] if private else []
    for row, entry in zip(table.rows, entries, strict=True):
        if entry["accuracy"] is None:
            continue
        cells = [str(row.number), row.label, data_text(entry)]
        cells.append(f"{published_text(entry)} / {accuracy_text(entry)}")
        cells += [f"{published_text(entry, 'auroc')} / {auroc_text(entry)}"] if auroc else []
        cells += [difference_text(entry)] if not table.stands_in else []
        cells += [pair(entry, "round", 0), pair(entry, "up", 2), pair(entry, "down", 2)]
        if private:
            here = f"{number_text(entry['published']['epsilon'])} / {bound_text(entry['epsilon'], 2)}"
            cells += [here, bound_text(entry["epsilon_released"])]
            cells.append(bound_text(entry["epsilon_participant"], 2))
        lines.append(cells)
    return lines


def _attacks_side_by_side(table: Table, entries: list[dict[str, Any]]) -> list[list[str]]:
    """The same for a table of attacks."""
    from laconic_studies.reproduce.comparison import (
        OF_THE_CLASS,
        accuracy_text,
        data_text,
        last_text,
        met_text,
        number_text,
        published_text,
    )

    shown = [name for name in OF_THE_CLASS if any(entry[name] is not None for entry in entries)]
    lines = [["row", "scheme", "data", table.metric]]
    lines[0] += [text for name in shown for text in (OF_THE_CLASS[name], "last ten: least, mean")] + ["met"]
    for row, entry in zip(table.rows, entries, strict=True):
        if not entry["seeds"]:
            continue
        cells = [str(row.number), row.label, data_text(entry), f"{published_text(entry)} / {accuracy_text(entry)}"]
        for name in shown:
            cells.append(f"{number_text(entry['published'][name])} / {number_text(entry[name], 4)}")
            cells.append(last_text(entry, name))
        lines.append([*cells, met_text(entry)])
    return lines


def _echo_columns(lines: list[list[str]]) -> None:
    """Columns that are never cut: these tables are wider than most terminals, and are piped into files."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for number, line in enumerate(lines):
        text = "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        click.secho(text, bold=number == 0)


def list_tables(tables: list[Table], as_json: bool) -> None:
    """All tables, and the published inferences after them."""
    from laconic_studies.reproduce.property_inference import published_inferences

    if as_json:
        from laconic.store.folder import json_text

        rows = [
            {"table": t.name, "also": t.also, "rows": len(t.rows), "title": t.title, "needs": t.needs} for t in tables
        ]
        click.echo(json_text(rows))
        return
    for table in tables:
        click.secho(", ".join((table.name, *table.also)), bold=True, nl=False)
        click.echo(
            f"  {len(table.rows)} rows" + (f"; needs {table.needs}: runs on other data (--on)" if table.needs else "")
        )
        click.echo(f"  {table.title}\n")
    for name, one in published_inferences().items():
        if name == one.name:
            click.secho(", ".join((one.name, *one.also)), bold=True, nl=False)
            click.echo(f"  {len(one.accuracy)} rows; without the files of {one.dataset}, on {one.stand_in['dataset']}")
            click.echo(f"  {one.title}\n")


def list_rows(tables: list[Table], as_json: bool) -> None:
    """The published figures of tables, and what each row was run with."""
    if as_json:
        from laconic.store.folder import json_text

        entries = [
            {
                "table": table.name,
                "title": table.title,
                "source": table.source,
                "unit": table.unit,
                "remarks": table.remarks,
                "headline": table.headline,
                "rows": [asdict(row) for row in table.rows],
            }
            for table in tables
        ]
        click.echo(json_text(entries))
        return
    for table in tables:
        click.secho(table.title, bold=True)
        click.echo(table.source)
        _echo_columns(_published_rows(table))
        for remark in (*table.remarks, *(f"row {row.number}: {row.remark}" for row in table.rows if row.remark)):
            click.echo(f"- {remark}")
        click.echo("")


def _published_rows(table: Table) -> list[list[str]]:
    from laconic_studies.reproduce.comparison import OF_THE_CLASS

    titles = {
        "up": f"up, {table.unit}",
        "down": f"down, {table.unit}",
        "epsilon": "ε",
        "accuracy": table.metric,
    } | OF_THE_CLASS
    figures = [asdict(row.published) for row in table.rows]
    names = [n for n in figures[0] if n != "converges" and any(line[n] is not None for line in figures)]
    lines = [["row", "scheme", "data", *(titles.get(name, name.replace("_", ", ")) for name in names), "settings"]]
    for row, line in zip(table.rows, figures, strict=True):
        options = [f"{key}={row.settings['scheme'][key]:g}" for key in _NOTABLE if key in row.settings["scheme"]]
        cells = [_published_cell(name, line) for name in names]
        lines.append([str(row.number), row.label, row.dataset, *cells, " ".join(options)])
    return lines


def _published_cell(name: str, line: dict[str, Any]) -> str:
    from laconic_studies.reproduce.comparison import DIVERGES, number_text

    if name == "accuracy" and not line["converges"]:
        return DIVERGES
    return number_text(line[name], 0 if name == "round" else 2)


_NOTABLE = ("clip_norm", "noise_multiplier", "sign_step", "server_lr", "momentum")
