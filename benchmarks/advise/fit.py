"""The constants by which `laconic advise` ranks settings, fitted to runs.

    python -m benchmarks.advise.fit

Runs are those of docs/results/frontier (100 clients in a round, many rounds, judged by held-out clients) and of
docs/results/advise/trials.csv (everyone in every round, 5 to 40 rounds). Runs whose steps are far too long are left
out: how bad they are is chance.
"""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares
from scipy.stats import spearmanr

from laconic.advice.ranking import STABLE, factors
from laconic.advice.search import against_server

_RESULTS = Path(__file__).parents[2] / "docs/results"
_LONGEST = 1.7
_TRIALS_COUNT = 2.0
"""There are few trials and many runs of the frontier."""


def runs() -> np.ndarray:
    """(features, rounds, momentum, σ/n, reach, error, weight) of every run."""
    found = []
    for name in ("runs.csv", "first-sweep-runs.csv"):
        for row in _rows(_RESULTS / "frontier" / name):
            known = (row["scheme"], row["public"], row["judged_on"], row["local_steps"])
            if known == ("fl-std-dp", "dead-leaves", "held-out", "10"):
                rounds, momentum = int(row["rounds"]), float(row["momentum"])
                nominal = float(row["reach"]) * (1 - momentum) / rounds  # η·S
                reach = nominal * factors(rounds, momentum)[0]
                values = (float(row["features"]), rounds, momentum, float(row["sigma"]) / 100, reach)
                found.append((*values, 1 - float(row["accuracy"]), 1.0))
    for row in _rows(_RESULTS / "advise" / "trials.csv"):
        rounds = int(row["rounds"])
        noise = against_server(float(row["epsilon"]), 1e-5, rounds) / 6000
        values = (float(row["features"]), rounds, float(row["momentum"]), noise, float(row["reach"]))
        found.append((*values, 1 - float(row["accuracy"]), _TRIALS_COUNT))
    return np.array(found)


def main() -> None:
    features, rounds, momentum, noise, reach, error, weight = runs().T
    total, averaged = np.array([factors(int(t), float(m)) for t, m in zip(rounds, momentum, strict=True)]).T
    norm = np.sqrt(10 * (features + 1)) * noise / np.sqrt(averaged) * reach
    step, lag = reach / (total * (1 + momentum)), 1 / ((1 - momentum) * rounds)
    used = step < _LONGEST

    def model(p: np.ndarray) -> np.ndarray:
        few, far = np.exp(p[1]) * features ** -p[2], np.exp(p[3]) * reach ** -p[4]
        swing = np.square((step - STABLE).clip(min=0))
        return np.asarray(p[0] + few + far + p[5] * norm**2 + p[6] * swing + p[7] * lag**2)

    start = [0.04, -0.3, 0.5, -1.2, 0.4, 4e-4, 0.1, 0.02]
    p = least_squares(lambda p: ((model(p) - error) * np.sqrt(weight))[used], start).x
    names = ("FLOOR", "FEATURES", "FEATURES_POWER", "REACH", "REACH_POWER", "NOISE", "SWING", "LAG")
    for name, value in zip(names, p, strict=True):
        print(f"{name} = {math.exp(value) if name in ('FEATURES', 'REACH') else value:.4g}")
    for what, some in (("frontier", weight == 1.0), ("trials", weight != 1.0)):
        left = (model(p) - error)[used & some]
        rank = spearmanr(model(p)[used & some], error[used & some]).statistic
        print(
            f"{what}: {len(left)} runs, root mean square {np.sqrt(np.mean(left**2)):.4f}, rank correlation {rank:.3f}"
        )


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


if __name__ == "__main__":
    main()
