"""Real hospitals instead of virtual ones: the eICU demo, 186 hospitals with about nine stays each.

    python -m benchmarks.natural_hospitals        chooses settings, then tests; goes on where it was stopped

Death in hospital again. There are few stays, so every seed has test patients of its own (a fifth). Settings are chosen
for every ε on held-out patients of three other seeds. `python -m benchmarks.small_federations --write` shows the rows.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.small_federations import _PLAIN, Grid, Results, measured
from laconic.data.federated import FederatedData, pooled
from laconic.data.population import PooledPopulation
from laconic.settings.config import RunConfig
from laconic.settings.data.datasets import load_federation
from laconic.streams import Streams

DATASET, EPSILONS, DELTA, PATIENTS = "eicu-demo", (1.0, 2.0, 4.0, 8.0), 1e-4, 1450
TRIED, TESTED = (100, 101, 102), (0, 1, 2, 3, 4)
GRID = Grid(rounds=(10, 20, 40), momenta=(0.5, 0.8), clips=(0.3, 0.5, 1), reaches=(5, 10, 20, 40), rarities=(5, 12, 25))
DRAWN, MOST_ALONE = 16, 10
RESULTS = Path("docs/results/small-federations/eicu-demo.json")


@lru_cache(maxsize=8)
def hospitals(seed: int, choosing: bool) -> FederatedData:
    """The hospitals; where settings are chosen, held-out patients stand in for the test patients."""
    section = RunConfig().with_values({"data.dataset": DATASET}).data
    found = load_federation(section, holdout=0.2 if choosing else 0.0, streams=Streams(seed))
    return dataclasses.replace(found, test=found.holdout, holdout=None) if choosing else found


def without_privacy(data: FederatedData, seed: int) -> dict[str, Any]:
    """About 2,000 steps of one model on everything that the data's clients have."""
    data = pooled(data)
    steps = 2 * -(-data.population.size(0) // _PLAIN["scheme.batch_size"])
    return measured(_PLAIN | {"run.rounds": max(1, 2000 // steps)}, data, seed, **{"data.dataset": DATASET})


def alone(seed: int) -> dict[str, Any]:
    """The first hospitals in which some stays ended in death and some did not, each by itself."""
    data = hospitals(seed, False)
    population = data.population
    assert isinstance(population, PooledPopulation)
    both = [k for k in range(population.num_clients) if len(set(population.records(k).targets.tolist())) == 2]
    scores = []
    for one in both[:MOST_ALONE]:
        only = dataclasses.replace(data, population=PooledPopulation(population.pool, [population.rows(one)]))
        scores.append(without_privacy(only, seed)["auroc"])
    return {"auroc": statistics.fmean(scores), "each": scores}


def private(settings: dict[str, Any], seed: int, epsilon: float, choosing: bool) -> dict[str, Any]:
    units = PATIENTS * (0.8 if choosing else 1.0)
    said = {"privacy.epsilon": epsilon, "privacy.delta": DELTA, "scheme.num_units": units, "data.dataset": DATASET}
    return measured(settings, hospitals(seed, choosing), seed, **said)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS, help=f"file of the results  [{RESULTS}]")
    asked = parser.parse_args(arguments)
    torch.set_num_threads(1)
    results, settings = Results(asked.out), list(GRID.draw(DATASET, DRAWN))
    for seed in TESTED:
        results.ensure(lambda seed=seed: without_privacy(hospitals(seed, False), seed), step="no privacy", seed=seed)
        results.ensure(lambda seed=seed: alone(seed), step="alone", seed=seed)
    for epsilon in EPSILONS:
        key: dict[str, Any] = {"way": "patient", "epsilon": epsilon}
        scores = []
        for one in settings:
            rows = [
                results.ensure(
                    lambda one=one, seed=seed, epsilon=epsilon: private(one, seed, epsilon, True),
                    step="tried",
                    seed=seed,
                    settings=one,
                    **key,
                )
                for seed in TRIED
            ]
            scores.append(statistics.fmean(row["auroc"] for row in rows))
        best = settings[int(np.argmax(scores))]
        for seed in TESTED:
            results.ensure(
                lambda best=best, seed=seed, epsilon=epsilon: private(best, seed, epsilon, False),
                step="tested",
                seed=seed,
                settings=best,
                **key,
            )


if __name__ == "__main__":
    main()
