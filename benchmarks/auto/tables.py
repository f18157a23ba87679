"""Tables to choose settings for: each as features, in the form in which a schema's preprocessing gives them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from laconic.data.federated import FederatedData
from laconic.data.population import PooledPopulation, Records

MOST_ENTRIES = 6_000_000
TESTED = 4000


@dataclass(frozen=True)
class Table:
    """A table: features whose first columns are quantities within [0, 1], then marks of gaps and levels."""

    name: str
    inputs: np.ndarray
    targets: np.ndarray
    test_inputs: np.ndarray
    test_targets: np.ndarray
    quantities: int
    ones: int
    classes: int
    owners: np.ndarray

    @property
    def federation(self) -> FederatedData:
        """The same for Laconic, every hospital with its own rows."""
        rows = [np.flatnonzero(self.owners == owner) for owner in np.unique(self.owners)]
        return FederatedData(
            population=PooledPopulation(_records(self.inputs, self.targets, self.classes), rows),
            test=_records(self.test_inputs, self.test_targets, self.classes),
            holdout=None,
            public=None,
            num_classes=self.classes,
            input_shape=(self.inputs.shape[1],),
            facts=(self.quantities, self.ones),
        )


def _records(inputs: np.ndarray, targets: np.ndarray, classes: int) -> Records:
    values = targets.astype(np.float32) if classes == 1 else targets.astype(np.int64)
    return Records(torch.from_numpy(inputs.astype(np.float32)), torch.from_numpy(values))


def random_table(seed: int) -> Table:
    """1,000 to 100,000 rows, 5 to 1,000 columns; yes or no, 3 to 20 classes, or a quantity."""
    rng = np.random.default_rng(seed)
    rows = int(10 ** rng.uniform(3, 5))
    columns = max(5, min(int(10 ** rng.uniform(np.log10(5), 3)), MOST_ENTRIES // rows))
    kind = rng.choice(["two", "many", "quantity"], p=[0.55, 0.3, 0.15])
    classes = {"two": 2, "many": int(rng.integers(3, 21)), "quantity": 1}[kind]
    count = rows + TESTED
    hidden = _hidden(rng, count, columns)
    owners = rng.integers(0, int(rng.choice([1, 5, 20, 100])), count)
    hidden += (rng.normal(size=(owners.max() + 1, columns)) * rng.choice([0.0, 0.3, 0.8]))[owners]
    raw, levels = _columns(rng, hidden)
    targets = _targets(rng, hidden, classes)
    inputs, quantities, ones = _features(raw, levels, rows)
    return Table(
        name=f"random {seed}",
        inputs=inputs[:rows],
        targets=targets[:rows],
        test_inputs=inputs[rows:],
        test_targets=targets[rows:],
        quantities=quantities,
        ones=ones,
        classes=classes,
        owners=owners[:rows],
    )


def _hidden(rng: np.random.Generator, count: int, columns: int) -> np.ndarray:
    """What the columns measure: normal, with some factors in common."""
    factors = max(1, int(columns * rng.uniform(0.05, 0.5)))
    loads = rng.normal(size=(factors, columns)) * (rng.random((factors, columns)) < 3 / max(3, factors))
    common = rng.uniform(0.2, 0.9)
    shared = rng.normal(size=(count, factors)) @ loads / np.sqrt((loads**2).sum(0) + 1e-9)
    found: np.ndarray = common * shared + np.sqrt(1 - common**2) * rng.normal(size=(count, columns))
    return found


def _columns(rng: np.random.Generator, hidden: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Quantities with tails and gaps, and levels."""
    columns = hidden.shape[1]
    measured = columns - int(columns * rng.choice([0.0, 0.2, 0.5]))
    raw, levels = [], []
    for place in range(columns):
        z = hidden[:, place]
        if place >= measured:
            ends = np.quantile(z, np.sort(rng.random(int(rng.integers(1, 7)))))
            levels.append(np.searchsorted(ends, z))
            continue
        tails = rng.integers(4)
        x = [z, np.exp(z), z * np.sqrt(3 / np.maximum(rng.chisquare(3, len(z)), 0.05)), np.round(3 * np.exp(z / 2))][
            tails
        ]
        x = x * 10 ** rng.uniform(-2, 3) + rng.choice([0, 50])
        if rng.random() < 0.5:
            share = rng.beta(1, 4) * (0.5 + 1 / (1 + np.exp(-z)) if rng.random() < 0.5 else 1.0)
            x = np.where(rng.random(len(z)) < share, np.nan, x)
        raw.append(x)
    return raw, levels


def _targets(rng: np.random.Generator, hidden: np.ndarray, classes: int) -> np.ndarray:
    columns, outputs = hidden.shape[1], classes if classes > 2 else 1
    weights = rng.normal(size=(columns, outputs))
    if columns > 10 and rng.random() < 0.5:
        weights *= rng.random((columns, 1)) < rng.choice([0.1, 0.3])
        weights[0] = 1.0
    scores = np.tanh(hidden) @ weights
    scores = scores / scores.std(0) * rng.uniform(0.7, 2.5)
    first, second = rng.integers(0, columns, 2)
    scores = scores + 0.4 * (hidden[:, [first]] * hidden[:, [second]]) * rng.normal(size=(1, outputs))
    if classes == 1:
        values = scores[:, 0] + rng.normal(size=len(scores)) * rng.uniform(0.3, 1.5)
        low, high = np.percentile(values, [0.5, 99.5])
        return np.clip((values - low) / (high - low), 0, 1)
    if classes > 2:
        scores = scores + rng.normal(size=(1, outputs)) * 0.7
        chosen: np.ndarray = (scores + rng.gumbel(size=scores.shape)).argmax(1)
        return chosen
    share, low, high = 10 ** rng.uniform(-2, np.log10(0.5)), -30.0, 30.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if (1 / (1 + np.exp(-scores - middle))).mean() > share else (middle, high)
    yes: np.ndarray = (rng.random(len(scores)) < 1 / (1 + np.exp(-scores[:, 0] - low))).astype(np.int64)
    return yes


def _features(raw: list[np.ndarray], levels: list[np.ndarray], rows: int) -> tuple[np.ndarray, int, int]:
    """(features, how many are quantities, ones per record), with the ranges that a drafted schema has."""
    quantities, others, gaps = [], [], 0
    for x in raw:
        low, high = (float(f"{end:.1e}") for end in np.nanpercentile(x[:rows], [1, 99]))
        high = high if high > low else low + 1
        missing = np.isnan(x)
        quantities.append(np.where(missing, 0.5, np.clip((x - low) / (high - low), 0, 1)))
        if missing.any():
            others.append(missing.astype(float))
            gaps += 1
    for column in levels:
        others += [(column == level).astype(float) for level in range(column.max() + 1)]
    features = np.stack([*quantities, *others], 1).astype(np.float32)
    return features, len(quantities), gaps + len(levels)


def of_federation(name: str, data: FederatedData) -> Table:
    """A named data set."""
    population: Any = data.population
    rows = [population.rows(client) for client in range(population.num_clients)]
    every = population.pool.some(np.concatenate(rows))
    assert data.test is not None and data.facts is not None
    return Table(
        name=name,
        inputs=_dense(every.inputs),
        targets=every.targets.numpy(),
        test_inputs=_dense(data.test.inputs),
        test_targets=data.test.targets.numpy(),
        quantities=data.facts[0],
        ones=data.facts[1],
        classes=data.num_classes,
        owners=np.repeat(np.arange(len(rows)), [len(some) for some in rows]),
    )


def _dense(inputs: Any) -> np.ndarray:
    table = inputs.dense() if hasattr(inputs, "dense") else inputs
    found: np.ndarray = table.flatten(1).numpy().astype(np.float32)
    return found
