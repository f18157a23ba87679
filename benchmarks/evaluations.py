"""Evaluations on the clients' own records: how near is the noisy metric to the true one, and what does it cost?

    python -m benchmarks.evaluations --out docs/results/evaluations
    python -m benchmarks.evaluations --noise     # is the noise that is told the noise that is there?

Fashion-MNIST (LACONIC_DATA says where it is) with accuracy, and the embedded breast tumours with AUROC. Each arm runs
with evaluations and without any, at the same total ε and number of rounds. The truth is the mean of all clients' own
metrics, without noise and without sampling; only a simulation knows it. Every finished run is appended to runs.csv,
and one that is there already is not repeated.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from typing import Any

import numpy as np

from laconic.clients.simulated import SimulatedClients
from laconic.runner.run import Run
from laconic.settings.build import settle
from laconic.settings.config import RunConfig

COMMON = {"scheme.name": "fl-std-dp", "scheme.local_lr": 0.1, "run.eval_every": 1000, "run.device": "cpu"}
FASHION = COMMON | {
    "data.dataset": "fashion-mnist",
    "data.num_clients": 1000,
    "model.name": "logistic",
    "sampler.sampling_rate": 0.1,
    "scheme.clip_norm": 0.5,
    "run.rounds": 40,
}
TUMOURS = COMMON | {
    "data.dataset": "breast-cancer",
    "data.num_clients": 100,
    "model.name": "logistic",
    "sampler.sampling_rate": 1.0,
    "scheme.clip_norm": 0.5,
    "run.rounds": 20,
}
ARMS: dict[str, dict[str, Any]] = {
    "fashion ε=1": FASHION | {"privacy.epsilon": 1.0},
    "fashion ε=4": FASHION | {"privacy.epsilon": 4.0},
    "fashion ε=4 share 0.3": FASHION | {"privacy.epsilon": 4.0, "evaluation.share": 0.3},
    "tumours ε=4": TUMOURS | {"privacy.epsilon": 4.0, "evaluation.metric": "auroc"},
    "tumours ε=8": TUMOURS | {"privacy.epsilon": 8.0, "evaluation.metric": "auroc"},
    "tumours ε=8 share 0.5 bins 4": TUMOURS
    | {"privacy.epsilon": 8.0, "evaluation.metric": "auroc", "evaluation.share": 0.5, "evaluation.bins": 4},
}
EVERY = {"fashion": 10, "tumours": 5}
COLUMNS = ("arm", "evaluated", "seed", "sigma", "evaluation_sigma", "epsilon", "told", "noise", "error", "result")


def one(arm: str, evaluated: bool, seed: int) -> dict[str, Any]:
    values = ARMS[arm] | {"run.seed": seed}
    if evaluated:
        values |= {"evaluation.every": EVERY[arm.split()[0]]}
    else:
        values = {name: value for name, value in values.items() if not name.startswith("evaluation.")}
    run = Run(settle(RunConfig().with_values(values)).experiment)
    scheme, told, errors, noises = run.experiment.scheme, [], [], []

    def watch(row: dict[str, Any]) -> None:
        if "evaluation" not in row:
            return
        told.append(f"clients_{scheme.evaluations.metric}" in row)
        if told[-1]:
            errors.append(row[f"clients_{scheme.evaluations.metric}"] - truth(run))
            noises.append(row["clients_noise"])

    run.observer = watch
    result = run.run()
    metric = "auroc" if arm.startswith("tumours") else "accuracy"
    return {
        "arm": arm,
        "evaluated": evaluated,
        "seed": seed,
        "sigma": scheme.noise_multiplier,
        "evaluation_sigma": scheme.evaluations.noise_multiplier,
        "epsilon": round(result.statement["released"]["epsilon"]["pld"], 4),
        "told": f"{sum(told)} of {len(told)}",
        "noise": round(float(np.mean(noises)), 4) if noises else "",
        "error": round(float(np.sqrt(np.mean(np.square(errors)))), 4) if errors else "",
        "result": round(result.last[metric], 4),
    }


def truth(run: Run) -> float:
    """The metric of the mean of all clients' cells."""
    assert isinstance(run.clients, SimulatedClients)
    kind, work = run.experiment.scheme.evaluations, run.clients.work
    cells = [work.cells(client, run.state.weights)[0].numpy() for client in range(run.clients.num_clients)]
    return kind.metrics(np.mean(cells, axis=0))[kind.metric]


def noise_ratio(metric: str, seeds: int) -> tuple[int, float]:
    """Of many evaluations in which everybody takes part: their number, and the error in units of the told noise."""
    errors = []
    for seed in range(seeds):
        values = TUMOURS | {
            "run.seed": seed,
            "run.rounds": 40,
            "scheme.noise_multiplier": 3.0,
            "evaluation.every": 2,
            "evaluation.metric": metric,
            "evaluation.noise_multiplier": 2.1651,
        }
        if metric == "auroc":
            values |= {"evaluation.bins": 4}
        run = Run(settle(RunConfig().with_values(values)).experiment)
        run.begin()
        for number in range(1, 41):
            run._one_round(number)
            row = run.history[-1]
            if f"clients_{metric}" in row:
                errors.append((row[f"clients_{metric}"] - truth(run)) / row["clients_noise"])
    return len(errors), float(np.sqrt(np.mean(np.square(errors))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/results/evaluations"))
    parser.add_argument("--noise", action="store_true")
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    if options.noise:
        for metric in ("auroc", "accuracy"):
            print(metric, *noise_ratio(metric, seeds=3))
        return
    file = options.out / "runs.csv"
    options.out.mkdir(parents=True, exist_ok=True)
    done = set()
    if file.exists():
        with file.open(newline="") as stream:
            done = {(row["arm"], row["evaluated"], row["seed"]) for row in csv.DictReader(stream)}
    else:
        with file.open("w", newline="") as stream:
            csv.writer(stream).writerow(COLUMNS)
    for seed in range(options.seeds):
        for arm in ARMS:
            for evaluated in (True, False):
                if (arm, str(evaluated), str(seed)) in done or ("share" in arm and not evaluated):
                    continue
                row = one(arm, evaluated, seed)
                print(row, flush=True)
                with file.open("a", newline="") as stream:
                    csv.writer(stream).writerow([row[name] for name in COLUMNS])


if __name__ == "__main__":
    main()
