"""A small convolutional network at record level, split among owners that draw their own batches.

    python -m benchmarks.units_frontier.networks [--device cuda] [--epsilons 1 3] [--out FOLDER] [--small]

Settings are chosen on a tenth of the training pictures, which belongs to no owner, and then run once for each of three
other seeds, with all training pictures, and judged by the test pictures. Every run is a row of networks.csv.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

import laconic
from benchmarks.machine import machine
from laconic.options.sections import DataSection
from laconic.server.steps import Scheduled
from laconic.settings.data.datasets import load_federation
from laconic.streams import Streams

OWNERS, DELTA, HOLDOUT = 10, 1e-5, 0.1
CHOOSING, TESTED = (0,), (1, 2, 3)
BATCHES, ROUNDS, PACES, MOMENTUM = (4000,), (150, 300), (1.0, 2.0, 4.0), 0.8
"""Pictures that all owners together draw on average, rounds, and step sizes times S, which are tried."""
CLIP_NORM = 0.1
COLUMNS = ["dataset", "step", "epsilon", "seed", "batch", "rounds", "pace", "accuracy", "server_epsilon"]
COLUMNS += ["outsider_epsilon", "sigma", "seconds", "machine"]


class SmallNetwork(nn.Sequential):
    """Two convolutions and two dense layers with tanh, as Papernot et al. (AAAI 2021) found good under noise."""

    def __init__(self, channels: int, side: int, classes: int) -> None:
        left = side // 4
        super().__init__(
            nn.Conv2d(channels, 16, 5, padding=2),
            nn.Tanh(),
            nn.AvgPool2d(2),
            nn.Conv2d(16, 32, 5, padding=2),
            nn.Tanh(),
            nn.AvgPool2d(2),
            nn.Flatten(),
            nn.Linear(32 * left * left, 32),
            nn.Tanh(),
            nn.Linear(32, classes),
        )


def run(dataset: str, epsilon: float, seed: int, setting: dict[str, Any], device: str, share: float) -> dict[str, Any]:
    """One run; while settings are chosen, held-out pictures judge. `share` of the batch and rounds for a rehearsal."""
    started, choosing = time.perf_counter(), seed in CHOOSING
    data = load_federation(
        DataSection(dataset=dataset, num_clients=OWNERS),
        holdout=HOLDOUT if choosing else 0.0,
        streams=Streams(seed),
    )
    records = sum(data.population.size(owner) for owner in range(OWNERS))
    rounds = max(2, round(setting["rounds"] * share))
    scheme = laconic.schemes.fl_std_dp(
        unit="record",
        num_units=records,
        unit_rate=setting["batch"] * share / 60_000,
        clip_norm=CLIP_NORM,
        momentum=MOMENTUM,
        server_lr=setting["pace"] * (1 - MOMENTUM) / CLIP_NORM,
    )
    rule = Scheduled(rule=scheme.rule, rounds=rounds, step_decay=0.5, average_last=max(1, rounds // 10))
    torch.manual_seed(seed)
    channels, side, _ = data.input_shape
    result = laconic.run(
        replace(scheme, rule=rule),
        model=SmallNetwork(channels, side, 10),
        clients=data.population,
        test=data.holdout if choosing else data.test,
        sampling_rate=1.0,
        rounds=rounds,
        epsilon=epsilon,
        delta=DELTA,
        seed=seed,
        device=device,
        eval_every=rounds,
        progress=False,
    )
    return {
        "accuracy": round(result.last["accuracy"], 4),
        "server_epsilon": round(result.last["participant_epsilon"], 4),
        "outsider_epsilon": round(result.last["epsilon"], 4),
        "sigma": result.statement["mechanism"]["noise"]["noise_multiplier"],
        "seconds": round(time.perf_counter() - started, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="fashion-mnist")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="cpu or cuda")
    parser.add_argument("--epsilons", type=float, nargs="*", default=(1.0, 3.0))
    parser.add_argument("--out", type=Path, default=Path("docs/results/patients-and-records"))
    parser.add_argument("--small", action="store_true", help="a rehearsal: a twentieth of batch and rounds")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    settings = [
        {"batch": batch, "rounds": rounds, "pace": pace}
        for batch, rounds, pace in itertools.product(BATCHES, ROUNDS, PACES)
    ]
    about, share = machine(asked.device), 0.05 if asked.small else 1.0
    with (asked.out / "networks.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()

        def row(step: str, epsilon: float, seed: int, setting: dict[str, Any]) -> float:
            found = run(asked.dataset, epsilon, seed, setting, asked.device, share)
            key = {"dataset": asked.dataset, "step": step, "epsilon": epsilon, "seed": seed, "machine": about}
            writer.writerow(key | setting | found)
            file.flush()
            print(step, epsilon, seed, setting, found, flush=True)
            return float(found["accuracy"])

        for epsilon in asked.epsilons:
            tried = [statistics.mean(row("tried", epsilon, seed, setting) for seed in CHOOSING) for setting in settings]
            best = settings[tried.index(max(tried))]
            for seed in TESTED:
                row("tested", epsilon, seed, best)


if __name__ == "__main__":
    main()
