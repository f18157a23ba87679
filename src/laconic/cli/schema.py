"""`laconic schema init`: a schema drafted from the user's own table."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from laconic.data.ehr.draft import Draft


@click.group(no_args_is_help=True)
def schema() -> None:
    """The file that says what the columns of your own table are."""


@schema.command("init")
@click.argument("table", type=click.Path(path_type=Path))
@click.option("--target", help="The column to be predicted.  [guessed]")
@click.option("--positive", multiple=True, help="A value of it that counts as positive; may be repeated.  [guessed]")
@click.option(
    "--kind", default="auto", help="What is predicted: yes-no, classes, quantity, or auto.", show_default=True
)
@click.option("--patient", help="The column that says which rows are of one person.  [by its name, or none]")
@click.option("--client", help="The column that says whose each row is.  [by its name, or none]")
@click.option("--scale", default="auto", help="Numbers: min-max, clipped, standard, or auto.", show_default=True)
@click.option("--out", type=click.Path(path_type=Path), help="The file to write.  [TABLE.schema.toml, in this folder]")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON.")
def init(
    table: Path,
    target: str | None,
    positive: tuple[str, ...],
    kind: str,
    patient: str | None,
    client: str | None,
    scale: str,
    out: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Draft a schema for a TABLE (CSV, gz or Parquet) with text, gaps and anything else; one row per record.

    \b
    laconic schema init stays.csv --target died
    laconic run fl-std --dataset stays.csv --schema stays.schema.toml

    A label with two values is taken for yes or no, one with a few for classes, and other numbers for a quantity between
    bounds. Every column is looked at: types, levels, missing cells, identifiers, and how well it tells the label by
    itself. What looks like the label in disguise is left out. Check the file before you use it: it says what to check.
    """
    from laconic.data.ehr.draft import draft_file, draft_schema, write_draft
    from laconic.errors import DataError

    file = out or draft_file(table)
    if file.exists() and not force:
        raise DataError(f"{file} is there already: choose another --out, or replace it with --force")
    draft = draft_schema(
        table,
        target=target,
        positive=positive,
        patient=patient,
        client=client,
        scale=scale.strip().lower(),
        kind=kind.strip().lower(),
    )
    write_draft(draft, file)
    if as_json:
        from laconic.store.folder import json_text

        click.echo(json_text(_as_dict(draft, file)))
        return
    _show(draft, file)


def _as_dict(draft: Draft, file: Path) -> dict[str, Any]:
    return {
        "schema": str(file),
        "rows": draft.rows,
        "predicted": draft.kind,
        "positives": draft.positives if draft.schema.positive else None,
        "columns": [
            {
                "column": finding.column,
                "role": finding.role,
                "missing": finding.missing,
                "distinct": finding.distinct,
                "auroc": finding.auroc,
                "note": finding.note,
            }
            for finding in draft.findings
        ],
    }


def _show(draft: Draft, file: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    schema, console = draft.schema, Console(soft_wrap=False, highlight=False)
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading, justify in (("column", "left"), ("used as", "left"), ("missing", "right"), ("values", "right")):
        table.add_column(heading, justify=justify, overflow="fold")  # type: ignore[arg-type]
    table.add_column("AUROC alone", justify="right")
    for finding in draft.findings:
        area = "" if finding.auroc is None else f"{finding.auroc:.2f}"
        table.add_row(finding.column, finding.role, f"{finding.missing:,}", f"{finding.distinct:,}", area)
    console.print(table, markup=False)
    for heading, left_out in (("Left out:", True), ("To check:", False)):
        noted = [finding for finding in draft.findings if finding.note and finding.used != left_out]
        for line in [heading, *(f"  {finding.column}: {finding.note}" for finding in noted)] if noted else []:
            console.print(line, markup=False, soft_wrap=True)
    whose = f"column {schema.client}" if schema.client else "no such column; say --num-clients N when you run it"
    alone = "" if schema.patient else "; every row counts as a person of its own (if not, write patient = COLUMN)"
    for line in (
        f"{draft.rows:,} rows with a label; predicted: {_predicted(draft)}",
        f"Whose rows: {whose}{alone}",
        "Not private: the ranges, and levels and codes that a run fits to your table, are not counted in ε. The file"
        " says how to give public ones instead, and holds figures of your table: keep it as you keep the table.",
        f"Written: {file}. Check it, then:",
    ):
        console.print(line, markup=False)
    data = ["--dataset", str(draft.table), "--schema", str(file)]
    console.print("  " + shlex.join(["laconic", "run", "fl-std", *data]), markup=False, soft_wrap=True)


def _predicted(draft: Draft) -> str:
    schema = draft.schema
    if schema.positive:
        share = draft.positives / max(1, draft.rows)
        return f"yes or no, {schema.label} = {' or '.join(schema.positive)} ({draft.positives:,}, {share:.1%})"
    if schema.classes:
        return (
            f"one of {len(schema.classes)} classes of {schema.label}: {draft.seen}. If not: --kind yes-no or quantity"
        )
    return (
        f"a quantity, {schema.label}, between low = {schema.low:g} and high = {schema.high:g} (seen: {draft.seen})."
        " Write bounds that are publicly known. If not: --kind classes"
    )
