"""`laconic report`: the report of a run, made again from its folder."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Where to write the page.  [report.html in the folder]")
@click.option("--json", "as_json", is_flag=True, help="Print where the page is as JSON.")
def report(folder: Path, out: Path | None, as_json: bool) -> None:
    """The report of a run as one HTML file: of one that goes on, was stopped, or was made by an earlier version.

    A finished run has its report.html already. `laconic watch` shows the same page live.
    """
    from laconic.cli.pages.writing import write_page
    from laconic.errors import RunFolderError
    from laconic.report.page.document import run_page
    from laconic.store.finished import shown_run

    view = shown_run(folder)
    if not view.rows and not view.config:
        raise RunFolderError(f"{folder} is not a run folder: there is no rounds.jsonl and no config.toml")
    path = out or folder / "report.html"
    write_page(path, run_page(view), "--out")
    if as_json:
        from laconic.store.folder import json_text

        click.echo(json_text({"report": str(path)}))
    else:
        click.echo(str(path))
