"""A small convolutional network at record level, split among owners that draw their own batches.

    python -m benchmarks.units_frontier.networks [--device cuda] [--processes 8] [--small]

Settings are chosen on a tenth of the training pictures, which belongs to no owner, and then run once for each of three
other seeds, with all training pictures, and judged by the test pictures. Every run is a row of networks.csv.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import statistics
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_context
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
BATCHES, ROUNDS, PACES, MOMENTUM = (4000,), (300,), (8.0, 16.0, 32.0, 64.0), 0.8
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
    torch.set_num_threads(2)
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
    parser.add_argument("--processes", type=int, default=1, help="runs at the same time  [1]")
    parser.add_argument("--out", type=Path, default=Path("docs/results/patients-and-records"))
    parser.add_argument("--small", action="store_true", help="a rehearsal: a twentieth of batch and rounds")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    settings = [
        {"batch": batch, "rounds": rounds, "pace": pace}
        for batch, rounds, pace in itertools.product(BATCHES, ROUNDS, PACES)
    ]
    about, share = machine(asked.device), 0.05 if asked.small else 1.0
    file = asked.out / "networks.csv"
    fresh = not file.exists()
    with (
        file.open("a", newline="", encoding="utf-8") as stream,
        ProcessPoolExecutor(asked.processes, mp_context=get_context("spawn")) as pool,
    ):
        writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
        if fresh:
            writer.writeheader()

        def rows(step: str, jobs: list[tuple[float, int, dict[str, Any]]]) -> list[float]:
            """The accuracies of some runs, which are written as they come."""
            waiting = {
                pool.submit(run, asked.dataset, epsilon, seed, setting, asked.device, share): place
                for place, (epsilon, seed, setting) in enumerate(jobs)
            }
            scores = [0.0] * len(jobs)
            for done in as_completed(waiting):
                epsilon, seed, setting = jobs[waiting[done]]
                found = done.result()
                key = {"dataset": asked.dataset, "step": step, "epsilon": epsilon, "seed": seed, "machine": about}
                writer.writerow(key | setting | found)
                stream.flush()
                print(step, epsilon, seed, setting, found, flush=True)
                scores[waiting[done]] = found["accuracy"]
            return scores

        tries = [(epsilon, seed, setting) for epsilon in asked.epsilons for setting in settings for seed in CHOOSING]
        scores, tests = rows("tried", tries), []
        for epsilon in asked.epsilons:
            means = [
                statistics.mean(s for s, job in zip(scores, tries, strict=True) if (job[0], job[2]) == (epsilon, one))
                for one in settings
            ]
            tests += [(epsilon, seed, settings[means.index(max(means))]) for seed in TESTED]
        rows("tested", tests)


if __name__ == "__main__":
    main()
