"""Sparse rows do what the dense table does."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st

import laconic.data.inputs as inputs
from laconic.data.inputs import SparseRows, concatenated
from laconic.data.population import (
    FunctionPopulation,
    PooledPopulation,
    Records,
    as_records,
    gather,
    gather_rows,
    pooled_records,
)
from laconic.errors import DataError

CPU = torch.device("cpu")


def table(count: int, columns: int, seed: int = 0) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(count, columns)) * (rng.random((count, columns)) < 0.2)
    return torch.from_numpy(values.astype(np.float32))


@given(count=st.integers(1, 12), columns=st.integers(1, 9), seed=st.integers(0, 99), data=st.data())
def test_rows_are_picked_as_from_the_dense_table(count: int, columns: int, seed: int, data: st.DataObject) -> None:
    dense = table(count, columns, seed)
    rows = SparseRows.from_dense(dense)
    assert rows.shape == tuple(dense.shape) and len(rows) == count
    assert torch.equal(rows.dense(), dense)
    picked = data.draw(st.lists(st.integers(-count, count - 1), max_size=20))
    assert torch.equal(rows[torch.tensor(picked, dtype=torch.int64)].dense(), dense[torch.tensor(picked).long()])
    low, high = data.draw(st.integers(0, count)), data.draw(st.integers(0, count))
    assert torch.equal(rows[low:high].dense(), dense[low:high])
    assert torch.equal(rows[::2].dense(), dense[::2])
    mask = torch.from_numpy(np.random.default_rng(seed).random(count) < 0.5)
    assert torch.equal(rows[mask].dense(), dense[mask])
    wanted = torch.from_numpy(np.random.default_rng(seed + 1).random(columns) < 0.5)
    assert torch.equal(rows.only_columns(wanted).dense(), dense * wanted)
    weight = torch.randn(columns, 3)
    assert torch.allclose(rows.times(weight), dense @ weight, atol=1e-5)
    assert torch.equal(torch.cat([r.dense() for r in rows.split(5)]), dense)
    both = concatenated([rows, rows[:1]])
    assert torch.equal(both.dense(), torch.cat([dense, dense[:1]]))


def test_many_rows_are_picked_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "_ROWS_AT_ONCE", 3)
    dense = table(11, 6)
    order = torch.randperm(11)
    assert torch.equal(SparseRows.from_dense(dense)[order].dense(), dense[order])
    codes = SparseRows.from_scipy(scipy.sparse.csr_array((dense != 0).numpy()))
    assert codes.values is None
    assert torch.equal(codes[order].dense(), (dense != 0)[order].float())


def test_an_entry_that_is_there_twice_counts_twice() -> None:
    rows = SparseRows(torch.tensor([0, 3]), torch.tensor([1, 1, 0], dtype=torch.int32), 2)
    assert rows.dense().tolist() == [[1.0, 2.0]]
    assert rows.times(torch.eye(2)).tolist() == [[1.0, 2.0]]


def test_populations_gather_sparse_records() -> None:
    dense, targets = table(10, 5), torch.arange(10)
    held = [np.array([3, 1]), np.array([9, 0, 2]), np.array([5])]
    sparse = PooledPopulation(Records(SparseRows.from_dense(dense), targets), held)
    plain = PooledPopulation(Records(dense, targets), held)
    made = FunctionPopulation(3, lambda client: (SparseRows.from_dense(dense[held[client]]), targets[held[client]]))
    expected = gather(plain, [2, 0, 1], CPU)
    for population in (sparse, made):
        found = gather(population, [2, 0, 1], CPU)
        assert found.sizes.tolist() == [1, 2, 3]
        for block, other in zip(found[:2], expected[:2], strict=True):
            for row, size in enumerate(found.sizes):
                assert torch.equal(block[row, :size], other[row, :size])
        records, sizes = gather_rows(population, [1, 2], CPU)
        assert torch.equal(records.inputs.dense(), dense[np.concatenate([held[1], held[2]])])
        assert sizes.tolist() == [3, 1] and records.targets.tolist() == [9, 0, 2, 5]
        assert torch.equal(pooled_records(population).inputs.dense(), dense[np.concatenate(held)])


def test_scipy_matrices_are_taken_as_they_are() -> None:
    dense = table(4, 3)
    records = as_records((scipy.sparse.coo_array(dense.numpy()), [0, 1, 0, 1]), "client 0")
    assert isinstance(records.inputs, SparseRows)
    assert torch.equal(records.inputs.dense(), dense)
    assert np.array_equal(records.inputs.to_scipy().toarray(), dense.numpy())


@pytest.mark.parametrize(
    ("indptr", "indices", "values", "message"),
    [
        ([0, 1, 2], [0, 3], None, "client 7: column 3 in record 1, but there are 3 columns"),
        ([0, 1, 2], [-1, 0], None, "column -1 in record 0"),
        ([0, 1, 2], [0, 1], [1.0, float("nan")], "NaN or infinity in the inputs of record 1"),
        ([0, 1, 3], [0, 1], None, "indptr must go from 0 to the number of entries, 2"),
        ([0, 2, 1, 2], [0, 1], None, "indptr must not decrease"),
    ],
)
def test_bad_entries_are_named(indptr: list[int], indices: list[int], values: list[float] | None, message: str) -> None:
    rows = SparseRows(
        torch.tensor(indptr),
        torch.tensor(indices, dtype=torch.int32),
        3,
        None if values is None else torch.tensor(values),
    )
    with pytest.raises(DataError, match=message):
        as_records((rows, torch.zeros(len(indptr) - 1, dtype=torch.int64)), "client 7")


def test_what_does_not_fit_together_is_refused() -> None:
    rows = SparseRows.from_dense(table(3, 4))
    with pytest.raises(DataError, match="3 inputs but 2 targets"):
        as_records((rows, torch.zeros(2)), "client 0")
    with pytest.raises(DataError, match="2 indices but 1 values"):
        SparseRows(torch.tensor([0, 2]), torch.tensor([0, 1]), 3, torch.ones(1))
    with pytest.raises(DataError, match="one-dimensional"):
        SparseRows(torch.zeros(1, 2), torch.tensor([0]), 3)
    with pytest.raises(DataError, match="some are dense"):
        concatenated([rows, rows.dense()])
    with pytest.raises(DataError, match="with 4 and with 5 columns"):
        concatenated([rows, SparseRows.from_dense(table(3, 5))])
