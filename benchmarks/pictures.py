"""Draw the pictures of docs/results again, from the figures that are kept beside them. No run is repeated.

    python -m benchmarks.pictures

Those of `laconic infer` and of the growth of runs are drawn by `laconic infer` and `python -m benchmarks`.
"""

from __future__ import annotations

import csv
import typing
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from benchmarks import attack_fractions, robust_groups_page
from benchmarks.frontier.plots import draw_bytes, draw_epsilon
from benchmarks.frontier.report import results_in
from laconic.report.plots import plot_panels
from laconic_studies.reproduce.comparison import Measured
from laconic_studies.reproduce.stand_ins import on_other_data
from laconic_studies.reproduce.table_plots import plot_table
from laconic_studies.reproduce.tables import find_table, table_names

RESULTS = Path(__file__).parents[1] / "docs/results"
SCHEMES = {
    "Without privacy": {
        "FL-STD": "fl-std-0",
        "FL-SIGN": "fl-sign",
        "FL-TOP 0.5 %": "fl-top-0.5",
        "FL-CS 5 %": "fl-cs-5",
        "FL-FREQ 5 %": "fl-freq-5-s1",
        "FL-RND 5 %": "fl-rnd-5",
        "FL-BASIC 0.5 %": "fl-basic-0.5",
    },
    "Private, ε = 0.68 against outsiders": {
        "FL-STD-DP": "fl-std-dp-0",
        "FL-SIGN-DP": "fl-sign-dp",
        "FL-TOP-DP 0.5 %": "fl-top-dp-0",
        "FL-CS-DP 5 %": "fl-cs-dp-5",
    },
}
FOUNDATIONS = {
    "Without privacy": {f"FL-STD, seed {seed}": f"fl-std-{seed}" for seed in range(3)},
    "Private, ε = 0.68 against outsiders": {f"FL-STD-DP, seed {seed}": f"fl-std-dp-{seed}" for seed in range(3)},
}


def histories() -> dict[str, list[dict[str, Any]]]:
    """Every recorded round, by run."""
    found: dict[str, list[dict[str, Any]]] = {}
    for name in ("foundations", "schemes"):
        with (RESULTS / name / "rounds.csv").open(newline="") as stream:
            for row in csv.DictReader(stream):
                numbers = {"round": int(row["round"]), "bytes_up": int(row["bytes_up"])}
                accuracy = {"accuracy": float(row["accuracy"])} if row["accuracy"] else {}
                found.setdefault(row["run"], []).append(numbers | accuracy)
    return found


def tables() -> Iterator[Path]:
    """The folders of reproduced tables that have a picture."""
    for folder in sorted(RESULTS.glob("*/table*/*/")) + sorted(RESULTS.glob("tables/*/")):
        if (folder / "table.png").exists():
            yield folder


def measured(folder: Path) -> dict[int, list[Measured]]:
    """The finished runs of a reproduced table, by row."""
    kinds = typing.get_type_hints(Measured)
    results: dict[int, list[Measured]] = {}
    with (folder / "table.csv").open(newline="") as stream:
        for line in csv.DictReader(stream):
            if line["seed"]:
                there = [one.name for one in fields(Measured) if one.name in line]
                values = {name: _value(line[name], kinds[name]) for name in there}
                results.setdefault(int(line["row"]), []).append(Measured(**values))
    return results


def _value(text: str, kind: Any) -> Any:
    if not text:
        return None
    wanted = [one for one in typing.get_args(kind) or (kind,) if one is not type(None)]
    return wanted[0](text)


def main() -> None:
    every = histories()
    for name, groups in (("schemes", SCHEMES), ("foundations", FOUNDATIONS)):
        shown = {title: {label: every[run] for label, run in runs.items()} for title, runs in groups.items()}
        plot_panels(shown, RESULTS / name / "curves.png")
    _, results = results_in(RESULTS / "frontier")
    draw_epsilon(results, RESULTS / "frontier/epsilon.png")
    draw_bytes(results, RESULTS / "frontier/bytes.png")
    attack_fractions.plot(attack_fractions.read(RESULTS / "attacks/runs.csv"), RESULTS / "attacks/fractions.png")
    robust_groups_page.picture(
        robust_groups_page.read_rows(RESULTS / "robust-groups/runs.csv"), RESULTS / "robust-groups/digits.png"
    )
    for folder in tables():
        name = max((name for name in table_names() if folder.name.startswith(name)), key=len)
        table, other = find_table(name), folder.name.removeprefix(name).lstrip("-")
        plot_table(on_other_data(table, other) if other else table, measured(folder), folder / "table.png")


if __name__ == "__main__":
    main()
