"""`laconic compare`: several runs side by side, by one metric."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from laconic.report.page.reading import RunView


@click.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--metric", help="The metric of all rows.  [the first of AUROC, accuracy and loss that all runs have]")
@click.option(
    "--html", "page", type=click.Path(path_type=Path), help="Write a page with overlaid curves into this file."
)
@click.option("--plot", type=click.Path(path_type=Path), help="Draw the curves into this picture (needs matplotlib).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def compare(folders: tuple[Path, ...], metric: str | None, page: Path | None, plot: Path | None, as_json: bool) -> None:
    """Runs side by side: one metric, last and best, with ε and bytes.

    Takes run folders, finished or not. A run that does not have the metric has a dash.
    """
    from laconic.cli.pages.writing import write_page
    from laconic.report.page.metrics import asked_metric
    from laconic.report.page.overlay import overlay_page, short_names
    from laconic.report.plots import plot_curves, read_history
    from laconic.store.finished import shown_run
    from laconic.store.folder import json_text

    spelt: dict[str, str] = {}
    for folder in folders:
        read_history(folder)  # it says what is wrong with a folder
        spelt.setdefault(os.path.abspath(folder), str(folder))
    paths = list(spelt.values())
    views = [shown_run(Path(path)) for path in paths]
    metric = asked_metric([view.rows for view in views], metric)
    named = dict(zip(short_names(paths), views, strict=True))
    if plot:
        plot_curves({name: view.rows for name, view in named.items()}, plot, metric or "accuracy")
    if page:
        write_page(page, overlay_page(named, metric), "--html")
    rows = {name: _row(view, metric) for name, view in named.items()}
    if as_json:
        click.echo(json_text(dict(zip(paths, rows.values(), strict=True))))
    else:
        _print(rows, metric)
        for line in (*_stand_ins(named), *_doubts(named)):
            click.echo(line)


def _stand_ins(named: dict[str, RunView]) -> list[str]:
    """What must be said of runs on data that take the place of others."""
    from laconic.data.sources import SOURCES
    from laconic.report.page.reading import section

    of = {name: SOURCES.get(str(section(view.config, "data").get("dataset"))) for name, view in named.items()}
    return [
        f"{name}: {info.name} is a stand-in for {info.stand_in_for}; figures cannot be compared with its own."
        for name, info in of.items()
        if info is not None and info.stand_in_for
    ]


def _doubts(named: dict[str, RunView]) -> list[str]:
    """What could not be checked."""
    return [f"{name}: {view.doubt}" for name, view in named.items() if view.doubt]


def _row(view: RunView, metric: str | None) -> dict[str, Any]:
    """Both ε are of all that is known to be spent; where attackers left out noise, those that hold all the same."""
    from laconic.report.page.metrics import best, curve
    from laconic.report.page.reading import number

    found = curve(view.rows, metric) if metric else []
    top = best(view.rows, metric) if metric else None
    spent = view.epsilons()
    return {
        "rounds": len(view.rows),
        "metric": metric,
        "last": found[-1][1] if found else None,
        "best": top[1] if top else None,
        "best_round": top[0] if top else None,
        "epsilon": spent[0],
        "participant_epsilon": spent[1],
        "bytes_up": sum(int(number(row, "bytes_up") or 0) for row in view.rows),
        "bytes_down": sum(int(number(row, "bytes_down") or 0) for row in view.rows),
    }


def _print(rows: dict[str, dict[str, Any]], metric: str | None) -> None:
    """A line per run. Where names and figures do not fit beside each other, a name has a line of its own."""
    from rich.console import Console

    from laconic.metrics import titles
    from laconic.report.page.metrics import smaller_is_better

    label = "metric" if metric is None else titles()[metric]
    head = [["rounds"], *([*label.replace(",", "").split(), what] for what in ("last", "best")), ["at", "round"]]
    head += [["outsider's", "ε"], ["server's", "ε"], ["up"], ["down"]]
    high = max(len(words) for words in head)
    lines = [[words[i - high] if i >= high - len(words) else "" for words in head] for i in range(high)]
    lines += [_figures(row) for row in rows.values()]
    widths = [max(len(line[at]) for line in lines) for at in range(len(head))]
    texts = [" ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)) for line in lines]
    names = [*[""] * (high - 1), "run", *rows]
    widest = max(map(len, names))
    beside = widest + 2 + len(texts[0]) <= Console().width
    for name, text in zip(names if beside else [*[""] * high, *rows], texts, strict=True):
        if beside:
            click.echo(f"{name.ljust(widest)}  {text}")
        else:
            click.echo("\n".join(part for part in (name, f"  {text}") if part))
    if metric is None:
        click.echo("No run was evaluated: there is no metric to compare.")
    else:
        better = "Smaller" if smaller_is_better(metric) else "Larger"
        click.echo(f"{better} is better. The best round is chosen on test records, so it is optimistic.")


def _figures(row: dict[str, Any]) -> list[str]:
    from laconic.figures import at_most
    from laconic.report.ledger import human_bytes
    from laconic.report.page.metrics import short

    figures = ["–" if row[key] is None else short(row[key]) for key in ("last", "best")]
    figures.append("–" if row["best_round"] is None else str(row["best_round"]))
    outsider, server = row["epsilon"], row["participant_epsilon"]
    figures += [
        "–" if outsider is None else at_most(outsider),
        ("–" if outsider is None else "none") if server is None else at_most(server),
    ]
    return [str(row["rounds"]), *figures, *(human_bytes(row[key]) for key in ("bytes_up", "bytes_down"))]
