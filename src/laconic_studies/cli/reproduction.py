"""What `laconic reproduce` prints: the list of tables, published rows, and paper beside measurement."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from laconic_studies.reproduce.reproduction import Reproduction
    from laconic_studies.reproduce.tables import Table


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
            cells += [pair(entry, "epsilon", 2), number_text(entry["epsilon_released"], 3)]
            cells.append(number_text(entry["epsilon_participant"], 2))
        lines.append(cells)
    return lines


def _attacks_side_by_side(table: Table, entries: list[dict[str, Any]]) -> list[list[str]]:
    """The same for a table of attacks."""
    from laconic_studies.reproduce.attack_figures import OF_THE_CLASS, last_text, met_text
    from laconic_studies.reproduce.comparison import accuracy_text, data_text, number_text, published_text

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
    from laconic_studies.reproduce.attack_figures import OF_THE_CLASS

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
    from laconic_studies.reproduce.attack_figures import DIVERGES
    from laconic_studies.reproduce.comparison import number_text

    if name == "accuracy" and not line["converges"]:
        return DIVERGES
    return number_text(line[name], 0 if name == "round" else 2)


_NOTABLE = ("clip_norm", "noise_multiplier", "sign_step", "server_lr", "momentum")
