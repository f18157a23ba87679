"""A table and an ε: what `auto` reaches, the best of the grid, and what is possible without privacy."""

from __future__ import annotations

import math
import os
import time
import warnings
from typing import Any

FIRST = 1000
"""The seed of the first random table. Those below served to choose the rule."""
EPSILONS = (1.0, 4.0)
SETTINGS, SEEDS, AGAIN = 200, 3, 5
NAMED = {
    "breast-cancer": {},
    "eicu-demo": {"folder": "eicu-demo"},
    "ehr-synthetic": {"num_records": 20000},
    "diabetes130, 5 hospitals": {"folder": "diabetes130", "num_clients": 5},
    "diabetes130, 20 hospitals": {"folder": "diabetes130", "num_clients": 20},
    "diabetes130, 100 hospitals": {"folder": "diabetes130", "num_clients": 100},
}
FIELDS = (
    *("table", "rows", "columns", "classes", "epsilon", "auto", "auto_std", "best", "best_setting", "better_than"),
    *("regret", "plain_auto", "scikit_learn", "base", "light", "seconds"),
)


def one(task: tuple[str, float, str | None]) -> dict[str, Any]:
    """A table and an ε: `auto`, the best of the grid, and, once for each table, what is possible without privacy."""
    import numpy as np
    import torch

    from benchmarks.auto.grid import settings, tried
    from laconic.settings.auto import gaussian_part, usual_delta

    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    name, epsilon, data = task
    started = time.perf_counter()
    table, config = _table(name, data)
    federation = table.federation
    results = [_auto(config, federation, table, epsilon, seed) for seed in range(SEEDS)]
    mu = gaussian_part(epsilon, usual_delta(results[0][1]))
    first = [(tried(table, one, mu, 0), number, one) for number, one in enumerate(settings(SETTINGS, seed=5))]
    leaders = sorted(first, key=lambda found: -found[0])[:AGAIN]
    means = [
        (np.mean([tried(table, found[2], mu, seed) for seed in range(1, SEEDS + 1)]), found[2]) for found in leaders
    ]
    best, setting = max(means, key=lambda found: found[0])
    auto = float(np.mean([found[0] for found in results]))
    row = {
        "table": name,
        "rows": len(table.inputs),
        "columns": table.inputs.shape[1],
        "classes": table.classes,
        "epsilon": epsilon,
        "auto": auto,
        "auto_std": float(np.std([found[0] for found in results])),
        "best": float(best),
        "best_setting": str(setting),
        "better_than": sum(auto > found[0] for found in first),
        "regret": float(best) - auto,
        "base": _base(table),
        "light": results[0][2],
    }
    if epsilon == EPSILONS[0] and "0 hospitals" not in name:  # who holds which records is all the same here
        row |= {"plain_auto": _auto(config, federation, table, math.inf, 0)[0], "scikit_learn": _scikit_learn(table)}
    return row | {"seconds": round(time.perf_counter() - started, 1)}


def _table(name: str, data: str | None) -> tuple[Any, Any]:
    from benchmarks.auto.tables import of_federation, random_table
    from laconic.settings.build import decided
    from laconic.settings.config import RunConfig

    if name.startswith("random "):
        return random_table(int(name.split()[1])), RunConfig().with_values({"scheme.name": "auto"})
    about: dict[str, Any] = dict(NAMED[name])
    folder = about.pop("folder", None)
    values = {"scheme.name": "auto", "data.dataset": name.partition(",")[0]}
    values |= {f"data.{key}": value for key, value in about.items()}
    values |= {} if folder is None else {"data.data_dir": os.path.join(data or "../shared/data", folder)}
    config = RunConfig().with_values(values)
    return of_federation(name, decided(config.with_values({"privacy.epsilon": 1.0}))[1]), config


def _auto(config: Any, federation: Any, table: Any, epsilon: float, seed: int) -> tuple[float, int, str]:
    """(result, how many units are protected, the traffic light)."""
    from laconic.experiment.outlook import outlook_of
    from laconic.runner.run import Run
    from laconic.settings.build import settle

    asked = config.with_values({"privacy.epsilon": epsilon, "run.seed": seed, "run.eval_every": 10_000})
    experiment = settle(asked, federation).experiment
    last = Run(experiment).run().last
    kind = {1: "r2", 2: "auroc"}.get(table.classes, "accuracy")
    outlook = outlook_of(experiment)
    units = getattr(experiment.scheme.train, "num_units", None)
    return last[kind], int(units or len(table.inputs)), "" if outlook is None else outlook.light


def _base(table: Any) -> float:
    """What a model reaches that always says the same."""
    import numpy as np

    if table.classes <= 2:
        return 0.5 if table.classes == 2 else 0.0
    return float(np.bincount(table.test_targets).max() / len(table.test_targets))


def _scikit_learn(table: Any) -> float:
    """Logistic or ridge regression with scikit-learn's defaults on the same columns, standardised."""
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.preprocessing import StandardScaler

    from benchmarks.auto.grid import score

    scaler = StandardScaler().fit(table.inputs)
    inputs, tested = scaler.transform(table.inputs), scaler.transform(table.test_inputs)
    if table.classes == 1:
        return score(Ridge().fit(inputs, table.targets).predict(tested)[:, None], table.test_targets, 1)
    model = LogisticRegression(max_iter=300).fit(inputs, table.targets)
    found = model.decision_function(tested)
    return score(found if found.ndim == 2 else found[:, None], table.test_targets, table.classes)
