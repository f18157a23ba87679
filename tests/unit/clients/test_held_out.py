"""Records that clients set aside: the same in every round, and never trained on."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from conftest import make_population
from laconic.clients.work import split_rows, split_units, trained_and_held
from laconic.data.population import FunctionPopulation, PooledPopulation, Records


@pytest.mark.parametrize(
    ("size", "fraction", "held"), [(10, 0.2, 2), (10, 0.0, 0), (1, 0.5, 0), (2, 0.01, 1), (3, 0.99, 2)]
)
def test_every_record_is_trained_on_or_set_aside(size: int, fraction: float, held: int) -> None:
    trained, aside = split_rows(size, fraction, 7, 3)
    assert len(aside) == held and sorted([*trained, *aside]) == list(range(size))
    assert np.array_equal(aside, split_rows(size, fraction, 7, 3)[1])


def test_other_clients_and_other_runs_set_other_records_aside() -> None:
    splits = {tuple(split_rows(50, 0.3, seed, client)[1]) for seed in range(3) for client in range(3)}
    assert len(splits) == 9


def test_pooled_records_and_those_made_on_demand_are_split_alike() -> None:
    pooled = make_population([5, 9, 1])
    demand = FunctionPopulation(3, pooled.records)
    for one, other in zip(trained_and_held(pooled, 0.3, 4), trained_and_held(demand, 0.3, 4), strict=True):
        assert [one.size(c) for c in range(3)] == [other.size(c) for c in range(3)]
        assert all(torch.equal(one.records(c).inputs, other.records(c).inputs) for c in range(3))


@pytest.mark.parametrize("unit", ["record", "patient"])
def test_one_unit_more_or_less_leaves_all_others_where_they_are(unit: str) -> None:
    """Else the sum of a round would change by much more than one unit's part. A fixed number of records set aside, as
    whole clients have it, moves others to the other side."""

    def trained(count: int, kind: str) -> set[float]:
        table = Records(torch.arange(2.0 * count)[:, None], torch.zeros(2 * count))
        population = PooledPopulation(table, [np.arange(2 * count)], patients=np.arange(2 * count) // 2)
        return set(trained_and_held(population, 0.3, 5, kind)[0].records(0).inputs[:, 0].tolist())

    last = {198.0, 199.0}
    assert trained(99, unit) == trained(100, unit) - last
    assert trained(99, "client") != trained(100, "client") - last


def test_units_are_set_aside_independently_and_as_often_as_is_said() -> None:
    held = split_units(40_000, 0.3, 1 << 200, 0)
    assert abs(held.mean() - 0.3) < 5 * (0.3 * 0.7 / 40_000) ** 0.5  # false alarms: 6e-7
    assert not np.array_equal(held, split_units(40_000, 0.3, (1 << 200) + 1, 0))
    assert not split_units(100, 0.0, 3, 0).any() and split_units(100, 1.0, 3, 0).all()
