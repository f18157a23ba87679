"""Synthetic clients: the same every time, different from each other, learnable, and free until asked for."""

from __future__ import annotations

import pickle
import tracemalloc

import numpy as np
import pytest
import torch

from laconic.data.population import FunctionPopulation, Population
from laconic.data.synthetic import synthetic_population
from laconic.errors import ConfigError

pytestmark = pytest.mark.filterwarnings("error")


def test_shapes_and_types() -> None:
    population, test = synthetic_population(7, records_per_client=4, num_features=6, num_classes=3)
    assert isinstance(population, FunctionPopulation) and isinstance(population, Population)
    assert population.num_clients == 7 and population.size(6) == 4
    records = population.records(2)
    assert records.inputs.shape == (4, 6) and records.inputs.dtype == torch.float32
    assert records.targets.shape == (4,) and records.targets.dtype == torch.int64
    assert set(test.targets.tolist()) == {0, 1, 2} and test.inputs.shape == (len(test.targets), 6)


def test_a_client_is_the_same_every_time_and_like_no_other() -> None:
    population, test = synthetic_population(5, seed=1)
    again, test_again = synthetic_population(10**6, seed=1)
    assert torch.equal(test.inputs, test_again.inputs)
    for client in (4, 0, 3):
        assert torch.equal(population.records(client).inputs, again.records(client).inputs)
        assert torch.equal(population.records(client).targets, again.records(client).targets)
    firsts = {population.records(client).inputs[0, 0].item() for client in range(5)}
    other, _ = synthetic_population(5, seed=2)
    firsts |= {other.records(client).inputs[0, 0].item() for client in range(5)}
    assert len(firsts | {test.inputs[0, 0].item()}) == 11


def test_a_million_clients_cost_no_memory() -> None:
    tracemalloc.start()
    population, _ = synthetic_population(10**6, num_features=4)
    population.records(999_999)
    assert sum(population.size(client) for client in range(0, 10**6, 10_000)) == 1000
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2_000_000


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_linear_model_gets_about_nine_in_ten_right(seed: int) -> None:
    population, test = synthetic_population(300, seed=seed)
    clients = [population.records(client) for client in range(300)]
    inputs = torch.cat([records.inputs for records in clients])
    targets = torch.cat([records.targets for records in clients])
    centred = inputs - inputs.mean(0)
    weights = torch.linalg.lstsq(centred, torch.nn.functional.one_hot(targets).float() - 0.2).solution
    accuracy = (((test.inputs - inputs.mean(0)) @ weights).argmax(1) == test.targets).float().mean().item()
    assert 0.82 < accuracy < 0.97


def test_labels_are_even() -> None:
    population, _ = synthetic_population(400)
    counts = np.bincount(torch.cat([population.records(client).targets for client in range(400)]))
    assert counts.sum() == 4000 and abs(counts - 800).max() < 120


def test_goes_to_another_process() -> None:
    population, _ = synthetic_population(3)
    copy = pickle.loads(pickle.dumps(population))
    assert torch.equal(copy.records(1).inputs, population.records(1).inputs)


def test_no_such_client() -> None:
    population, _ = synthetic_population(3)
    for client in (-1, 3):
        with pytest.raises(IndexError, match="clients are 0 to 2"):
            population.records(client)
        with pytest.raises(IndexError):
            population.size(client)


@pytest.mark.parametrize(
    ("option", "value"),
    [("num_clients", 0), ("records_per_client", 0), ("num_features", 1.5), ("num_classes", 1), ("seed", -1)],
)
def test_bad_options_are_named(option: str, value: float) -> None:
    options = {"num_clients": 3, option: value}
    with pytest.raises(ConfigError, match=option):
        synthetic_population(**options)  # type: ignore[arg-type]
