"""Accuracy against ε and against bytes on Fashion-MNIST, with the scattering front end and a linear head.

    python benchmarks/frontier.py --out FOLDER [--data-dir DIR] [--workers 16] [--quick]

6,000 clients of 10 pictures, 100 a round on average (Poisson), δ = 1e-5, the tight accountant. Everything is chosen on
held-out clients: a tenth of the training pictures belongs to no client while settings are compared, one option after
another. Then three other seeds are run with all 6,000 clients, and the test pictures are looked at once, after the
last round.

Features are computed once per seed, on the GPU if there is one, and shared by all runs through a file. A head is so
small that a GPU would only start kernels, so runs are trained by as many processes of one thread as there are
processors. Every finished run is a row of FOLDER/runs.csv, and what is there is not run again. --quick does the same
with the digits inside scikit-learn, to see that it works.
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing
import os
import statistics
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import laconic
from laconic.catalogue import SCHEMES, build_scheme
from laconic.data.population import PooledPopulation, Records, gather
from laconic.features.blocks import in_blocks
from laconic.features.front_end import ScatteringFrontEnd
from laconic.features.projection import leading_directions, scales
from laconic.models.registry import build_model
from laconic.runtime.config import DataSection
from laconic.runtime.datasets import load_federation, public_images
from laconic.runtime.devices import choose_device
from laconic.streams import Streams

EPSILONS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0)
SEEDS = (1, 2, 3)
CHOOSING = 0
"""The seed of the runs that are compared on held-out clients."""
HOLDOUT = 0.1
BUDGET = 110_880
"""Bytes each way that FL-TOP-DP costs a client on average, by the papers' formula: r = 0.5 %, 200 rounds."""


@dataclass(frozen=True)
class World:
    """The federation."""

    dataset: str = "fashion-mnist"
    public: str = "dead-leaves"
    clients: int = 6000
    cohort: int = 100
    images: int = 10_000
    most_features: int = 830
    rounds: int = 200

    def shape(self, share: float) -> dict[str, Any]:
        """Fewer features and more rounds, or the other way round, at the same number of bytes."""
        return {"features": int(self.most_features * share), "rounds": round(self.rounds / share)}


QUICK = World(dataset="digits", clients=140, cohort=20, images=300, most_features=60, rounds=5)


@dataclass(frozen=True)
class Setting:
    """Everything that is chosen.

    Where every update is clipped only the product of server_lr and clip_norm matters, so `reach` is given instead of
    server_lr: how far the weights could go in all rounds together, server_lr·clip_norm·rounds/(1 − momentum).
    """

    scheme: str = "fl-std-dp"
    features: int = 830
    mirror: bool = True
    ridge: float = 0.01
    rounds: int = 200
    local_lr: float = 0.05
    local_steps: int = 10
    clip_norm: float = 0.05
    reach: float = 60.0
    momentum: float = 0.9
    ratio: float | None = None
    sign_step: float | None = None

    @property
    def server_lr(self) -> float:
        return self.reach * (1 - self.momentum) / self.clip_norm / self.rounds

    def options(self, sigma: float) -> dict[str, Any]:
        """As the scheme takes them."""
        values = asdict(self) | {"server_lr": self.server_lr, "noise_multiplier": sigma, "batch_size": 10}
        return {k: v for k, v in values.items() if k in SCHEMES[self.scheme].options and v is not None}

    def command(self, world: World, epsilon: float, seed: int) -> str:
        """The run on the command line."""
        flags = {"dataset": world.dataset, "public-dataset": world.public, "num-clients": world.clients}
        flags |= {"sampling-rate": f"{world.cohort}/{world.clients}", "epsilon": f"{epsilon:g}", "seed": seed}
        flags |= {"front-end": "scattering", "front-end-projection": "public", "front-end-features": self.features}
        flags |= {"front-end-ridge": self.ridge, "front-end-mirror": str(self.mirror).lower(), "rounds": self.rounds}
        flags |= {k.replace("_", "-"): v for k, v in self.options(0.0).items() if k != "noise_multiplier"}
        flags |= {"eval-every": self.rounds}
        return f"laconic run {self.scheme} " + " ".join(f"--{flag} {value}" for flag, value in flags.items())


@dataclass(frozen=True)
class Job:
    """One run; a seed of `SEEDS` is judged by the test pictures, another one by held-out clients."""

    world: World
    setting: Setting
    epsilon: float
    seed: int
    features: Path
    sigma: float

    @property
    def key(self) -> tuple[str, ...]:
        values = (self.epsilon, self.seed, *asdict(self.setting).values())
        return tuple("" if value is None else str(value) for value in values)


MEASURED = ["judged_on", "accuracy", "sigma", "server_lr", "server_epsilon"]
MEASURED += ["bytes_up", "bytes_down", "formula_up", "formula_down", "seconds"]
CHOSEN = ["epsilon", "seed", *(field.name for field in fields(Setting))]


def run(job: Job) -> dict[str, Any]:
    """Train one head and judge it after the last round."""
    torch.set_num_threads(1)
    started = time.perf_counter()
    s, data = job.setting, torch.load(job.features, mmap=True, weights_only=True)
    divisors = scales(data["values"], s.ridge)[: s.features]

    def seen(who: str) -> Records:
        components = data[f"{who}_inputs"][:, : s.features] / divisors
        lengths = torch.linalg.vector_norm(components, dim=1, keepdim=True)
        return Records(components.mul_(s.features**0.5 / lengths), data[f"{who}_targets"])

    rows = np.split(np.arange(int(data["sizes"].sum())), np.cumsum(data["sizes"].numpy())[:-1])
    result = laconic.run(
        build_scheme(s.scheme, **s.options(job.sigma)),
        model=build_model("logistic", input_shape=(s.features,), num_classes=10, seed=0, options={"zero": True}),
        clients=PooledPopulation(seen("client"), rows),
        test=seen("judge"),
        public=seen("public"),
        sampling_rate=job.world.cohort / len(rows),
        rounds=s.rounds,
        delta=1e-5,
        seed=job.seed,
        eval_every=s.rounds,
    )
    ledger = result.ledger
    return {
        **dict(zip(CHOSEN, job.key, strict=True)),
        "judged_on": "test" if job.seed in SEEDS else "held-out",
        "accuracy": round(result.last["accuracy"], 4),
        "sigma": job.sigma,
        "server_lr": f"{s.server_lr:.4g}",
        "server_epsilon": round(result.last["participant_epsilon"], 3),
        "bytes_up": round(ledger["bytes_up_per_client_in_all"]),
        "bytes_down": round(ledger["bytes_down_per_client_in_all"]),
        "formula_up": round(ledger["formula_bytes_up_per_client_in_all"]),
        "formula_down": round(ledger["formula_bytes_down_per_client_in_all"]),
        "seconds": round(time.perf_counter() - started, 1),
    }


def sigma_for(world: World, epsilon: float, rounds: int) -> float:
    """σ of the promise, for all clients, also where a tenth of them is held out."""
    sampler = laconic.Poisson(sampling_rate=world.cohort / world.clients)
    return laconic.calibrate_noise(
        epsilon=epsilon, delta=1e-5, rounds=rounds, sampler=sampler, num_clients=world.clients
    )


def write_features(world: World, mirror: bool, seed: int, data_dir: str | None, path: Path) -> None:
    """The principal components of everything, not yet whitened: a file that serves any number of them and any ridge."""
    streams, device = Streams(seed), choose_device("auto")
    held = 0.0 if seed in SEEDS else HOLDOUT
    section = DataSection(
        dataset=world.dataset,
        data_dir=data_dir,
        num_clients=round(world.clients * (1 - held)),
        public_dataset=world.public,
    )
    federation = load_federation(section, holdout=held, streams=streams)
    front_end = ScatteringFrontEnd(federation.input_shape, about={"mirror": mirror})
    images, _ = public_images(section, federation, world.images, streams)
    judge = federation.holdout if held else federation.test
    assert images is not None and judge is not None and federation.public is not None
    everyone = gather(federation.population, list(range(federation.population.num_clients)), torch.device("cpu"))
    real = torch.arange(everyone.inputs.shape[1]) < torch.from_numpy(everyone.sizes)[:, None]
    clients = Records(everyone.inputs[real], everyone.targets[real])
    mean, values, vectors = leading_directions(in_blocks(front_end, images, device).flatten(1), world.most_features)
    tensors = {"values": values.cpu(), "sizes": torch.from_numpy(everyone.sizes)}
    for who, records in (("client", clients), ("judge", judge), ("public", federation.public)):
        parts = [
            (in_blocks(front_end, block, device).flatten(1) - mean) @ vectors for block in records.inputs.split(8192)
        ]
        tensors |= {f"{who}_inputs": torch.cat(parts).cpu(), f"{who}_targets": records.targets}
    torch.save(tensors, path)


class Frontier:
    """The runs so far, and the means to make more."""

    def __init__(self, world: World, out: Path, data_dir: str | None, pool: Any) -> None:
        self.world, self.out, self.data_dir, self.pool = world, out, data_dir, pool
        self.file = out / "runs.csv"
        self.rows: dict[tuple[str, ...], dict[str, Any]] = {}
        self.sigmas: dict[tuple[float, int], float] = {}
        out.mkdir(parents=True, exist_ok=True)
        if self.file.exists():
            with self.file.open(newline="") as stream:
                self.rows = {tuple(row[name] for name in CHOSEN): row for row in csv.DictReader(stream)}

    def accuracies(self, trials: Iterable[tuple[Setting, float, int]]) -> list[float]:
        """The accuracy of every (setting, ε, seed), run by the pool where it is not known yet."""
        wanted = list(trials)
        promises = sorted({(epsilon, s.rounds) for s, epsilon, _ in wanted} - set(self.sigmas))
        found = self.pool.starmap(sigma_for, [(self.world, *promise) for promise in promises])
        self.sigmas |= dict(zip(promises, found, strict=True))
        jobs = [
            Job(self.world, s, epsilon, seed, self.features(s.mirror, seed), self.sigmas[epsilon, s.rounds])
            for s, epsilon, seed in wanted
        ]
        missing = {job.key: job for job in jobs if job.key not in self.rows}
        started, fresh = time.perf_counter(), not self.file.exists()
        with self.file.open("a", newline="") as stream:
            writer = csv.DictWriter(stream, CHOSEN + MEASURED)
            if fresh:
                writer.writeheader()
            for row in self.pool.imap_unordered(run, missing.values()):
                self.rows[tuple(row[name] for name in CHOSEN)] = row
                writer.writerow(row)
                stream.flush()
        print(f"  {len(missing)} runs in {time.perf_counter() - started:.0f} s", flush=True)
        return [float(self.rows[job.key]["accuracy"]) for job in jobs]

    def features(self, mirror: bool, seed: int) -> Path:
        path = self.out / f"features-{mirror}-{seed}.pt"
        if not path.exists():
            started = time.perf_counter()
            write_features(self.world, mirror, seed, self.data_dir, path)
            print(f"  features of seed {seed} in {time.perf_counter() - started:.0f} s", flush=True)
        return path

    def better(self, best: dict[Any, Setting], changes: list[dict[str, Any]]) -> dict[Any, Setting]:
        """For every key the setting itself or a changed one, whichever held-out clients prefer."""
        candidates = {key: [s, *(replace(s, **c) for c in changes)] for key, s in best.items()}
        trials = [(s, epsilon_of(key), CHOOSING) for key, options in candidates.items() for s in options]
        found = iter(self.accuracies(trials))
        chosen = {}
        for key, options in candidates.items():
            scores = [next(found) for _ in options]
            chosen[key] = options[int(np.argmax(scores))]
            print(f"  {key}: {max(scores):.4f} {chosen[key]}", flush=True)
        return chosen


def epsilon_of(key: Any) -> float:
    return float(key[0] if isinstance(key, tuple) else key)


REACH = {0.1: 12.0, 0.25: 30.0, 0.5: 50.0, 1.0: 80.0, 2.0: 110.0, 4.0: 150.0}
"""Where the search starts."""


def against_epsilon(frontier: Frontier) -> dict[float, Setting]:
    """The best setting for every ε within the byte budget."""
    shape = frontier.world.shape
    best: dict[Any, Setting] = {e: replace(Setting(), reach=REACH[e], **shape(1)) for e in EPSILONS}
    best = frontier.better(best, [shape(2 / 3), shape(1 / 2)])
    for _ in range(2):
        best = scaled(frontier, best)
        best = frontier.better(best, [{"local_steps": 30}, {"local_lr": 0.02}, {"local_lr": 0.1}])
        best = frontier.better(best, [{"clip_norm": 0.1}, {"clip_norm": 0.2}, {"momentum": 0.5}])
        best = frontier.better(best, [{"ridge": r} for r in (0.001, 0.003, 0.03)] + [{"mirror": False}])
    return best


def scaled(frontier: Frontier, best: dict[Any, Setting]) -> dict[Any, Setting]:
    """The same settings with the step that held-out clients prefer: a vote's sign_step, else the reach."""
    factors = (0.7, 1.0, 1.4)

    def steps(setting: Setting) -> list[Setting]:
        if setting.sign_step is not None:
            return [replace(setting, sign_step=setting.sign_step * factor) for factor in factors]
        return [replace(setting, reach=setting.reach * factor) for factor in factors]

    trials = [(setting, epsilon_of(key), CHOOSING) for key, s in best.items() for setting in steps(s)]
    found = iter(frontier.accuracies(trials))
    return {key: steps(s)[int(np.argmax([next(found) for _ in factors]))] for key, s in best.items()}


def against_bytes(frontier: Frontier, start: Setting, epsilon: float = 1.0) -> dict[Any, Setting]:
    """At one ε: fewer features, and codecs on top of the head."""
    most = frontier.world.most_features
    base = replace(start, **frontier.world.shape(1))
    options: dict[str, Setting] = {
        f"{share}": replace(base, features=max(10, most // share)) for share in (2, 4, 8, 16)
    }
    options |= {f"fl-top {r}": replace(base, scheme="fl-top-dp", ratio=r) for r in (0.5, 0.25)}
    options |= {f"fl-freq {r}": replace(base, scheme="fl-freq-dp", ratio=r) for r in (0.5, 0.25)}
    options |= {"fl-sign": replace(base, scheme="fl-sign-dp", sign_step=0.005)}
    best: dict[Any, Setting] = {(epsilon, name): setting for name, setting in options.items()}
    return scaled(frontier, scaled(frontier, best))


def report(frontier: Frontier, best: dict[Any, Setting]) -> list[dict[str, Any]]:
    """Three seeds of every setting on the test pictures, as rows of a table."""
    frontier.accuracies((s, epsilon_of(key), seed) for key, s in best.items() for seed in (CHOOSING, *SEEDS))
    table = []
    for key, setting in best.items():
        epsilon = epsilon_of(key)
        jobs = [Job(frontier.world, setting, epsilon, seed, Path(), 0.0) for seed in (CHOOSING, *SEEDS)]
        held, *tested = (frontier.rows[job.key] for job in jobs)
        accuracies = [float(row["accuracy"]) for row in tested]
        table.append(
            {
                "epsilon": epsilon,
                "scheme": setting.scheme,
                "features": setting.features,
                "rounds": setting.rounds,
                "held_out": held["accuracy"],
                "test": round(statistics.mean(accuracies), 4),
                "deviation": round(statistics.stdev(accuracies), 4),
                "seeds": " ".join(f"{a:.4f}" for a in accuracies),
                "server_epsilon": max(float(row["server_epsilon"]) for row in tested),
                **{k: tested[0][k] for k in ("bytes_up", "bytes_down", "formula_up", "formula_down")},
                "command": setting.command(frontier.world, epsilon, SEEDS[0]),
            }
        )
    return table


def plot(table: list[dict[str, Any]], path: Path) -> None:
    """Accuracy against ε (the first setting of each), and against bytes up at ε = 1."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.2), sharey=True)
    first = {row["epsilon"]: row for row in reversed(table)}
    line = sorted(first.values(), key=lambda row: row["epsilon"])
    left.errorbar([r["epsilon"] for r in line], [r["test"] for r in line], [r["deviation"] for r in line], marker="o")
    left.axhline(0.81, color="grey", linestyle=":", label="FL-TOP-DP at ε = 1, as published")
    left.set(xscale="log", xlabel="ε against outsiders (δ = 1e-5)", ylabel="test accuracy, mean of three seeds")
    left.set_xticks([r["epsilon"] for r in line], [f"{r['epsilon']:g}" for r in line])
    for scheme in dict.fromkeys(row["scheme"] for row in table):
        rows = [row for row in table if row["scheme"] == scheme and row["epsilon"] == 1]
        right.plot([int(r["bytes_up"]) / 1000 for r in rows], [r["test"] for r in rows], "o", label=scheme)
    right.set(xscale="log", xlabel="kB up per client over the whole run, ε = 1")
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data-dir")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    started = time.perf_counter()
    with multiprocessing.get_context("spawn").Pool(chosen.workers) as pool:
        frontier = Frontier(QUICK if chosen.quick else World(), chosen.out, chosen.data_dir, pool)
        best: dict[Any, Setting] = dict(against_epsilon(frontier))
        best |= against_bytes(frontier, best[1.0])
        table = report(frontier, best)
    with (chosen.out / "frontier.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, table[0])
        writer.writeheader()
        writer.writerows(table)
    plot(table, chosen.out / "frontier.png")
    for row in table:
        print({k: v for k, v in row.items() if k != "command"})
    print(f"{len(frontier.rows)} runs, {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
