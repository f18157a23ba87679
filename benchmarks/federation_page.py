"""The page about federations, from what was measured and nothing else."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Callable
from typing import Any

Run = dict[str, Any]


def page(measured: dict[str, Any]) -> str:
    about, runs = measured["machine"], measured["runs"]
    sections = [_head(about), _seconds(runs), _bytes(runs), _memory(runs)]
    return "\n\n".join(sections) + "\n"


def _head(about: dict[str, Any]) -> str:
    text = (
        f"Measured with `python -m benchmarks.federation docs/results/flower`: a SuperLink and {about['nodes']}"
        f" nodes on one machine, {about['rounds']} rounds, every node in every round."
        f" {about['cpu']}, {about['cores']} cores,"
        f' which all processes share; Flower {about["flwr"]}, torch {about["torch"]}. "Load" is how many processes'
        " wanted a core when the run ended, other work on the machine counted in: the more, the slower."
    )
    return f"# What a federation on Flower costs\n\n{_filled(text)}"


def _seconds(runs: list[Run]) -> str:
    def row(run: Run) -> list[str]:
        each = run["seconds_per_round"]
        to_start = [run["seconds_to_start"], run["seconds_to_first_round"]]
        figures = [*to_start, statistics.median(each), min(each), max(each), run["load"]]
        return [f"{figure:.1f}" for figure in figures]

    columns = ["to start all", "to the first round", "a round, median", "fastest", "slowest", "load"]
    parts = ["work", "polling", "rest"]
    text = (
        "A round is two exchanges with masks, three if they are signed, one without. The nodes' processes and their"
        " couriers stay, so nothing is started for a message. Of the seconds of a round (medians), *work* is the"
        " longest answer of a node in each exchange. *Polling* is the time between the first and the last node that"
        " began to answer: Flower's SuperNodes look for messages every three seconds. *Rest* is the wait for the first"
        " node, the way back, and the server's own work."
    )
    stages = _table(runs, parts, lambda run: [f"{run['stages'][part]:.1f}" for part in parts])
    return f"## Seconds\n\n{_table(runs, columns, row)}\n\n{_filled(text)}\n\n{stages}"


def _bytes(runs: list[Run]) -> str:
    def later(run: Run) -> list[str]:
        rows = run["rows"][1:]
        payload = statistics.median(row["bytes_up"] + row["bytes_down"] for row in rows)
        masking, messages = (statistics.median(_sum(row, kind) for row in rows) for kind in ("secagg_", "transport_"))
        wire = statistics.median(run["wire_per_round"])
        return [*(f"{round(value):,}" for value in (payload, masking, messages, wire)), f"{wire / payload:.2f}"]

    def once(run: Run) -> list[str]:
        first = run["rows"][0]
        return [f"{_sum(first, 'secagg_keys') + _sum(first, 'transport_keys'):,}", f"{first['bytes_once']:,}"]

    text = (
        "All nodes together, in a round that is not the first (the median). Payload is packed codes and weights."
        " Masking is plans, shares and unmasking. Messages is what Flower's objects add. The wire is what passed"
        " between nodes and SuperLink, with HTTP, TLS, heartbeats and polling."
    )
    often = _table(runs, ["payload", "masking", "messages", "wire", "wire / payload"], later)
    before = _table(runs, ["keys, roster and offer", "kept coordinates"], once)
    return f"## Bytes\n\n{_filled(text)}\n\n{often}\n\nBefore the first round, once in a run:\n\n{before}"


def _memory(runs: list[Run]) -> str:
    programs = sorted({program for run in runs for program in run["memory"]})
    table = _table(
        runs,
        [f"`{program}`" for program in programs],
        lambda run: [f"{run['memory'].get(program, 0) / 1e6:.0f}" for program in programs],
    )
    text = (
        "The largest resident set of a process of each kind, in megabytes. Every node has a `laconic node serve`, a"
        " `flower-supernode` and a `laconic node courier`."
    )
    return f"## Memory\n\n{_filled(text)}\n\n{table}"


def _filled(text: str) -> str:
    return textwrap.fill(text, 124, break_long_words=False, break_on_hyphens=False)


def _sum(row: dict[str, Any], kind: str) -> int:
    return sum(value for key, value in row.items() if key.startswith(kind))


def _table(runs: list[Run], columns: list[str], cells: Callable[[Run], list[str]]) -> str:
    lines = [["run", *columns], ["---"] * (1 + len(columns)), *([run["name"], *cells(run)] for run in runs)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
