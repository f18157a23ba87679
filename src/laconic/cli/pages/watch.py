"""`laconic watch`: the report of runs that go on, live in a browser."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import click


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
    from laconic.report.page.metrics import spelt

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
