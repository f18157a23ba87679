"""The inputs of records: a tensor, sparse rows or pictures, and what holds for all of them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from laconic.data.pictures import Pictures
from laconic.data.sparse import SparseRows, running_sum
from laconic.errors import DataError

Inputs = Tensor | SparseRows | Pictures
"""A tensor (count, ...), sparse rows, or pictures of which tensors are made when they are picked."""


def concatenated(every: Sequence[Inputs]) -> Tensor | SparseRows:
    """One after another; all dense, or all sparse with the same columns."""
    sparse = [rows for rows in every if isinstance(rows, SparseRows)]
    if not sparse:
        return torch.cat([dense(rows) for rows in every])
    if len(sparse) < len(every):
        raise DataError("some clients' inputs are sparse and some are dense; make them all one or the other")
    widths = {rows.num_columns for rows in sparse}
    if len(widths) > 1:
        raise DataError(f"sparse inputs with {min(widths)} and with {max(widths)} columns; all need the same columns")
    lengths = torch.cat([rows.indptr.diff() for rows in sparse])
    plain = all(rows.values is None for rows in sparse)
    values = None if plain else torch.cat([rows.entry_values() for rows in sparse])
    return SparseRows(running_sum(lengths), torch.cat([rows.indices for rows in sparse]), widths.pop(), values)


def dense(inputs: Inputs) -> Tensor:
    """The inputs as a tensor: for few records only."""
    return inputs if isinstance(inputs, Tensor) else inputs.dense()


def tensors_of(inputs: Inputs) -> list[Tensor]:
    """The tensors that hold the inputs: for digests and sizes."""
    return [inputs] if isinstance(inputs, Tensor) else inputs.tensors
