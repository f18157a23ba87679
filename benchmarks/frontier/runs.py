"""Runs as rows of a CSV file: every finished run is written at once, and none is made twice."""

from __future__ import annotations

import csv
import functools
import multiprocessing
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch

import laconic
from benchmarks.frontier.features import Features, leaves_of, load_data, write_features
from benchmarks.frontier.settings import CHOOSING_SEEDS, DELTA, TEST_SEEDS, Setting, World, noise_of
from laconic.models.registry import build_model
from laconic.settings.data.divide import DEAD_LEAVES

CHOSEN = ["epsilon", "seed", *(field.name for field in fields(Setting))]
MEASURED = ["judged_on", "noise", "accuracy", "released_epsilon", "server_epsilon", "sigma", "server_lr"]
MEASURED += ["bytes_up", "bytes_down", "bytes_once", "device", "seconds"]
Row = dict[str, str]
Trial = tuple[Setting, float, int]
"""A setting, the ε that it must keep, and a seed."""

_device = "cpu"
"""Of this process."""


@dataclass(frozen=True)
class Job:
    """One run, with all that a process needs for it."""

    world: World
    setting: Setting
    epsilon: float
    seed: int
    sigma: float
    features: Path


def key_of(trial: Trial) -> tuple[str, ...]:
    setting, epsilon, seed = trial
    return tuple("" if value is None else str(value) for value in (epsilon, seed, *asdict(setting).values()))


def train(job: Job) -> Row:
    """Train one head and judge it after the last round."""
    started, s, testing = time.perf_counter(), job.setting, job.seed in TEST_SEEDS
    features = Features(job.features, s.features, s.ridge)
    clients, scheme = features.clients(), s.build(job.sigma, noise_of(job.seed))
    result = laconic.run(
        scheme,
        model=build_model("logistic", input_shape=(s.features,), num_classes=10, seed=0, options={"zero": True}),
        clients=clients,
        test=features.records("judge"),
        public=features.records("public"),
        # With fewer clients the cohort stays as large: as much signal and as much noise as all clients would have.
        sampling_rate=job.world.cohort / clients.num_clients,
        rounds=s.rounds,
        delta=DELTA,
        epsilon=job.epsilon if testing else None,
        seed=job.seed,
        device=_device,
        eval_every=s.rounds,
    )
    assert result.last["round"] == s.rounds  # the budget lasts: σ is calibrated to it
    ledger, size = result.ledger, clients.num_clients
    measured = {
        "judged_on": "test" if testing else "held-out",
        "noise": type(scheme.noise).__name__,
        "accuracy": round(result.last["accuracy"], 4),
        "released_epsilon": round(result.last["epsilon"], 4) if testing else "",
        "server_epsilon": round(result.last["participant_epsilon"], 2) if testing else "",
        "sigma": job.sigma,
        "server_lr": f"{s.server_lr:.6g}",
        "bytes_up": round(ledger["bytes_up"] / size) if testing else "",
        "bytes_down": round(ledger["bytes_down"] / size) if testing else "",
        "bytes_once": round(ledger["bytes_once"] / size) if testing else "",
        "device": _device,
        "seconds": round(time.perf_counter() - started, 1),
    }
    chosen = dict(zip(CHOSEN, key_of((s, job.epsilon, job.seed)), strict=True))
    return chosen | {name: str(value) for name, value in measured.items()}


def noise_for(world: World, setting: Setting, epsilon: float, noise: str) -> float:
    """σ of the promise for the whole federation, also where a tenth of the clients is held out."""
    scheme, size = setting.build(1.0, noise), 10 * (setting.features + 1)
    return laconic.calibrate_noise(
        epsilon=epsilon,
        delta=DELTA,
        rounds=setting.rounds,
        sampler=laconic.Poisson(sampling_rate=world.rate),
        num_clients=world.clients,
        noise=lambda sigma: setting.build(sigma, noise).noise,
        sensitivity=scheme.clip.sensitivity(scheme.codec.code_size(size)),
    )


class Runs:
    """All runs so far, and the processes that make more. To be used in a `with` block."""

    def __init__(
        self,
        world: World,
        out: Path,
        *,
        features: Path,
        data_dir: str | None,
        device: str,
        workers: int,
        gpu_workers: int,
    ) -> None:
        self.world, self._features = world, features
        self._data_dir, self._device = data_dir, torch.device(device)
        for folder in (out, features):
            folder.mkdir(parents=True, exist_ok=True)
        self._file = out / "runs.csv"
        self.rows: dict[tuple[str, ...], Row] = {}
        known = read_rows(self._file)
        self._file.unlink(missing_ok=True)  # and written anew, without a last row that a kill cut short
        self._keep(known)
        self._sigmas: dict[tuple[Any, ...], float] = {}
        self._pool: Any = None
        if workers > 0:
            context = multiprocessing.get_context("spawn")
            on_gpu = context.Value("i", gpu_workers if self._device.type == "cuda" else 0)
            self._pool = context.Pool(workers, _begin, (on_gpu,))

    def __enter__(self) -> Runs:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: Any, trace: TracebackType | None) -> None:
        if self._pool is not None:
            self._pool.terminate()
            self._pool.join()

    def accuracies(self, trials: Iterable[Trial]) -> list[float]:
        """The accuracy of every trial; those that are not known yet are run."""
        wanted = list(trials)
        missing = list({key_of(trial): trial for trial in wanted if key_of(trial) not in self.rows}.values())
        started = time.perf_counter()
        self._find_sigmas(missing)
        self._make_features({(s.public, s.mirror, seed) for s, _, seed in missing})
        jobs = [
            Job(
                self.world,
                s,
                epsilon,
                seed,
                self._sigmas[_noise_key(s, epsilon, seed)],
                self._path(s.public, s.mirror, seed),
            )
            for s, epsilon, seed in sorted(missing, key=lambda trial: -trial[0].rounds * trial[0].features)
        ]
        for row in self._map(train, jobs):
            self._keep([row])
        if missing:
            print(f"  {len(missing)} runs in {time.perf_counter() - started:.0f} s", flush=True)
        return [float(self.rows[key_of(trial)]["accuracy"]) for trial in wanted]

    def _keep(self, rows: list[Row]) -> None:
        fresh = not self._file.exists()
        with self._file.open("a", newline="", encoding="utf-8") as stream:
            writer = csv.DictWriter(stream, CHOSEN + MEASURED, lineterminator="\n")
            if fresh:
                writer.writeheader()
            writer.writerows(rows)
        self.rows |= {key_in(row): row for row in rows}

    def _map(self, function: Any, jobs: list[Any]) -> Iterator[Any]:
        return map(function, jobs) if self._pool is None else self._pool.imap_unordered(function, jobs)

    def _find_sigmas(self, trials: list[Trial]) -> None:
        wanted = {_noise_key(s, epsilon, seed): (self.world, s, epsilon, noise_of(seed)) for s, epsilon, seed in trials}
        new = [(key, what) for key, what in wanted.items() if key not in self._sigmas]
        for key, sigma in self._map(_keyed_noise, new):
            self._sigmas[key] = sigma

    def _path(self, public: str, mirror: bool, seed: int) -> Path:
        """All seeds that choose share one division into clients, and one file."""
        return self._features / f"{self.world.dataset}-{public}-{mirror}-{_data_seed(seed)}.pt"

    def _make_features(self, wanted: set[tuple[str, bool, int]]) -> None:
        kinds = {(public, mirror, _data_seed(seed)) for public, mirror, seed in wanted}
        new = sorted(kind for kind in kinds if not self._path(*kind).exists())
        seeds = sorted({seed for public, _, seed in new if public == DEAD_LEAVES})
        leaves: dict[int, np.ndarray] = {}
        if seeds:
            shape = load_data(self.world, DEAD_LEAVES, seeds[0], self._data_dir)[0].input_shape
            make = functools.partial(_seeded_leaves, self.world, shape)
            leaves = dict(self._map(make, seeds))
        for public, mirror, seed in new:
            started = time.perf_counter()
            write_features(
                self._path(public, mirror, seed),
                self.world,
                public=public,
                mirror=mirror,
                seed=seed,
                data_dir=self._data_dir,
                device=self._device,
                images=torch.from_numpy(leaves[seed]) if public == DEAD_LEAVES else None,
            )
            print(f"  features ({public}, seed {seed}) in {time.perf_counter() - started:.0f} s", flush=True)


def read_rows(file: Path) -> list[Row]:
    if not file.exists():
        return []
    with file.open(newline="", encoding="utf-8") as stream:
        return [row for row in csv.DictReader(stream) if row.get("seconds") and set(row) == {*CHOSEN, *MEASURED}]


def key_in(row: Row) -> tuple[str, ...]:
    return tuple(row[name] for name in CHOSEN)


def _begin(on_gpu: Any) -> None:
    """A process of the pool: the first few train on the GPU, all others with one thread on a core of their own."""
    global _device
    torch.set_num_threads(1)
    with on_gpu.get_lock():
        if on_gpu.value > 0:
            on_gpu.value -= 1
            _device = "cuda"


def _data_seed(seed: int) -> int:
    return seed if seed in TEST_SEEDS else CHOOSING_SEEDS[0]


def _noise_key(setting: Setting, epsilon: float, seed: int) -> tuple[Any, ...]:
    """What σ depends on; noise on integers also looks at the code."""
    s, continuous = setting, noise_of(seed) == "continuous" and "sign" not in setting.scheme
    code = () if continuous else (s.scheme, s.features, s.clip_norm, s.ratio)
    return (epsilon, setting.rounds, *code)


def _keyed_noise(what: tuple[tuple[Any, ...], tuple[World, Setting, float, str]]) -> tuple[tuple[Any, ...], float]:
    return what[0], noise_for(*what[1])


def _seeded_leaves(world: World, shape: tuple[int, ...], seed: int) -> tuple[int, np.ndarray]:
    return seed, leaves_of(world, seed, shape)
