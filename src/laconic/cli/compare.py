"""`laconic compare`: several runs side by side."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import click


@click.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--plot", type=click.Path(path_type=Path), help="Draw the curves into this picture (needs matplotlib).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def compare(folders: tuple[Path, ...], plot: Path | None, as_json: bool) -> None:
    """Runs side by side: last and best accuracy (or what --best-by said), ε, bytes.

    Takes run folders, finished or not.
    """
    from laconic.report.plots import plot_curves, read_history
    from laconic.store.folder import json_text

    histories = {str(folder): read_history(folder) for folder in folders}
    rows = {name: _row(history, _metric(Path(name))) | _spent(Path(name)) for name, history in histories.items()}
    if plot:
        metrics = {row["metric"] for row in rows.values()}
        shown = metrics.pop() if len(metrics) == 1 else "accuracy"
        plot_curves({Path(name).name: history for name, history in histories.items()}, plot, shown)
    if as_json:
        click.echo(json_text(rows))
        return
    from rich.console import Console
    from rich.table import Table

    from laconic.report.ledger import human_bytes

    table = Table(
        "run", "rounds", "last", "best (test)", "at round", "outsider's ε", "server's ε", "up", "down", box=None
    )
    for name, row in rows.items():
        cells = [_cell(row[key]) for key in ("last", "best", "best_round", "epsilon", "participant_epsilon")]
        table.add_row(name, str(row["rounds"]), *cells, human_bytes(row["bytes_up"]), human_bytes(row["bytes_down"]))
    Console().print(table)


def _metric(folder: Path) -> str:
    """By which a run chooses its best round, unless that is the loss: accuracy if it does not say."""
    try:
        with open(folder / "config.toml", "rb") as stream:
            said = str(tomllib.load(stream)["run"]["best_by"])
    except (OSError, ValueError, KeyError):
        said = "accuracy"
    return "accuracy" if said in ("auto", "loss") else said.replace("-", "_")


def _row(history: list[dict[str, Any]], metric: str) -> dict[str, Any]:
    scored = [row for row in history if metric in row]
    best = max(scored, key=lambda row: row[metric], default=None)
    last = scored[-1] if scored else {}
    return {
        "rounds": len(history),
        "metric": metric,
        "last": last.get(metric),
        "best": best and best[metric],
        "best_round": best and best["round"],
        "epsilon": last.get("epsilon"),
        "participant_epsilon": last.get("participant_epsilon"),
        "bytes_up": sum(row["bytes_up"] for row in history),
        "bytes_down": sum(row["bytes_down"] for row in history),
    }


def _spent(folder: Path) -> dict[str, Any]:
    """The ε of all that was charged, from the statement that every checkpoint renews; none for a plain run."""
    try:
        statement = json.loads((folder / "privacy.json").read_text())
        if not statement["private"]:
            return {}
        released, participant = statement["released"], statement["participant"]
        return {
            "epsilon": released["epsilon"][released["accountant"]],
            "participant_epsilon": participant["epsilon"][participant["accountant"]],
        }
    except (OSError, ValueError, KeyError):
        return {}


def _cell(value: float | int | None) -> str:
    if value is None:
        return "–"
    return str(value) if isinstance(value, int) else f"{value:.4f}"
