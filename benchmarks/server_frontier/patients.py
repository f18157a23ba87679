"""The frontier of diabetes130: AUROC of death in hospital against the server's ε, for 200 virtual hospitals.

    python -m benchmarks.server_frontier.patients [--out FILE]        goes on where it was stopped

Data, hospitals and held-out patients are those of `benchmarks.small_federations`. Settings are chosen for every ε on
held-out patients (mean of two seeds), and each choice is judged on the test patients with three other seeds.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.server_frontier.worlds import DELTA, EPSILONS
from benchmarks.small_federations import Results, federation, measured

HOSPITALS = 200
TRIED, TESTED = (100, 101), (0, 1, 2)
FILE = Path("docs/results/frontier-server/diabetes130.json")


def settings() -> list[dict[str, Any]]:
    """What is tried: components of public records, and how many rounds of which length."""
    found = []
    for components in (30, 80):
        for rounds, clip in ((1, 0.5), (4, 0.2), (10, 0.1)):
            for balance in ("downsample", "weights"):
                found.append(
                    {
                        "model.zero": True,
                        "front_end.name": "pca",
                        "front_end.features": components,
                        "front_end.ridge": 0.01,
                        "scheme.name": "fl-std-dp",
                        "scheme.balance": balance,
                        "scheme.batch_size": "all",
                        "scheme.local_steps": 20,
                        "scheme.local_lr": 0.1,
                        "scheme.clip_norm": clip,
                        "run.rounds": rounds,
                    }
                )
    return found


def judged(results: Results, step: str, epsilon: float, seed: int, chosen: dict[str, Any]) -> dict[str, Any]:
    def make() -> dict[str, Any]:
        data = federation(HOSPITALS, seed, True, step == "tried")
        return measured(chosen, data, seed, **{"privacy.epsilon": epsilon, "privacy.delta": DELTA})

    return results.ensure(make, step=step, epsilon=epsilon, seed=seed, settings=chosen)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=FILE)
    asked = parser.parse_args(arguments)
    torch.set_num_threads(1)
    results = Results(asked.out)
    for epsilon in EPSILONS:
        scores = [
            statistics.fmean(judged(results, "tried", epsilon, seed, one)["auroc"] for seed in TRIED)
            for one in settings()
        ]
        best = settings()[scores.index(max(scores))]
        for seed in TESTED:
            judged(results, "tested", epsilon, seed, best)


if __name__ == "__main__":
    main()
