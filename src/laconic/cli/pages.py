"""`laconic compare`, `report` and `watch`: runs in a table, as a page, live in a browser."""

from __future__ import annotations

import os
import sys
import threading
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
    from laconic.report.page.overlay import overlay_page, short_names
    from laconic.report.page.reading import asked_metric
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
    from laconic.report.page.reading import best, curve, number

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
    from laconic.report.page.reading import smaller_is_better

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
    from laconic.report.page.reading import short

    figures = ["–" if row[key] is None else short(row[key]) for key in ("last", "best")]
    figures.append("–" if row["best_round"] is None else str(row["best_round"]))
    outsider, server = row["epsilon"], row["participant_epsilon"]
    figures += [
        "–" if outsider is None else at_most(outsider),
        ("–" if outsider is None else "none") if server is None else at_most(server),
    ]
    return [str(row["rounds"]), *figures, *(human_bytes(row[key]) for key in ("bytes_up", "bytes_down"))]


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Where to write the page.  [report.html in the folder]")
@click.option("--json", "as_json", is_flag=True, help="Print where the page is as JSON.")
def report(folder: Path, out: Path | None, as_json: bool) -> None:
    """The report of a run as one HTML file: of one that goes on, was stopped, or was made by an earlier version.

    A finished run has its report.html already. `laconic watch` shows the same page live.
    """
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


@click.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="The port to listen on.  [a free one]")
@click.option("--open/--no-browser", "open_browser", default=False, help="Open the address in a browser.  [no]")
@click.option("--metric", help="The metric of all rows and curves, where there are several runs.  [AUROC or accuracy]")
@click.option("--json", "as_json", is_flag=True, help="Print the address as JSON.")
def watch(folders: tuple[Path, ...], port: int, open_browser: bool, metric: str | None, as_json: bool) -> None:
    """The report of runs while they go on, in a browser, until Ctrl-C.

    \b
    laconic watch runs/fl-std-dp-digits
    laconic watch runs
    laconic watch runs/a runs/b --port 8808 --open

    Takes run folders of simulations and federations, and folders of several runs; one that is not there yet is waited
    for. The page is served to this machine only, under an address with a random token. Nothing is changed. From another
    machine: ssh -L 8808:127.0.0.1:8808 HOST, with --port 8808.
    """
    from laconic.cli.run import stop_like_ctrl_c
    from laconic.report.live import Runs, WatchServer
    from laconic.store.finished import watched_run

    metric = _checked(folders, metric)
    stop_like_ctrl_c()
    with WatchServer(Runs(folders, metric, watched_run), port) as server:
        _announce(server.address, folders, as_json)
        if open_browser:
            threading.Thread(target=_open, args=(server.ticket(),), daemon=True).start()  # a browser may wait for us
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            print("laconic: watch has ended; no run was touched", file=sys.stderr)


def _open(address: str) -> None:
    import webbrowser

    if not webbrowser.open(address):
        print("laconic: --open found no browser here: open the address yourself", file=sys.stderr)


def _checked(folders: tuple[Path, ...], metric: str | None) -> str | None:
    """The metric as rows call it; what cannot be watched is refused."""
    from laconic.errors import ConfigError, RunFolderError, unknown
    from laconic.metrics import titles
    from laconic.report.page.reading import spelt

    for folder in folders:
        if folder.exists() and not folder.is_dir():
            raise RunFolderError(f"{folder} is a file, not a run folder: give the folder that holds rounds.jsonl")
    if metric is not None and spelt(metric) not in titles():
        raise ConfigError(f"--metric: {unknown('metric', metric, titles())}")
    return None if metric is None else spelt(metric)


def _announce(address: str, folders: tuple[Path, ...], as_json: bool) -> None:
    """The address goes to standard output at once, also into a pipe."""
    missing = [str(folder) for folder in folders if not folder.exists()]
    if as_json:
        from laconic.store.folder import json_text

        print(json_text({"address": address, "not_there_yet": missing}), flush=True)
        return
    print(address, flush=True)
    for folder in missing:
        print(f"laconic: {folder} is not there yet: waiting for it", file=sys.stderr)
    print("laconic: only this machine can open the address, and only with its token; Ctrl-C ends it", file=sys.stderr)


_BEGINNING = b"<!doctype html"


def write_page(path: Path, page: str, flag: str) -> None:
    """Write the page. A file that is there and is no page stays: a slip must not cost a run its files."""
    from laconic.errors import ConfigError

    try:
        if path.is_file():
            with open(path, "rb") as stream:
                begins = stream.read(len(_BEGINNING)).lower()
            if begins not in (b"", _BEGINNING):
                raise ConfigError(f"{flag} {path}: this file is there and is not a page; choose another name")
        path.write_text(page, encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot write {path}: {reason}; say where with {flag}") from None
