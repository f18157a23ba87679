"""The test runs: all clients, integer noise, the tight accountant, and test pictures looked at once."""

from __future__ import annotations

import csv
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import laconic
from benchmarks.frontier.features import Features
from benchmarks.server_frontier.worlds import CLASSES, DELTA, RIDGE, Setting, World
from laconic.models.registry import build_model

COLUMNS = ["dataset", "limit", "asked", "seed", "rounds", "features", "step", "precondition", "momentum"]
COLUMNS += ["held_out", "accuracy", "server_epsilon", "outsider_epsilon", "sigma", "bytes_up", "bytes_down", "seconds"]
Row = dict[str, Any]


def run(setting: Setting, epsilon: float, seed: int, features: Path) -> Row:
    """What `Setting.command` runs, on features that are there already."""
    started = time.perf_counter()
    kept = Features(features, setting.features, RIDGE)
    clients, options = kept.clients(), setting.options
    downlink = options.pop("downlink")
    result = laconic.run(
        replace(laconic.schemes.fl_std_dp(**options, outputs=CLASSES), downlink=downlink),
        model=build_model(
            "logistic", input_shape=(setting.features,), num_classes=CLASSES, seed=0, options={"zero": True}
        ),
        clients=clients,
        test=kept.records("judge"),
        sampling_rate=1.0,
        rounds=setting.rounds,
        epsilon=epsilon,
        delta=DELTA,
        seed=seed,
        eval_every=setting.rounds,
    )
    assert result.last["round"] == setting.rounds
    return {
        "accuracy": round(result.last["accuracy"], 4),
        "server_epsilon": round(result.last["participant_epsilon"], 4),
        "outsider_epsilon": round(result.last["epsilon"], 4),
        "sigma": result.statement["mechanism"]["noise"]["noise_multiplier"],
        "bytes_up": round(result.ledger["bytes_up"] / clients.num_clients),
        "bytes_down": round(result.ledger["bytes_down"] / clients.num_clients),
        "seconds": round(time.perf_counter() - started, 1),
    }


def read(file: Path) -> list[Row]:
    if not file.exists():
        return []
    with file.open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def keep(file: Path, row: Row) -> None:
    fresh = not file.exists()
    with file.open("a", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
        if fresh:
            writer.writeheader()
        writer.writerow(row)


def key_of(world: World, limit: int, epsilon: float, seed: int) -> tuple[str, ...]:
    return world.dataset, str(limit), f"{epsilon:g}", str(seed)


def key_in(row: Row) -> tuple[str, ...]:
    return row["dataset"], row["limit"], f"{float(row['asked']):g}", row["seed"]
