"""Large dense layers of which clients train a few weights: the shared weights plus each client's change of those few.

With the kept weights (i_k, j_k) and a client's changes δ_k, its layer is

    y_i = x·W₀ᵀ_i + b_i + Σ_{k: i_k = i} x_{j_k}·δ_k

Nobody copies W₀ or writes a gradient of its size, and all clients share one product with it.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor


class KeptWeights:
    """Which weights of a dense layer W₀ (out, in) are trained: `numbers`, sorted, count its entries row by row."""

    def __init__(self, shared: Tensor, numbers: Tensor) -> None:
        self.shared, self.numbers = shared, numbers
        outputs, inputs = shared.shape
        self.rows = _Groups(numbers // inputs, outputs)
        self.columns = _Groups(numbers % inputs, inputs)

    def linear(self, x: Tensor, changes: Tensor, bias: Tensor) -> Tensor:
        """The layer of one client, inside `vmap`: x (..., in), changes (kept,), bias (out,)."""
        return cast(Tensor, _InVmap.apply(x, changes, bias, self))  # type: ignore[no-untyped-call]


class _Groups:
    """Numbers of rows of a matrix, some of them several times, and sums into those rows."""

    def __init__(self, numbers: Tensor, count: int) -> None:
        self.numbers = numbers
        self._order = torch.argsort(numbers, stable=True) if numbers.is_cuda else None
        each = torch.bincount(numbers, minlength=count)
        self._borders = torch.cat([each.new_zeros(1), each.cumsum(0)])

    def of(self, matrix: Tensor) -> Tensor:
        return matrix.index_select(0, self.numbers)

    def add_to(self, matrix: Tensor, values: Tensor) -> Tensor:
        """Add each row of `values` to its row of the matrix; always in the same order."""
        if self._order is None:
            return matrix.index_add_(0, self.numbers, values)
        # On a GPU `index_add_` adds in the order in which its threads come.
        sums = torch.segment_reduce(
            values.index_select(0, self._order), "sum", offsets=self._borders, axis=0, initial=0, unsafe=True
        )
        return matrix.add_(sums)


class _KeptLinear(torch.autograd.Function):
    """The layer for all clients at once: x (clients, ..., in), changes (clients, kept), bias (clients, out).

    Inside, records are columns, so that what is picked and added are contiguous rows.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, changes: Tensor, bias: Tensor, kept: KeptWeights) -> Tensor:
        columns = x.reshape(-1, x.shape[-1]).T.contiguous()
        picked = kept.columns.of(columns)
        ctx.kept, ctx.shape = kept, x.shape
        ctx.save_for_backward(picked, changes)
        y = kept.rows.add_to(kept.shared @ columns, _times(picked, changes))
        return (y.T.reshape(len(x), -1, len(y)) + bias[:, None]).reshape(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor, Tensor, None]:
        kept, (picked, changes) = ctx.kept, ctx.saved_tensors
        columns = gradients[0].reshape(-1, gradients[0].shape[-1]).T.contiguous()
        at_rows = kept.rows.of(columns)
        by_change = (picked * at_rows).reshape(len(picked), len(changes), -1).sum(-1).T
        back = None
        if ctx.needs_input_grad[0]:
            back = kept.columns.add_to(kept.shared.T @ columns, _times(at_rows, changes)).T.reshape(ctx.shape)
        return back, by_change, columns.reshape(len(columns), len(changes), -1).sum(-1).T, None


def _times(picked: Tensor, changes: Tensor) -> Tensor:
    """(kept, clients·records) times every client's changes (clients, kept)."""
    return (picked.reshape(len(picked), len(changes), -1) * changes.T[:, :, None]).reshape(picked.shape)


class _InVmap(torch.autograd.Function):
    """The way from one client's view inside `vmap` to `_KeptLinear`, which sees all clients."""

    @staticmethod
    def forward(x: Tensor, changes: Tensor, bias: Tensor, kept: KeptWeights) -> Tensor:
        raise AssertionError("only inside vmap")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        raise AssertionError("only inside vmap")

    @staticmethod
    def vmap(
        info: Any, in_dims: Any, x: Tensor, changes: Tensor, bias: Tensor, kept: KeptWeights
    ) -> tuple[Tensor, int]:
        batched = (clients_first(t, dim, info.batch_size) for t, dim in zip((x, changes, bias), in_dims, strict=False))
        return cast(Tensor, _KeptLinear.apply(*batched, kept)), 0  # type: ignore[no-untyped-call]


def clients_first(tensor: Tensor, dim: int | None, count: int) -> Tensor:
    """What `vmap` hands over, with the clients on its first axis."""
    return tensor.expand(count, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
