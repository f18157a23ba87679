"""FL-TOP-DP without public data: what do noisy votes on the kept weights cost in accuracy, at the same total ε?

    python -m benchmarks.votes --out docs/results/votes                  # a small CNN, 1,000 clients, on a CPU
    python -m benchmarks.votes --part study --out docs/results/votes     # blocks, marks, shares and rounds of votes
    python -m benchmarks.votes --paper --device cuda --out results/votes # the papers' CNN, 6,000 clients, 200 rounds

On Fashion-MNIST (LACONIC_DATA says where it is). All arms of an ε differ only in how the kept weights are chosen: with
10 public records, by votes, or at random (FL-BAS-3-DP, which needs neither). Every finished run is appended to
runs.csv, and one that is there already is not repeated.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from torch import nn

from laconic.runner.run import Run as Simulation
from laconic.settings.build import settle
from laconic.settings.config import RunConfig

VOTES = {"scheme.name": "fl-top-dp", "scheme.top_selection": "votes"}
ONE = VOTES | {"scheme.vote_rounds": 1, "scheme.vote_block": 16, "privacy.vote_share": 0.25}
ARMS: dict[str, dict[str, Any]] = {
    "public": {"scheme.name": "fl-top-dp", "data.public_records": 10},
    "public-mnist": {"scheme.name": "fl-top-dp", "data.public_dataset": "mnist", "data.public_records": 10},
    "votes": VOTES,
    "votes-thesis": ONE | {"scheme.vote_block": 1},
    "random": {"scheme.name": "fl-bas-3-dp"},
}
"""The comparison, at every ε."""
STUDY: dict[str, dict[str, Any]] = {
    "blocks of 16": ONE,
    "blocks of 4": ONE | {"scheme.vote_block": 4},
    "blocks of 64": ONE | {"scheme.vote_block": 64},
    "share 0.1": ONE | {"privacy.vote_share": 0.1},
    "share 0.5": ONE | {"privacy.vote_share": 0.5},
    "marks 0.006": ONE | {"scheme.vote_ratio": 0.006},
    "no blocks, marks 0.002": ONE | {"scheme.vote_block": 1, "scheme.vote_ratio": 0.002},
    "2 rounds": ONE | {"scheme.vote_rounds": 2},
    "4 rounds": ONE | {"scheme.vote_rounds": 4},
    "4 rounds, blocks of 4": ONE | {"scheme.vote_rounds": 4, "scheme.vote_block": 4},
    "4 rounds, share 0.1": ONE | {"scheme.vote_rounds": 4, "privacy.vote_share": 0.1},
    "4 rounds, share 0.5": ONE | {"scheme.vote_rounds": 4, "privacy.vote_share": 0.5},
    "8 rounds": ONE | {"scheme.vote_rounds": 8},
    "8 rounds, share 0.5": ONE | {"scheme.vote_rounds": 8, "privacy.vote_share": 0.5},
}
"""What makes votes better, at one ε."""
SMALL = {"data.num_clients": 1000, "model.name": "benchmarks.votes:small_cnn", "sampler.sampling_rate": 0.1}
PAPER = {"data.num_clients": 6000, "model.name": "cnn", "sampler.sampling_rate": 1 / 60}


def small_cnn(input_shape: tuple[int, ...] = (1, 28, 28), num_classes: int = 10) -> nn.Module:
    """Two convolutions with stride 2 and two dense layers: 54,314 weights."""
    return nn.Sequential(
        nn.Conv2d(input_shape[0], 8, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(8, 16, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(784, 64),
        nn.ReLU(),
        nn.Linear(64, num_classes),
    )


@dataclass(frozen=True)
class Row:
    """One line of runs.csv. `best` is the best of the evaluated rounds; bytes are those of all clients together."""

    arm: str
    epsilon: float
    seed: int
    rounds: int
    ratio: float
    clip_norm: float
    last: float
    best: float
    epsilon_spent: float
    sigma: float
    vote_sigma: float | None
    bytes_up: int
    bytes_down: int
    bytes_once: int
    seconds: float

    @property
    def key(self) -> tuple[str, str, str]:
        return self.arm, str(self.epsilon), str(self.seed)


def config(arm: dict[str, Any], epsilon: float, seed: int, options: argparse.Namespace) -> RunConfig:
    values: dict[str, Any] = {
        "data.dataset": "fashion-mnist",
        "run.rounds": options.rounds or (200 if options.paper else 40),
        "run.seed": seed,
        "run.device": options.device,
        "run.eval_every": 10,
        "scheme.ratio": options.ratio or (0.005 if options.paper else 0.02),
        "scheme.clip_norm": options.clip_norm,
        "scheme.local_steps": 5,
        "scheme.batch_size": 10,
        "scheme.local_lr": options.local_lr,
        "privacy.epsilon": epsilon,
        "privacy.delta": 1e-5,
    }
    return RunConfig.from_dict({}).with_values(values | (PAPER if options.paper else SMALL) | arm)


def row_of(name: str, arm: dict[str, Any], epsilon: float, seed: int, options: argparse.Namespace) -> Row:
    settled = settle(config(arm, epsilon, seed, options))
    started = time.perf_counter()
    result = Simulation(settled.experiment).run()
    scheme = settled.config.scheme.options
    assert result.best is not None
    return Row(
        arm=name,
        epsilon=epsilon,
        seed=seed,
        rounds=settled.experiment.rounds,
        ratio=scheme["ratio"],
        clip_norm=scheme["clip_norm"],
        last=result.last["accuracy"],
        best=result.best["accuracy"],
        epsilon_spent=result.last["epsilon"],
        sigma=scheme["noise_multiplier"],
        vote_sigma=scheme.get("vote_noise_multiplier"),
        bytes_up=result.ledger["bytes_up"],
        bytes_down=result.ledger["bytes_down"],
        bytes_once=result.ledger["bytes_once"],
        seconds=round(time.perf_counter() - started, 1),
    )


def cells(options: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any], float, int]]:
    arms = STUDY if options.part == "study" else ARMS
    for seed in range(options.seeds):
        for epsilon in options.epsilon or ((2.0,) if options.part == "study" else (1.0, 2.0, 4.0, 8.0)):
            for name, arm in arms.items():
                if not options.arm or name in options.arm:
                    yield name, arm, epsilon, seed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("arms", "study"), default="arms")
    parser.add_argument("--arm", action="append", help="only this one; may be given several times")
    parser.add_argument("--epsilon", action="append", type=float)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--ratio", type=float)
    parser.add_argument("--clip-norm", type=float, default=1.0)
    parser.add_argument("--local-lr", type=float, default=0.2)
    parser.add_argument("--paper", action="store_true", help="the papers' CNN, 6,000 clients, 200 rounds")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=Path("results/votes"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / ("study.csv" if options.part == "study" else "runs.csv")
    known = set()
    if path.exists():
        with path.open(newline="") as file:
            known = {(line["arm"], line["epsilon"], line["seed"]) for line in csv.DictReader(file)}
    for name, arm, epsilon, seed in cells(options):
        if (name, str(epsilon), str(seed)) in known:
            continue
        row = row_of(name, arm, epsilon, seed, options)
        new = not path.exists()
        with path.open("a", newline="") as file:
            writer = csv.DictWriter(file, [field.name for field in fields(Row)])
            if new:
                writer.writeheader()
            writer.writerow(asdict(row))
        print(f"{name}, ε = {epsilon:g}, seed {seed}: last {row.last:.4f}, best {row.best:.4f}", flush=True)


if __name__ == "__main__":
    main()
