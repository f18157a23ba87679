"""Small federations: 5, 20 and 100 hospitals, all of them in every round. What privacy costs them, in AUROC.

    python -m benchmarks.small_federations [--out small-federations.json]   chooses settings, then tests; resumes
    python -m benchmarks.small_federations --write                          writes the page from the results

The data are diabetes130 (death in hospital). They name no hospital, so hospitals are virtual: random patients with
all their records. Test patients (a fifth) are the same in every run and no hospital has any of them. Settings are
chosen on held-out patients (a fifth of the others). At patient level they are drawn at random from a grid for every
ε, judged with one seed, and the best of them with two more. They are chosen for five hospitals and taken for all: the
sum of all patients does not depend on who holds which. At hospital and record level they are chosen at ε = 4 for all ε,
as the mean of two seeds and by one. Then each choice is run once for each of three other seeds, which draw the
hospitals, the noise and the batches anew, and is judged on the test patients.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import random
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.machine import machine
from laconic.data.federated import FederatedData
from laconic.data.population import PooledPopulation
from laconic.runner.run import Run
from laconic.settings.build import settle
from laconic.settings.config import RunConfig
from laconic.settings.data.datasets import load_federation
from laconic.streams import Streams

HOSPITALS = (5, 20, 100)
EPSILONS = {"patient": (0.25, 1.0, 2.0, 4.0), "hospital": (1.0, 4.0, 8.0), "record": (1.0, 4.0, 8.0)}
CHOSEN_AT = 4.0
TRIED, TESTED = {"hospital": (100, 101), "record": (100,), "patient": (100,)}, (0, 1, 2)
AGAIN, BEST, CHOSEN_WITH = (101, 102, 103, 104, 105), 6, 5
"""At patient level: the seeds with which the best settings are judged again, how many, and for how many hospitals. The
first seed, by which they are the best, does not count again: its noise was kind to them."""
PATIENTS = {True: 45_000, False: 57_000}
"""About how many patients all hospitals have: while settings are chosen, and in the test runs. Publicly known."""
PUBLIC = 750
PREVALENCE = 0.016
DELTAS = {"hospital": 1e-5, "record": 1e-6, "patient": 1e-6}
RESULTS = Path("docs/results/small-federations/results.json")
_FIXED = ("test", "holdout", "public records")


class SameTest(Streams):
    """Streams of a seed, but the same test, held-out and public patients for every seed."""

    def numpy(self, *path: str | int) -> np.random.Generator:
        return Streams(0).numpy(*path) if path[0] in _FIXED else super().numpy(*path)


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way to train: a level (whose privacy), whether records are set aside as public, and settings to try."""

    level: str
    public: bool
    settings: tuple[dict[str, Any], ...]

    @property
    def name(self) -> str:
        return self.level + (f", {PUBLIC} public records" if self.public else "")


_ALL = {"model.zero": True}
"""Weights start at 0: a random start would be noise that no round removes."""


def _hospital_level(
    front_end: dict[str, Any], steps: int, rate: float, paces: tuple[tuple[int, float], ...]
) -> Iterator[dict[str, Any]]:
    for rounds, clip in paces:
        yield front_end | {
            "scheme.name": "fl-std-dp",
            "scheme.balance": "downsample",
            "scheme.batch_size": "all",
            "scheme.local_steps": steps,
            "scheme.local_lr": rate,
            "scheme.clip_norm": clip,
            "run.rounds": rounds,
        }


def _record_level(front_end: dict[str, Any], rates: tuple[float, ...]) -> Iterator[dict[str, Any]]:
    for rate in rates:
        for rounds in (16, 64):
            yield front_end | {
                "scheme.name": "fl-std-record-dp",
                "scheme.record_rate": 1.0,
                "scheme.prevalence": PREVALENCE,
                "scheme.clip_norm": 1.0,
                "scheme.local_lr": rate,
                "scheme.noise": "integer",
                "run.rounds": rounds,
            }


@dataclass(frozen=True, kw_only=True)
class Grid:
    """What settings at patient level are drawn from.

    Most patients survive, so their gradients get a public weight of 1/`rarity`. `reach` is how far equal sums would
    carry the weights in a round: step size times S/(1 − momentum). `components` are of the public records.
    """

    rounds: tuple[int, ...]
    momenta: tuple[float, ...]
    clips: tuple[float, ...]
    reaches: tuple[float, ...]
    rarities: tuple[int, ...]
    components: tuple[int, ...] = ()
    ridges: tuple[float, ...] = (0.1,)

    def draw(self, seed: str, count: int) -> Iterator[dict[str, Any]]:
        rng = random.Random(seed)
        for _ in range(count):
            rounds, momentum = rng.choice(self.rounds), rng.choice(self.momenta)
            clip, reach = rng.choice(self.clips), rng.choice(self.reaches)
            front_end = _ALL
            if self.components:
                front_end = _components(rng.choice(self.components)) | {"front_end.ridge": rng.choice(self.ridges)}
            yield front_end | {
                "scheme.name": "fl-std-dp",
                "scheme.unit": "patient",
                "scheme.class_weights": f"{1 / rng.choice(self.rarities):g},1",
                "scheme.clip_norm": clip,
                "scheme.momentum": momentum,
                "scheme.server_lr": round(reach * (1 - momentum) / clip, 4),
                "server.average_last": max(1, int(rng.choice((0, 0.4)) * rounds)),
                "run.rounds": rounds,
            }


GRIDS = {
    "patients False": (
        24,
        Grid(
            rounds=(40, 80),
            momenta=(0.5, 0.8),
            clips=(0.3, 0.5),
            reaches=(50, 100, 200, 400),
            rarities=(100, 200, 400),
        ),
    ),
    "patients True": (
        12,
        Grid(
            rounds=(20, 40, 80),
            momenta=(0.5, 0.8),
            clips=(2, 3),
            reaches=(4, 8, 16, 32),
            rarities=(100, 200, 400),
            components=(200, 300, 450),
            ridges=(0.1, 0.3),
        ),
    ),
    "patients True, clipped": (
        16,
        Grid(
            rounds=(10, 20),
            momenta=(0.0,),
            clips=(1.5, 2),
            reaches=(2, 4, 16, 32),
            rarities=(100, 120, 150),
            components=(80, 120, 200, 300),
            ridges=(0.1, 0.2, 0.3),
        ),
    ),
}
"""Without and with public records: how many settings are drawn for each ε. 48 were tried before, with shorter steps and
at most 120 components, and the best were at the edge. They are among the results, and may be chosen. The last grid
clips nearly all who died to one length, in few rounds without momentum: the noise of all steps is averaged evenly."""


def _patient_level(public: bool) -> Iterator[dict[str, Any]]:
    for name, (count, grid) in GRIDS.items():
        if bool(grid.components) == public:
            yield from grid.draw(name, count)


def _components(count: int) -> dict[str, Any]:
    return _ALL | {"front_end.name": "pca", "front_end.features": count, "front_end.ridge": 0.01}


def _top(ratio: float, rounds: int, clip: float) -> dict[str, Any]:
    one = next(_hospital_level(_ALL, 20, 0.5, ((rounds, clip),)))
    changes = {"scheme.name": "fl-top-dp", "scheme.ratio": ratio, "scheme.init_steps": 40}
    return one | changes


_ONCE, _FOUR, _SIXTEEN = (1, 0.5), (4, 0.2), (16, 0.05)
"""Rounds, and the clip norm that goes with them."""
WAYS = (
    Way(level="patient", public=False, settings=tuple(_patient_level(False))),
    Way(level="patient", public=True, settings=tuple(_patient_level(True))),
    Way(level="record", public=False, settings=tuple(_record_level(_ALL, (2.0, 8.0, 32.0)))),
    Way(
        level="hospital",
        public=False,
        settings=(
            *_hospital_level(_ALL, 20, 0.5, (_ONCE, _FOUR, _SIXTEEN)),
            *_hospital_level(_ALL, 60, 1.0, (_ONCE, _FOUR)),
        ),
    ),
    Way(
        level="hospital",
        public=True,
        settings=(
            *_hospital_level(_components(30), 20, 0.1, (_ONCE, _FOUR)),
            *_hospital_level(_components(80), 20, 0.1, (_ONCE, _FOUR)),
            _top(0.1, *_FOUR),
        ),
    ),
    Way(
        level="record",
        public=True,
        settings=(*_record_level(_components(30), (0.3,)), *_record_level(_components(80), (0.3, 1.0))),
    ),
)
_PLAIN: dict[str, Any] = _ALL | {
    "scheme.name": "fl-std",
    "scheme.balance": "weights",
    "scheme.epochs": 2,
    "scheme.batch_size": 50,
    "scheme.local_lr": 0.2,
}
_MOST_ALONE = 3


def together_settings(hospitals: int) -> dict[str, Any]:
    """Without privacy: smaller hospitals make fewer steps in a round, so steps are longer and rounds more."""
    return _PLAIN | {"scheme.local_lr": 0.2 * math.sqrt(hospitals / 5), "run.rounds": 10 if hospitals <= 20 else 20}


def alone_settings(hospitals: int) -> dict[str, Any]:
    """About 2,000 steps, however small a hospital is."""
    return _PLAIN | {"run.rounds": max(1, round(0.75 * hospitals))}


@lru_cache(maxsize=4)
def federation(hospitals: int, seed: int, public: bool, choosing: bool) -> FederatedData:
    """The hospitals of a seed; where settings are chosen, the held-out patients stand in for the test patients."""
    values: dict[str, Any] = {"data.dataset": "diabetes130", "data.num_clients": hospitals}
    values |= {"data.public_records": PUBLIC} if public else {}
    found = load_federation(
        RunConfig().with_values(values).data, holdout=0.2 if choosing else 0.0, streams=SameTest(seed)
    )
    return dataclasses.replace(found, test=found.holdout, holdout=None) if choosing else found


def measured(settings: dict[str, Any], data: FederatedData, seed: int, **more: Any) -> dict[str, Any]:
    """One run: what the model of the last round is worth, both ε, bytes, and seconds of the processor."""
    hospitals = data.population.num_clients
    values: dict[str, Any] = {"run.device": "cpu", "run.workers": 1, "run.seed": seed, "run.eval_every": 10**6}
    values |= {"model.name": "logistic", "sampler.sampling_rate": 1.0, "data.dataset": "diabetes130"}
    values |= {"data.num_clients": hospitals} | ({"data.public_records": PUBLIC} if data.public is not None else {})
    if settings["scheme.name"] == "fl-std-record-dp":  # a step divides by the records that it draws, by public figures
        records = sum(data.population.size(k) for k in range(hospitals)) / hospitals
        drawn = 2 * PREVALENCE * settings["scheme.record_rate"] * records
        values["scheme.batch_size"] = max(1, int(round(drawn, 1 - math.ceil(math.log10(drawn)))))
    started = time.process_time()
    result = Run(settle(RunConfig().with_values(values | settings | more), data).experiment).run()
    found = {"auroc": result.last["auroc"], "cpu_seconds": time.process_time() - started}
    found |= {f"bytes_{way}": result.ledger[f"bytes_{way}_per_client_and_round"] for way in ("up", "down")}
    if result.statement["private"]:
        for who, key in (("outsider", "released"), ("server", "participant")):
            found[f"epsilon_{who}"] = min(result.statement[key]["epsilon"].values())
        found["unit"] = result.statement["unit"]
    return found


def alone(hospitals: int, seed: int) -> dict[str, Any]:
    """Hospitals that train by themselves without privacy: the mean and the spread of up to three of them."""
    data = federation(hospitals, seed, False, False)
    assert isinstance(data.population, PooledPopulation)
    scores = []
    for one in range(min(hospitals, _MOST_ALONE)):
        only = dataclasses.replace(data, population=PooledPopulation(data.population.pool, [data.population.rows(one)]))
        scores.append(measured(alone_settings(hospitals), only, seed)["auroc"])
    return {"auroc": statistics.fmean(scores), "each": scores}


class Results:
    """What was measured so far; every row is written at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []

    def find(self, **key: Any) -> dict[str, Any] | None:
        return next((row for row in self.rows if all(row.get(k) == v for k, v in key.items())), None)

    def ensure(self, make: Any, **key: Any) -> dict[str, Any]:
        known = self.find(**key)
        if known is None:
            known = key | make()
            self.rows.append(known)
            self._path.parent.mkdir(parents=True, exist_ok=True)
            content = {"machine": machine("cpu"), "rows": self.rows}
            self._path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            print(f"{key} → {known['auroc']:.4f}", file=sys.stderr, flush=True)
        return known


def tried(
    results: Results, hospitals: int, way: Way, settings: dict[str, Any], epsilon: float, seeds: tuple[int, ...]
) -> float:
    """The mean AUROC of a setting on held-out patients."""
    scores = []
    for seed in seeds:

        def make(seed: int = seed) -> dict[str, Any]:
            data = federation(hospitals, seed, way.public, True)
            return measured(settings, data, seed, **_privacy(way, epsilon, choosing=True))

        key = {"step": "tried", "hospitals": hospitals, "way": way.name, "epsilon": epsilon, "seed": seed}
        scores.append(results.ensure(make, **key, settings=settings)["auroc"])
    return statistics.fmean(scores)


def chosen(results: Results, hospitals: int, way: Way, epsilon: float) -> dict[str, Any]:
    """The best setting on held-out patients."""
    first = TRIED[way.level]
    if way.level != "patient":
        scores = [tried(results, hospitals, way, settings, CHOSEN_AT, first) for settings in way.settings]
        return way.settings[int(np.argmax(scores))]
    for settings in way.settings:
        tried(results, CHOSEN_WITH, way, settings, epsilon, first)
    key = {"step": "tried", "way": way.name, "epsilon": epsilon, "seed": first[0]}
    scored = [row for row in results.rows if all(row.get(name) == value for name, value in key.items())]
    best = [row["settings"] for row in sorted(scored, key=lambda row: row["auroc"])[-BEST:]]
    return max(best, key=lambda settings: tried(results, CHOSEN_WITH, way, settings, epsilon, AGAIN))


def tested(
    results: Results, hospitals: int, way: Way, epsilon: float, seed: int, settings: dict[str, Any]
) -> dict[str, Any]:
    """A chosen setting on the test patients."""

    def make() -> dict[str, Any]:
        data = federation(hospitals, seed, way.public, False)
        return measured(settings, data, seed, **_privacy(way, epsilon, choosing=False))

    key = {"step": "tested", "hospitals": hospitals, "way": way.name, "epsilon": epsilon, "seed": seed}
    return results.ensure(make, **key, settings=settings)


def _privacy(way: Way, epsilon: float, *, choosing: bool) -> dict[str, float]:
    said = {"privacy.epsilon": epsilon, "privacy.delta": DELTAS[way.level]}
    return said | ({"scheme.num_units": PATIENTS[choosing]} if way.level == "patient" else {})


def run(results: Results, hospitals: int) -> None:
    """Without privacy; then choose settings for every way, and test the choices."""
    for seed in TESTED:
        settings = together_settings(hospitals)
        key = {"hospitals": hospitals, "seed": seed}
        results.ensure(
            lambda seed=seed, settings=settings: measured(settings, federation(hospitals, seed, False, False), seed),
            step="no privacy",
            settings=settings,
            **key,
        )
        results.ensure(
            lambda seed=seed: alone(hospitals, seed), step="alone", settings=alone_settings(hospitals), **key
        )
    for way in WAYS:
        for epsilon in EPSILONS[way.level]:
            best = chosen(results, hospitals, way, epsilon)
            for seed in TESTED:
                tested(results, hospitals, way, epsilon, seed, best)


def compared(results: Results) -> None:
    """One run with masked sums, and the same in the clear: with a draw for each hospital they have the same bits."""
    way, seed, epsilon = WAYS[0], TESTED[0], 1.0
    settings = chosen(results, CHOSEN_WITH, way, epsilon)
    for mode in ("simulated", "masked"):

        def make(mode: str = mode) -> dict[str, Any]:
            data = federation(CHOSEN_WITH, seed, way.public, False)
            protocol = {"secagg.mode": mode, "secagg.noise_draws": "per-client"}
            return measured(settings, data, seed, **_privacy(way, epsilon, choosing=False), **protocol)

        key = {"step": f"{mode} sums", "hospitals": CHOSEN_WITH, "way": way.name, "epsilon": epsilon, "seed": seed}
        results.ensure(make, **key, settings=settings)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS, help=f"file of the results  [{RESULTS}]")
    parser.add_argument("--hospitals", type=int, nargs="*", default=HOSPITALS, help="how many  [5 20 100]")
    parser.add_argument("--write", action="store_true", help="run nothing, write the page")
    options = parser.parse_args(arguments)
    if options.write:
        from benchmarks.small_federations_page import write_page

        write_page(Results(options.out).rows)
        return
    torch.set_num_threads(1)
    results = Results(options.out)
    for hospitals in options.hospitals:
        run(results, hospitals)
    compared(results)


if __name__ == "__main__":
    main()
