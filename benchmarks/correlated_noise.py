"""Noise that is correlated over rounds against independent noise, at the same ε, sampler and participations.

    python -m benchmarks.correlated_noise --out docs/results/correlated-noise

Digits and Fashion-MNIST (LACONIC_DATA says where it is), one linear layer. Clients take turns: 100 rounds, each client
in every 20th of them. A third arm draws cohorts of the same expected size by coins; its ε is amplified, and holds only
while nobody knows who took part. Every finished run is appended to runs.csv, and one that is there already is not
repeated.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from typing import Any

from laconic.runner.run import Run
from laconic.settings.build import settle
from laconic.settings.config import RunConfig

ROUNDS, SEPARATION = 100, 20
COMMON: dict[str, Any] = {
    "scheme.name": "fl-std-dp",
    "scheme.local_lr": 0.1,
    "scheme.local_steps": 5,
    "scheme.clip_norm": 0.5,
    "model.name": "logistic",
    "run.rounds": ROUNDS,
    "run.eval_every": ROUNDS,
    "run.device": "cpu",
}
DATA: dict[str, dict[str, Any]] = {
    "digits": {"data.dataset": "digits", "data.num_clients": 200},
    "fashion-mnist": {"data.dataset": "fashion-mnist", "data.num_clients": 1000},
}
TURNS: dict[str, Any] = {"sampler.kind": "cyclic", "sampler.separation": SEPARATION}
ARMS: dict[str, dict[str, Any]] = {
    "independent": TURNS,
    "correlated": TURNS | {"privacy.noise_bands": SEPARATION},
    "poisson": {"sampler.sampling_rate": 1 / SEPARATION},
}
STEPS: dict[str, dict[str, Any]] = {
    "1": {"scheme.server_lr": 1.0},
    "0.3": {"scheme.server_lr": 0.3},
    "0.1, momentum 0.9": {"scheme.server_lr": 0.1, "scheme.momentum": 0.9},
}
EPSILONS = (2.0, 8.0)
COLUMNS = ("data", "step", "epsilon", "arm", "seed", "sigma", "spent", "noise_ratio", "last_noise_ratio", "accuracy")
_KEY = 5
"""The first so many columns name a run."""


def one(data: str, step: str, epsilon: float, arm: str, seed: int) -> dict[str, Any]:
    values = COMMON | DATA[data] | STEPS[step] | ARMS[arm] | {"privacy.epsilon": epsilon, "run.seed": seed}
    result = Run(settle(RunConfig().with_values(values)).experiment).run()
    mechanism = result.statement["mechanism"]
    ratios = mechanism.get("correlation", {})
    return {
        "data": data,
        "step": step,
        "epsilon": epsilon,
        "arm": arm,
        "seed": seed,
        "sigma": mechanism["noise"]["noise_multiplier"],
        "spent": round(result.statement["released"]["epsilon"]["pld"], 4),
        "noise_ratio": round(ratios["noise_ratio"], 4) if ratios else "",
        "last_noise_ratio": round(ratios["last_noise_ratio"], 4) if ratios else "",
        "accuracy": round(result.last["accuracy"], 4),
    }


def table(rows: list[dict[str, str]]) -> str:
    """Mean accuracy and all seeds, by data, step and ε."""
    lines = [f"| data | server step | ε | {' | '.join(ARMS)} |", "| --- " * (3 + len(ARMS)) + "|"]
    for data in DATA:
        for step in STEPS:
            for epsilon in EPSILONS:
                cells = []
                for arm in ARMS:
                    key = (data, step, str(epsilon), arm)
                    found = [float(r["accuracy"]) for r in rows if tuple(r[name] for name in COLUMNS[:4]) == key]
                    each = ", ".join(f"{value:.3f}" for value in found)
                    cells.append(f"{sum(found) / len(found):.3f} ({each})" if found else "")
                lines.append(f"| {data} | {step} | {epsilon:g} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    path = given.out / "runs.csv"
    rows = list(csv.DictReader(path.open(encoding="utf-8", newline=""))) if path.exists() else []
    done = {tuple(row[name] for name in COLUMNS[:_KEY]) for row in rows}
    with path.open("a", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, COLUMNS)
        if not rows:
            writer.writeheader()
        wanted = [
            (data, step, epsilon, arm, seed)
            for data in DATA
            for step in STEPS
            for epsilon in EPSILONS
            for seed in range(given.seeds)
            for arm in ARMS
        ]
        for key in wanted:
            if tuple(map(str, key)) in done:
                continue
            row = one(*key)
            rows.append({name: str(value) for name, value in row.items()})
            writer.writerow(row)
            stream.flush()
    print(table(rows))


if __name__ == "__main__":
    main()
