"""Records that clients set aside: the same in every round, and never trained on."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from conftest import make_population
from laconic.clients.work import split_rows, trained_and_held
from laconic.data.population import FunctionPopulation


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
