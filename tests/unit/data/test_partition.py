"""Partitions: every record to exactly one client, no client without any, and the skew that was asked for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laconic.data.partition import ByColumn, Dirichlet, IIDShards, LabelsPerClient, Partition, Rows
from laconic.errors import ConfigError, DataError

pytestmark = pytest.mark.filterwarnings("error")

TARGETS = np.repeat(np.arange(10), 60)
EVERY_KIND = [
    IIDShards(num_clients=7),
    Dirichlet(num_clients=7, alpha=0.3, min_records=2),
    LabelsPerClient(num_clients=7, num_labels=3),
    ByColumn(column="site"),
]
labels = st.lists(st.integers(-3, 6), min_size=1, max_size=80).map(np.array)
seeds = st.integers(0, 2**32)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def check(rows: Rows, num_records: int, num_clients: int, least: int = 1) -> None:
    """Disjoint, complete, and nobody below the least."""
    assert len(rows) == num_clients
    assert min(len(held) for held in rows) >= least
    everything = np.concatenate(list(rows))
    assert everything.dtype == np.int64
    assert sorted(everything.tolist()) == list(range(num_records))


@given(targets=labels, pick=st.integers(0, 10**6), seed=seeds)
@settings(deadline=None, max_examples=60)
def test_iid_shards(targets: np.ndarray, pick: int, seed: int) -> None:
    num_clients = 1 + pick % len(targets)
    rows = IIDShards(num_clients=num_clients).rows(targets, rng(seed))
    check(rows, len(targets), num_clients)
    sizes = [len(held) for held in rows]
    over = len(targets) % num_clients
    assert sizes == [len(targets) // num_clients + (client < over) for client in range(num_clients)]
    assert isinstance(rows, np.ndarray) == (over == 0)


@given(
    targets=labels,
    pick=st.integers(0, 10**6),
    alpha=st.floats(1e-300, 1e300),
    min_records=st.integers(1, 5),
    seed=seeds,
)
@settings(deadline=None, max_examples=100)
def test_dirichlet(targets: np.ndarray, pick: int, alpha: float, min_records: int, seed: int) -> None:
    min_records = min(min_records, len(targets))
    num_clients = 1 + pick % (len(targets) // min_records)
    partition = Dirichlet(num_clients=num_clients, alpha=alpha, min_records=min_records)
    check(partition.rows(targets, rng(seed)), len(targets), num_clients, min_records)


@given(targets=labels, num_clients=st.integers(1, 40), num_labels=st.integers(1, 6), seed=seeds)
@settings(deadline=None, max_examples=100)
def test_labels_per_client(targets: np.ndarray, num_clients: int, num_labels: int, seed: int) -> None:
    _, counts = np.unique(targets, return_counts=True)
    pairs = num_clients * num_labels
    possible = num_labels <= len(counts) <= pairs <= np.minimum(counts, num_clients).sum()
    partition = LabelsPerClient(num_clients=num_clients, num_labels=num_labels)
    if not possible:
        with pytest.raises(ConfigError, match="num_clients|num_labels"):
            partition.rows(targets, rng(seed))
        return
    rows = partition.rows(targets, rng(seed))
    check(rows, len(targets), num_clients)
    assert {len(np.unique(targets[held])) for held in rows} == {num_labels}


@given(column=st.lists(st.one_of(st.integers(), st.booleans()), min_size=1) | st.lists(st.text(), min_size=1))
@settings(deadline=None, max_examples=60)
def test_by_column(column: list[object]) -> None:
    values = np.array(column, dtype=object)
    rows = ByColumn(column="site").rows(np.zeros(len(values)), rng(), values)
    check(rows, len(values), len(set(column)))
    assert [column[held[0]] for held in rows] == sorted(set(column))  # type: ignore[type-var]
    assert all(len({column[row] for row in held}) == 1 for held in rows)


@pytest.mark.parametrize("partition", EVERY_KIND, ids=lambda partition: type(partition).__name__)
def test_every_kind(partition: Partition) -> None:
    site = rng(5).integers(0, 4, size=len(TARGETS))

    def split(seed: int) -> list[list[int]]:
        return [held.tolist() for held in partition.rows(TARGETS, rng(seed), site)]

    assert split(1) == split(1)
    assert (split(1) != split(2)) != isinstance(partition, ByColumn)
    assert Partition.from_dict(partition.to_dict()) == partition


def test_the_base_is_no_partition() -> None:
    with pytest.raises(ConfigError, match="unknown Partition kind"):
        Partition.from_dict({"kind": "Partition"})


def test_iid_shards_mix_the_labels() -> None:
    rows = IIDShards(num_clients=6).rows(TARGETS, rng())
    assert all(np.bincount(TARGETS[held], minlength=10).min() >= 1 for held in rows)


def test_alpha_sets_the_skew() -> None:
    def labels_held(alpha: float) -> float:
        rows = Dirichlet(num_clients=20, alpha=alpha).rows(TARGETS, rng())
        return float(np.mean([len(np.unique(TARGETS[held])) for held in rows]))

    assert labels_held(0.05) < 4 < 7 < labels_held(10.0)
    even = [len(held) for held in Dirichlet(num_clients=20, alpha=1e9).rows(TARGETS, rng())]
    assert set(even) == {30}


def test_extreme_skew_still_feeds_everyone() -> None:
    rows = Dirichlet(num_clients=200, alpha=1e-6, min_records=3).rows(TARGETS, rng())
    assert {len(held) for held in rows} == {3}
    rows = Dirichlet(num_clients=50, alpha=1e-6, min_records=2).rows(TARGETS, rng())
    sizes = sorted(len(held) for held in rows)
    assert sizes[0] == 2 and sizes[39] == 2  # ten classes, so at most ten clients hold more than was topped up


def test_labels_per_client_shares_fairly_and_varies_the_pairs() -> None:
    rows = LabelsPerClient(num_clients=100, num_labels=2).rows(TARGETS, rng())
    assert {len(held) for held in rows} == {6}
    pairs = {tuple(np.unique(TARGETS[held]).tolist()) for held in rows}
    assert len(pairs) > 20


def test_labels_per_client_gives_rare_labels_few_holders() -> None:
    targets = np.repeat([0, 1, 2], [1000, 100, 3])
    rows = LabelsPerClient(num_clients=20, num_labels=1).rows(targets, rng())
    holders = np.bincount([int(targets[held[0]]) for held in rows])
    assert holders.tolist() == [17, 2, 1]


@pytest.mark.parametrize(
    ("partition", "message"),
    [
        (IIDShards(num_clients=601), "num_clients 601 is too many for 600 records"),
        (Dirichlet(num_clients=601, alpha=1.0), "num_clients 601"),
        (Dirichlet(num_clients=100, alpha=1.0, min_records=7), "num_clients 100 with min_records 7"),
        (LabelsPerClient(num_clients=601, num_labels=1), "num_clients 601"),
        (LabelsPerClient(num_clients=20, num_labels=11), "num_labels is 11.*only 10 labels"),
        (LabelsPerClient(num_clients=4, num_labels=2), "num_clients x num_labels is 8.*all 10 labels"),
        (LabelsPerClient(num_clients=400, num_labels=2), "num_labels 2 needs 800 groups.*600 at most"),
        (ByColumn(column="site"), "column 'site'.*CSV or Parquet"),
    ],
    ids=str,
)
def test_what_cannot_work_names_the_option(partition: Partition, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        partition.rows(TARGETS, rng())


@pytest.mark.parametrize(
    ("kind", "values", "option"),
    [
        (IIDShards, {"num_clients": 0}, "num_clients"),
        (Dirichlet, {"num_clients": 2, "alpha": 0.0}, "alpha"),
        (Dirichlet, {"num_clients": 2, "alpha": float("nan")}, "alpha"),
        (Dirichlet, {"num_clients": 2, "alpha": 1.0, "min_records": 0}, "min_records"),
        (LabelsPerClient, {"num_clients": 2, "num_labels": 1.5}, "num_labels"),
        (ByColumn, {"column": ""}, "column"),
    ],
)
def test_bad_options_are_named(kind: type[Partition], values: dict[str, float], option: str) -> None:
    with pytest.raises(ConfigError, match=option):
        kind(**values)


@pytest.mark.parametrize(
    "targets", [np.linspace(0, 1, 9), np.zeros((9, 2), dtype=int)], ids=["real", "two-dimensional"]
)
def test_label_skew_needs_labels(targets: np.ndarray) -> None:
    for partition in (Dirichlet(num_clients=2, alpha=1.0), LabelsPerClient(num_clients=2, num_labels=1)):
        with pytest.raises(ConfigError, match="needs one whole-number class label per record.*IIDShards"):
            partition.rows(targets, rng())
    check(IIDShards(num_clients=3).rows(targets, rng()), 9, 3)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (np.array([1.0, np.nan, 2.0]), "no value in row 2"),
        (np.array(["a", "b", None], dtype=object), "no value in row 3"),
        (np.array(["a", 1, "b"], dtype=object), "mixes text and numbers"),
        (np.array([1, 2]), r"shape \(2,\), but there are 3 records"),
    ],
)
def test_bad_columns(column: np.ndarray, message: str) -> None:
    with pytest.raises(DataError, match=message):
        ByColumn(column="site").rows(np.zeros(3), rng(), column)


def test_no_records() -> None:
    with pytest.raises(ConfigError, match="0 records"):
        ByColumn(column="site").rows(np.zeros(0), rng(), np.zeros(0))
