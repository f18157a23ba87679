"""Populations: a padded cohort holds exactly the clients' records, and what users bring is checked."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from laconic.data.population import (
    FunctionPopulation,
    PooledPopulation,
    Population,
    Records,
    as_population,
    as_records,
    gather,
)
from laconic.errors import DataError

pytestmark = pytest.mark.filterwarnings("error")

CPU = torch.device("cpu")


def pool(count: int) -> Records:
    inputs = torch.arange(1, 6 * count + 1, dtype=torch.float32).reshape(count, 2, 3)
    return Records(inputs, torch.arange(count) % 5)


def check_cohort(population: Population, clients: list[int]) -> None:
    cohort = gather(population, clients, CPU)
    most = max(population.size(client) for client in clients)
    assert cohort.inputs.shape[:2] == cohort.targets.shape[:2] == (len(clients), most)
    for row, client in enumerate(clients):
        records = population.records(client)
        assert cohort.sizes[row] == len(records.targets) == population.size(client)
        assert torch.equal(cohort.inputs[row, : cohort.sizes[row]], records.inputs)
        assert torch.equal(cohort.targets[row, : cohort.sizes[row]], records.targets)


@given(sizes=st.lists(st.integers(1, 6), min_size=1, max_size=6), data=st.data())
@settings(deadline=None, max_examples=40)
def test_gather_is_the_records_padded(sizes: list[int], data: st.DataObject) -> None:
    records = pool(sum(sizes))
    rows = np.split(np.random.default_rng(0).permutation(sum(sizes)), np.cumsum(sizes)[:-1])
    clients = data.draw(st.lists(st.integers(0, len(sizes) - 1), min_size=1, max_size=8))
    pooled = PooledPopulation(records, rows)
    check_cohort(pooled, clients)
    check_cohort(FunctionPopulation(len(sizes), pooled.records), clients)
    check_cohort(as_population([tuple(pooled.records(client)) for client in range(len(sizes))]), clients)


def test_gather_from_equal_shards() -> None:
    records = pool(12)
    rows = np.random.default_rng(0).permutation(12).reshape(4, 3)
    check_cohort(PooledPopulation(records, rows), [3, 0, 3])
    equal = PooledPopulation(records, rows).to(CPU)
    assert equal.num_clients == 4 and torch.equal(equal.records(2).inputs, records.inputs[rows[2]])


def test_function_population_is_lazy() -> None:
    made: list[int] = []

    def make(client: int) -> tuple[np.ndarray, np.ndarray]:
        made.append(client)
        return np.full((2, 3), client), np.array([0, 1])

    population = FunctionPopulation(10**6, make, size=lambda client: 2)
    assert population.num_clients == 10**6 and population.size(7) == 2 and made == []
    assert population.records(7).inputs.tolist() == [[7, 7, 7], [7, 7, 7]] and made == [7]
    assert FunctionPopulation(3, make).size(1) == 2 and made == [7, 1]
    assert population.to(CPU) is population


def test_heavy_packages_are_imported_only_when_needed() -> None:
    modules = (
        "download",
        "files.folder",
        "datasets.pictures",
        "partition",
        "population",
        "registry",
        "sources",
        "synthetic",
    )
    code = "".join(f"import laconic.data.{name}\n" for name in modules)
    code += "import sys; print([name for name in ('sklearn', 'pandas', 'pyarrow', 'rich') if name in sys.modules])"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert run.stdout.strip() == "[]"


def test_kinds_of_population() -> None:
    population = FunctionPopulation(1, lambda client: pool(1))
    assert as_population(population) is population
    nothing: list[object] = [[], "text", 3, None]
    for clients in nothing:
        with pytest.raises(DataError, match="non-empty sequence"):
            as_population(clients)


def test_datasets_are_accepted() -> None:
    class Squares(torch.utils.data.Dataset):  # type: ignore[type-arg]
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
            return np.array([index, index**2], dtype=np.float64), index % 2

    for dataset in (Squares(), torch.utils.data.TensorDataset(*as_records(Squares(), "squares"))):
        records = as_population([dataset]).records(0)
        assert records.inputs.tolist() == [[0, 0], [1, 1], [2, 4], [3, 9]]
        assert records.inputs.dtype == torch.float32
        assert records.targets.tolist() == [0, 1, 0, 1] and records.targets.dtype == torch.int64


def test_types_are_those_that_models_take() -> None:
    records = as_records((np.zeros((3, 2), dtype=np.float64), np.array([0, 1, 2], dtype=np.uint8)), "mine")
    assert records.inputs.dtype == torch.float32 and records.targets.dtype == torch.int64
    records = as_records((torch.zeros(3, 4, dtype=torch.int32), [0.5, 1.5, 2.5]), "mine")
    assert records.inputs.dtype == torch.int64 and records.targets.dtype == torch.float32


def test_arrays_of_another_byte_order_or_of_long_doubles_are_converted() -> None:
    for kind in (">f8", ">f4", ">f2", np.longdouble):
        records = as_records((np.array([[1.5], [-2.5]]).astype(kind), np.array([0, 258], dtype=">i2")), "mine")
        assert records.inputs.tolist() == [[1.5], [-2.5]] and records.targets.tolist() == [0, 258]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (([[0.0], [np.nan]], [0, 1]), "client 3: NaN or infinity in the inputs of record 1"),
        (([[0.0], [1.0]], [np.inf, 1.0]), "client 3: NaN or infinity in the targets of record 0"),
        (([[1e300]], [0]), "NaN or infinity in the inputs of record 0"),
        (([[0.0]], [0, 1]), "1 inputs but 2 targets"),
        ((1.0, [0]), "scalar inputs"),
        ((np.zeros((0, 3)), np.zeros(0)), "client 3: has no records"),
        (([1], [2], [3]), "expected a pair"),
        (5, "expected a pair .* got int"),
        ((np.zeros((2, 0)), [0, 1]), r"client 3: inputs of shape \(0,\) per record hold no values"),
        (([[1j]], [0]), "client 3: inputs hold complex128, not numbers"),
        ((torch.ones(1, 1) * 1j, [0]), "client 3: inputs are complex numbers"),
        (([["a"]], [0]), "client 3: inputs hold <U1, not numbers"),
        (([[None]], [0]), "client 3: inputs hold object, not numbers"),
        (([[1.0], [1.0, 2.0]], [0, 1]), "client 3: inputs are of different shapes"),
        (([[1.0]], np.array([2**63], dtype=np.uint64)), "client 3: targets are whole numbers beyond 64 bits"),
        ((np.array([[np.longdouble(10) ** 400]]), [0]), "NaN or infinity in the inputs of record 0"),
    ],
)
def test_bad_records_are_refused(data: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        FunctionPopulation(4, lambda client: data).records(3)  # type: ignore[arg-type,return-value]
