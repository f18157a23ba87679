"""A linear layer behind a public front end at record level: settings for every ε, and runs with them.

    python -m benchmarks.units_frontier.heads [--dataset fashion-mnist …] [--features FOLDER] [--data-dir FOLDER]

Settings are drawn at random from a grid and judged on a tenth of the training pictures, which trains nothing: first
all of them with half of the other pictures and one seed of the noise, then the best with all others and three seeds.
Those runs have continuous noise, as strong as the integer noise of the whole federation. Then each choice is run by
`laconic.run` with all training pictures for three other seeds, and judged by the test pictures once.

Noise follows from the seed, and so does the front end (but that of CIFAR-10, which is one for all seeds). Every owner
takes part in every round with all its pictures, so the sums do not depend on how many owners there are; `--owners 100`
runs the first of the test seeds again to show that.
"""

from __future__ import annotations

import argparse
import csv
import functools
import random
import statistics
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

import laconic
from benchmarks.frontier.features import Features
from benchmarks.server_frontier.features import write_features
from benchmarks.server_frontier.worlds import CLASSES, DELTA, World
from laconic.advice.search import against_server
from laconic.data.population import PooledPopulation
from laconic.models.registry import build_model
from laconic.server.steps import Scheduled

EPSILONS = (0.1, 0.25, 1.0, 3.0)
OWNERS, CHOOSING, TESTED = 10, 0, (1, 2, 3)
DRAWN, BEST, AGAIN = 24, 3, (0, 10, 20)
"""Settings drawn for each ε (or `--settings`), how many are judged again, and with which seeds of the noise."""
OUT = Path("docs/results/patients-and-records")
WORLDS = {
    world.dataset: world
    for world in (
        World(dataset="fashion-mnist", clients=100, front_end="scattering+patches", mirror=True, most_features=1600),
        World(dataset="mnist", clients=100, front_end="patches", mirror=False, most_features=820),
        World(dataset="cifar10", clients=100, front_end="patches", patterns=256, mirror=True, most_features=1600),
    )
}
ONE_FRONT_END = ("cifar10",)
"""Data sets whose front end is made once, from the first test seed, since it takes long; others have one a seed."""
RUN_COLUMNS = ["dataset", "epsilon", "seed", "owners", "rounds", "features", "ridge", "clip_norm", "reach", "momentum"]
RUN_COLUMNS += ["precondition", "average_last", "held_out", "accuracy", "server_epsilon", "outsider_epsilon", "sigma"]
RUN_COLUMNS += ["bytes_up", "seconds", "digest"]
TRIAL_COLUMNS = ["dataset", "epsilon", "pictures", "noise_seed", *RUN_COLUMNS[4:12], "accuracy"]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is chosen. `reach` is step size times S/(1 − momentum): how far equal sums carry the weights in a round."""

    rounds: int
    features: int
    ridge: float
    clip_norm: float
    reach: float
    momentum: float
    precondition: float | None
    average_last: int

    @property
    def server_lr(self) -> float:
        return self.reach * (1 - self.momentum) / self.clip_norm


def drawn(world: World, epsilon: float, count: int) -> Iterator[Setting]:
    """So many settings from the grid; stronger noise gets shorter steps.

    Digits are easy, so most gradients are short, and a small S keeps what they say.
    """
    rng = random.Random(f"{world.dataset} {epsilon}")
    reaches = (4.0, 8.0, 16.0, 32.0) if epsilon < 1 else (8.0, 16.0, 32.0, 64.0)
    counts, clips = (400, 820, 1200, 1600), (3.0, 6.0, 10.0)
    if world.dataset == "mnist":
        counts, clips, reaches = (300, 400, 600), (0.1, 0.3, 1.0), tuple(4 * reach for reach in reaches[1:])
    for _ in range(count):
        rounds = rng.choice((20, 30, 40))
        yield Setting(
            rounds=rounds,
            features=rng.choice(tuple(count for count in counts if count <= world.most_features)),
            ridge=rng.choice((0.003, 0.01)),
            clip_norm=rng.choice(clips),
            reach=rng.choice(reaches),
            momentum=rng.choice((0.4, 0.8)),
            precondition=rng.choice((None, 0.15, 0.5)),
            average_last=rng.choice((1, round(0.4 * rounds))),
        )


class Trials:
    """Runs with continuous noise on held-out pictures; each is a row of a file, and none is made twice."""

    def __init__(self, world: World, file: Path, features: Path) -> None:
        self._world, self._file, self._features = world, file, features
        self._known: dict[tuple[str, ...], float] = {}
        if file.exists():
            with file.open(encoding="utf-8") as stream:
                for row in csv.DictReader(stream):
                    self._known[tuple(row[name] for name in TRIAL_COLUMNS[:-1])] = float(row["accuracy"])
        self._tables = functools.lru_cache(maxsize=1)(self._read)

    def best(self, epsilon: float, count: int) -> tuple[Setting, float]:
        some = sorted(drawn(self._world, epsilon, count), key=lambda one: (one.features, one.ridge))
        first = [self._accuracy(setting, epsilon, 0.5, AGAIN[0]) for setting in some]
        again = [some[place] for place in np.argsort(first)[-BEST:]]
        means = [statistics.mean(self._accuracy(one, epsilon, 1.0, seed) for seed in AGAIN) for one in again]
        return again[means.index(max(means))], max(means)

    def _accuracy(self, setting: Setting, epsilon: float, share: float, noise_seed: int) -> float:
        row = {"dataset": self._world.dataset, "epsilon": epsilon, "pictures": share, "noise_seed": noise_seed}
        key = tuple(str("" if value is None else value) for value in (row | asdict(setting)).values())
        if key not in self._known:
            inputs, targets, judged, labels = self._tables(setting.features, setting.ridge)
            count = int(share * len(targets))
            sigma = against_server(epsilon, DELTA, setting.rounds)
            noise = sigma * setting.clip_norm / (len(targets) + len(labels))  # of a mean over the whole federation
            weights = trained(inputs[:count], targets[:count], setting, noise, noise_seed)
            self._known[key] = float(((judged @ weights).argmax(1) == labels).float().mean())
            self._write([*key, f"{self._known[key]:.4f}"])
        return self._known[key]

    def _read(self, count: int, ridge: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        kept = Features(self._features, count, ridge)
        clients, judge = kept.records("clients"), kept.records("judge")
        order = torch.from_numpy(np.random.default_rng(0).permutation(len(clients.targets)))
        inputs, targets = _with_one(clients.inputs)[order], clients.targets[order]
        if self._world.dataset not in ONE_FRONT_END:
            return inputs, targets, _with_one(judge.inputs), judge.targets
        held = len(order) // 10  # the judge of this file are the test pictures: they stay unread
        return inputs[held:], targets[held:], inputs[:held], targets[:held]

    def _write(self, row: list[str]) -> None:
        fresh = not self._file.exists()
        with self._file.open("a", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream, lineterminator="\n")
            if fresh:
                writer.writerow(TRIAL_COLUMNS)
            writer.writerow(row)
        print(*row, flush=True)


def _with_one(inputs: Any) -> Tensor:
    """The features and the input of the bias."""
    return torch.cat([inputs, torch.ones(len(inputs), 1)], dim=1)


def trained(inputs: Tensor, targets: Tensor, setting: Setting, noise: float, seed: int) -> Tensor:
    """The layer (inputs, classes) of a run with continuous noise of this scale on means: `Average`, `Preconditioned`
    and `Scheduled` in a few lines, for records of one length."""
    rng = torch.Generator().manual_seed(seed)
    count, size = inputs.shape
    lengths = torch.linalg.vector_norm(inputs, dim=1, keepdim=True)
    hot = functional.one_hot(targets, CLASSES).float()
    weights, velocity = torch.zeros(size, CLASSES), torch.zeros(size, CLASSES)
    moments, direction = torch.zeros(size, size), torch.ones(size)
    total = torch.zeros_like(weights)
    for number in range(1, setting.rounds + 1):
        residual = hot - torch.softmax(inputs @ weights, 1)
        norms = torch.linalg.vector_norm(residual, dim=1, keepdim=True) * lengths
        residual *= (setting.clip_norm / norms.clamp(min=1e-12)).clamp(max=1)
        change = inputs.T @ residual / count + noise * torch.randn(size, CLASSES, generator=rng)
        velocity = setting.momentum * velocity + change
        step = velocity
        if setting.precondition is not None:
            moments += change @ change.T
            for _ in range(20):  # the largest eigenvalue, by powers
                direction = functional.normalize(moments @ direction, dim=0)
            curvature = moments / (setting.precondition * float(direction @ moments @ direction))
            curvature.diagonal().add_(1.0)
            step = torch.cholesky_solve(velocity, torch.linalg.cholesky(curvature))
        weights = weights + setting.server_lr * step
        if number > setting.rounds - setting.average_last:
            total += weights
    return total / setting.average_last


def run(setting: Setting, epsilon: float, seed: int, owners: int, features: Path) -> dict[str, Any]:
    """All training pictures, split among the owners, by `laconic.run`."""
    started = time.perf_counter()
    kept = Features(features, setting.features, setting.ridge)
    clients = kept.records("clients")
    count = len(clients.targets)
    shares = np.array_split(np.random.default_rng(seed).permutation(count), owners)
    scheme = laconic.schemes.fl_std_dp(
        unit="record",
        num_units=count,
        clip_norm=setting.clip_norm,
        momentum=setting.momentum,
        server_lr=setting.server_lr,
        **({} if setting.precondition is None else {"precondition": setting.precondition, "outputs": CLASSES}),
    )
    if setting.average_last > 1:
        rule = Scheduled(rule=scheme.rule, rounds=setting.rounds, average_last=setting.average_last)
        scheme = replace(scheme, rule=rule)
    model = build_model(
        "logistic", input_shape=(setting.features,), num_classes=CLASSES, seed=0, options={"zero": True}
    )
    result = laconic.run(
        scheme,
        model=model,
        clients=PooledPopulation(clients, shares),
        test=kept.records("judge"),
        sampling_rate=1.0,
        rounds=setting.rounds,
        epsilon=epsilon,
        delta=DELTA,
        seed=seed,
        device="cpu",
        eval_every=setting.rounds,
        progress=False,
    )
    return {
        "accuracy": round(result.last["accuracy"], 4),
        "server_epsilon": round(result.last["participant_epsilon"], 4),
        "outsider_epsilon": round(result.last["epsilon"], 4),
        "sigma": result.statement["mechanism"]["noise"]["noise_multiplier"],
        "bytes_up": result.ledger["bytes_up_per_client_and_round"] * setting.rounds,
        "seconds": round(time.perf_counter() - started, 1),
        "digest": digest(result.model),
    }


def digest(model: torch.nn.Module) -> str:
    """Of the weights, to see that two runs have the same bits."""
    import hashlib

    flat = torch.cat([value.detach().cpu().flatten() for value in model.state_dict().values()])
    return hashlib.sha256(flat.numpy().tobytes()).hexdigest()[:16]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", nargs="*", default=list(WORLDS), choices=list(WORLDS))
    parser.add_argument("--epsilon", type=float, nargs="*", default=EPSILONS)
    parser.add_argument("--settings", type=int, default=DRAWN, help=f"drawn for each epsilon  [{DRAWN}]")
    parser.add_argument("--owners", type=int, default=OWNERS, help="who hold the pictures  [10]")
    parser.add_argument("--features", type=Path, default=Path("features"), help="folder of features  [features]")
    parser.add_argument("--data-dir", help="where the files of the data set are")
    parser.add_argument("--out", type=Path, default=OUT, help=f"folder of the results  [{OUT}]")
    asked = parser.parse_args(arguments)
    asked.features.mkdir(parents=True, exist_ok=True)
    asked.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    for name in asked.dataset:
        _one(WORLDS[name], asked)


def _one(world: World, asked: argparse.Namespace) -> None:
    file = asked.out / f"{world.dataset}-runs.csv"
    known = set()
    if file.exists():
        with file.open(encoding="utf-8") as stream:
            known = {(row["epsilon"], row["seed"], row["owners"]) for row in csv.DictReader(stream)}

    def features(seed: int) -> Path:
        made_from = TESTED[0] if world.dataset in ONE_FRONT_END else seed
        return write_features(world, made_from, asked.features, asked.data_dir)

    trials = Trials(world, asked.out / f"{world.dataset}-trials.csv", features(CHOOSING))
    for epsilon in asked.epsilon:
        setting, held_out = trials.best(epsilon, asked.settings)
        for seed in TESTED if asked.owners == OWNERS else TESTED[:1]:
            if (str(epsilon), str(seed), str(asked.owners)) in known:
                continue
            found = run(setting, epsilon, seed, asked.owners, features(seed))
            key = {"dataset": world.dataset, "epsilon": epsilon, "seed": seed, "owners": asked.owners}
            _keep(file, key | asdict(setting) | {"held_out": round(held_out, 4)} | found)


def _keep(file: Path, row: dict[str, Any]) -> None:
    fresh = not file.exists()
    with file.open("a", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, RUN_COLUMNS, lineterminator="\n")
        if fresh:
            writer.writeheader()
        writer.writerow(row)
    print(row, flush=True)


if __name__ == "__main__":
    main()
