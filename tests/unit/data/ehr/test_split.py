"""The records of one patient are never in two splits, nor with two clients."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laconic.data.ehr.split import hospitals, set_aside, split_patients, virtual_hospitals
from laconic.errors import ConfigError, DataError

tables = st.integers(0, 10_000).map(np.random.default_rng)


def apart(patients: np.ndarray, *groups: np.ndarray) -> bool:
    """No row and no patient in two of the groups."""
    whose = [set(patients[rows].tolist()) for rows in groups]
    return sum(map(len, whose)) == len(set().union(*whose)) and len(np.unique(np.concatenate(groups))) == sum(
        map(len, groups)
    )


@given(rng=tables, count=st.integers(40, 200), fraction=st.floats(0.1, 0.6))
def test_splits_are_apart_and_complete(rng: np.random.Generator, count: int, fraction: float) -> None:
    patients = rng.integers(0, max(5, count // 2), count)
    rows = np.sort(rng.permutation(count)[: count - 5])
    kept, aside = split_patients(rows, patients, fraction, rng, "test")
    assert apart(patients, kept, aside)
    assert np.array_equal(np.sort(np.concatenate([kept, aside])), rows)
    assert len(np.unique(patients[aside])) == round(len(np.unique(patients[rows])) * fraction)
    if len(kept) > 10 and len(np.unique(patients[kept])) > 8:
        kept, public = set_aside(kept, patients, 3, rng)
        assert apart(patients, kept, aside, public) and len(public) >= 3


@given(rng=tables, hospitals_=st.integers(1, 12))
def test_virtual_hospitals_are_equal_apart_and_each_has_the_outcome(rng: np.random.Generator, hospitals_: int) -> None:
    patients, labels = rng.integers(0, 150, 300), rng.random(300) < 0.3
    rows = np.flatnonzero(rng.random(300) < 0.8)
    parts = virtual_hospitals(rows, patients, labels, hospitals_, rng)
    assert len(parts) == hospitals_ and apart(patients, *parts)
    assert np.array_equal(np.sort(np.concatenate(parts)), rows)
    assert all(labels[part].any() for part in parts)
    sizes = [len(np.unique(patients[part])) for part in parts]
    assert max(sizes) - min(sizes) <= 1


@given(rng=tables, least=st.integers(1, 6))
def test_hospitals_share_no_patient(rng: np.random.Generator, least: int) -> None:
    patients, clients = rng.integers(0, 60, 200), rng.integers(0, 9, 200)
    rows = np.flatnonzero(rng.random(200) < 0.9)
    try:
        parts, which, left_out = hospitals(rows, patients, clients, least)
    except DataError:
        return
    assert apart(patients, *parts)
    assert sum(map(len, parts)) + left_out == len(rows)
    for part, client in zip(parts, which, strict=True):
        assert len(part) >= least and set(clients[part].tolist()) == {client}


def test_a_patient_of_two_hospitals_stays_where_most_records_are() -> None:
    patients, clients = np.array([0, 0, 0, 1, 1]), np.array([2, 2, 5, 5, 2])
    parts, which, left_out = hospitals(np.arange(5), patients, clients, 1)
    assert which.tolist() == [2] and left_out == 2
    assert parts[0].tolist() == [0, 1, 4]


def test_what_cannot_be_divided_is_refused() -> None:
    patients, labels = np.arange(10), np.arange(10) < 3
    rng = np.random.default_rng(0)
    with pytest.raises(ConfigError, match="4 virtual hospitals need as many patients with the outcome, but 3"):
        virtual_hospitals(np.arange(10), patients, labels, 4, rng)
    with pytest.raises(ConfigError, match="--holdout 0.01 of 10 patients leaves nobody"):
        split_patients(np.arange(10), patients, 0.01, rng, "--holdout")
    with pytest.raises(ConfigError, match="--public-records 10 must leave some"):
        set_aside(np.arange(10), patients, 10, rng)
    with pytest.raises(DataError, match="no client has 9 or more records"):
        hospitals(np.arange(10), patients, patients % 2, 9)
