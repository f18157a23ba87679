"""The records of a linear layer as whole numbers, so that products with whole numbers are exact.

An entry x becomes round(2^e·x), cut to ±2^k. k depends on the number of columns alone, e on the grid of the noise: both
are public, so every owner has the same. With weights of `WEIGHT_BITS` bits a product of a row with the weights stays
below 2⁵³, and float64 gives it exactly, whatever the library and the order.
"""

from __future__ import annotations

import math
from typing import Any, Protocol, Self

import numpy as np
import torch
from torch import Tensor

from laconic.data.inputs import Inputs, SparseRows, dense

WEIGHT_BITS = 24
_MOST_NUMBERS = 1 << 23
"""A table with more is kept in float32, and made float64 some rows at a time (64 MiB)."""
_ROWS = 512
"""Rows at a time: they stay in a processor's cache."""


class Table(Protocol):
    """X (records, columns), whole numbers; the last column is 2^e where the layer has a bias."""

    finite: Tensor
    """(records, 1): which records have no NaN and no infinity. The others are zeros."""

    def times(self, weights: Tensor) -> Tensor:
        """X·W for W (columns, outputs)."""

    def transposed_times(self, values: Tensor) -> Tensor:
        """Xᵀ·V for V (records, outputs)."""

    def squares(self, kept: Tensor | None) -> Tensor:
        """(records, outputs or 1): Σ x² over the columns, or over those that are kept (columns, outputs)."""

    def products(self, first: np.ndarray, second: np.ndarray, kept: Tensor | None) -> Tensor:
        """(pairs, outputs or 1): the inner products of pairs of rows, over the same columns."""

    def some(self, rows: Tensor) -> Self:
        """Some rows, in the order asked for."""

    def dense(self) -> Tensor:
        """All of it: for few rows only."""


def table_of(inputs: Inputs, fraction_bits: int, bias: bool) -> Table:
    """The inputs with so many bits after the point."""
    if isinstance(inputs, SparseRows) and inputs.device.type == "cpu":
        return SparseTable.of(inputs, fraction_bits, bias)
    return DenseTable.of(dense(inputs), fraction_bits, bias)


def _whole(values: Tensor, fraction_bits: int, columns: int) -> Tensor:
    most = 2.0 ** min(23, 52 - WEIGHT_BITS - math.ceil(math.log2(columns + 1)))
    return values.double().mul(2.0**fraction_bits).round_().clamp_(-most, most)


class DenseTable:
    """A tensor, on any device."""

    def __init__(self, rows: Tensor, finite: Tensor) -> None:
        self._rows, self.finite = rows, finite

    @classmethod
    def of(cls, inputs: Tensor, fraction_bits: int, bias: bool) -> DenseTable:
        flat = inputs.flatten(1)
        count, columns = len(flat), flat.shape[1] + bias
        dtype = torch.float64 if count * columns <= _MOST_NUMBERS else torch.float32
        rows = torch.empty(count, columns, dtype=dtype, device=flat.device)
        finite = torch.ones(count, 1, dtype=torch.bool, device=flat.device)
        for piece in _pieces(count):
            whole = _whole(flat[piece], fraction_bits, columns)
            finite[piece] = whole.isfinite().all(1, keepdim=True) & flat[piece].isfinite().all(1, keepdim=True)
            rows[piece, : flat.shape[1]] = whole.where(finite[piece], 0.0)
        if bias:
            rows[:, -1:] = finite * 2.0**fraction_bits
        return cls(rows, finite)

    def times(self, weights: Tensor) -> Tensor:
        # Turned, so that the narrow factor comes first: on a CPU that is nearly twice as fast.
        turned, every = weights.t().contiguous(), len(self._rows)
        pieces = [slice(None)] if self._rows.dtype == torch.float64 else _pieces(every)
        found = weights.new_empty(weights.shape[1], every)
        for piece in pieces:
            found[:, piece] = turned @ self._rows[piece].double().t()
        return found.t().contiguous()

    def transposed_times(self, values: Tensor) -> Tensor:
        if self._rows.dtype == torch.float64:
            return (values.t() @ self._rows).t()
        total = values.new_zeros(values.shape[1], self._rows.shape[1])
        for piece in _pieces(len(self._rows)):
            total += values[piece].t() @ self._rows[piece].double()
        return total.t()

    def squares(self, kept: Tensor | None) -> Tensor:
        return torch.cat([_over(self._rows[piece].double().square(), kept) for piece in _pieces(len(self._rows))])

    def products(self, first: np.ndarray, second: np.ndarray, kept: Tensor | None) -> Tensor:
        found = [self._rows.new_zeros(0, 1 if kept is None else kept.shape[1], dtype=torch.float64)]
        for piece in _pieces(len(first)):
            one, other = (torch.from_numpy(rows[piece]).to(self._rows.device) for rows in (first, second))
            found.append(_over(self._rows[one].double().mul_(self._rows[other]), kept))
        return torch.cat(found)

    def some(self, rows: Tensor) -> DenseTable:
        return DenseTable(self._rows[rows], self.finite[rows])

    def dense(self) -> Tensor:
        return self._rows.double()


def _over(products: Tensor, kept: Tensor | None) -> Tensor:
    return products.sum(1, keepdim=True) if kept is None else products @ kept


class SparseTable:
    """A scipy array in the CSR layout: the cost follows the non-zeros."""

    def __init__(self, rows: Any, finite: Tensor) -> None:
        self._rows, self.finite = rows, finite

    @classmethod
    def of(cls, inputs: SparseRows, fraction_bits: int, bias: bool) -> SparseTable:
        import scipy.sparse

        rows = inputs.to_scipy().astype(np.float64)
        rows.sum_duplicates()  # an entry that is there twice counts twice, and its square is that of the sum
        columns = rows.shape[1] + bias
        values = torch.from_numpy(rows.data)
        entry_row = np.repeat(np.arange(len(inputs)), np.diff(rows.indptr))
        finite = np.ones(len(inputs), dtype=bool)
        finite[entry_row[~np.isfinite(rows.data)]] = False
        rows.data = np.where(finite[entry_row], _whole(values, fraction_bits, columns).numpy(), 0.0)
        if bias:
            last = scipy.sparse.csr_array((finite * 2.0**fraction_bits)[:, None])
            rows = scipy.sparse.csr_array(scipy.sparse.hstack([rows, last], format="csr"))
        rows.sort_indices()
        return cls(rows, torch.from_numpy(finite)[:, None])

    def times(self, weights: Tensor) -> Tensor:
        return torch.from_numpy(_product(self._rows, weights))

    def transposed_times(self, values: Tensor) -> Tensor:
        return torch.from_numpy(_product(self._rows.T, values))

    def squares(self, kept: Tensor | None) -> Tensor:
        return _sparse_over(self._rows.multiply(self._rows), kept)

    def products(self, first: np.ndarray, second: np.ndarray, kept: Tensor | None) -> Tensor:
        return _sparse_over(self._rows[first].multiply(self._rows[second]), kept)

    def some(self, rows: Tensor) -> SparseTable:
        return SparseTable(self._rows[rows.numpy()], self.finite[rows])

    def dense(self) -> Tensor:
        return torch.from_numpy(self._rows.toarray())


def _product(rows: Any, weights: Tensor) -> np.ndarray:
    """One output as a vector: scipy multiplies it several times as fast as a table of one column."""
    values = weights.numpy()
    found: np.ndarray = (rows @ values[:, 0])[:, None] if values.shape[1] == 1 else rows @ values
    return found


def _sparse_over(products: Any, kept: Tensor | None) -> Tensor:
    products = products.tocsr()
    if kept is None:
        return torch.from_numpy(np.asarray(products.sum(axis=1), dtype=np.float64).reshape(-1, 1))
    return torch.from_numpy(_product(products, kept))


def _pieces(count: int) -> list[slice]:
    return [slice(start, min(start + _ROWS, count)) for start in range(0, count, _ROWS)] or [slice(0, 0)]
