"""The engine for sparse records: the first layer's cost follows the non-zeros of a client's rows.

A client's rows X have non-zeros in few of the columns. Only those columns of the first layer's weights W take part; the
gradient of all others is exactly zero, so they stay as they are, with SGD and (from fresh state) with Adam. The rest of
the model sees the product X·Wᵀ and is trained as by the cohort engine, several clients at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from laconic.data.inputs import SparseRows
from laconic.errors import DataError
from laconic.train.engines.engine import Task, Updates, make_optimizer
from laconic.train.flat import FlatModel
from laconic.train.layers.first_linear import FirstLinear

CHUNK = 20
"""Clients at once: enough to hide Python's cost, few enough for a processor's cache."""
_MOST_BLOCK = 1 << 29
"""Numbers in one step's dense batch, at most (2 GiB)."""


class SparseFirst:
    """Several clients at once; of the first layer, only the columns that occur in their rows."""

    name = "sparse-first"

    def __init__(self, model: FlatModel, first: FirstLinear, device: torch.device, *, chunk: int | None = None) -> None:
        self._model, self._first, self._device = model, first, device
        self.chunk = chunk or CHUNK

    @property
    def at_once(self) -> int:
        return self.chunk

    def updates(self, task: Task) -> Iterator[Updates]:
        weights = self._transposed(task.weights)
        masks = None if task.trained is None else self._transposed(_mask(task))
        starts = range(0, len(task.clients), self.chunk)
        for clients in task.own(task.clients[start : start + self.chunk] for start in starts):
            yield task.then(self._some(task, clients, weights, masks))

    def _transposed(self, flat: Tensor) -> tuple[Tensor, list[Tensor]]:
        """(Wᵀ (columns, units), the rest's parameters)."""
        weight, others = self._first.apart(self._model.split(flat))
        return weight.t().contiguous(), others

    def _some(
        self,
        task: Task,
        clients: np.ndarray,
        weights: tuple[Tensor, list[Tensor]],
        masks: tuple[Tensor, list[Tensor]] | None,
    ) -> Updates:
        """`weights` are those at the beginning of the round, `masks` are 1 where they move."""
        weight, others = weights
        records, sizes, schedule, dropout = task.rows_and_batches(clients, self._device)
        assert isinstance(records.inputs, SparseRows)
        dropout = dropout.to(self._device)
        counts = torch.from_numpy(schedule.counts).to(self._device)
        batch = torch.arange(schedule.indices.shape[-1], device=self._device)
        share = (batch < counts[:, :, None]) / counts[:, :, None].clamp(min=1)  # mean over the real records
        if schedule.shares is not None:
            share = torch.from_numpy(schedule.shares).to(self._device)
        finished = bool((schedule.steps < schedule.indices.shape[1]).any())

        rows = (np.cumsum(sizes) - sizes)[:, None, None] + schedule.indices
        targets = records.targets[torch.from_numpy(rows).to(self._device)]
        first = _first_layer(records.inputs, rows, weight, task, None if masks is None else masks[0])
        params = [p.expand(len(clients), *p.shape).clone() for p in others]
        optimizer = make_optimizer(task.train.optimizer, params, task.train.local_lr)
        self._first.rest.module.train()
        for step in range(schedule.indices.shape[1]):
            active = (counts[:, step] > 0).to(weight.dtype)[:, None, None] if finished else None
            gradients, gradient = self._first.gradient(
                params, first.outputs(step), targets[:, step], share[:, step], dropout[:, step]
            )
            if masks is not None:
                gradients = [s * m for s, m in zip(gradients, masks[1], strict=True)]
            first.descend(step, gradient, active)
            gates = None if active is None else [active.reshape(-1, *[1] * (p.ndim - 1)) for p in params]
            optimizer.step(params, gradients, gates)
        self._first.rest.check_constants()
        return Updates(clients, self._joined(first, params, others), sizes)

    def _joined(self, first: _FirstLayer, params: list[Tensor], others: list[Tensor]) -> Tensor:
        """The updates of all weights (clients, n); those of W go to the columns that took part."""
        columns, moved = first.moved()
        updates = torch.zeros(len(columns), self._model.size, device=self._device)
        target, rest = self._first.apart(self._model.split(updates))
        target.scatter_(2, columns[:, None].expand(-1, target.shape[1], -1), moved.transpose(1, 2))
        for place, after, before in zip(rest, params, others, strict=True):
            torch.sub(after, before, out=place)
        return updates


def _mask(task: Task) -> Tensor:
    mask = torch.zeros_like(task.weights)
    mask[task.trained] = 1
    return mask


class _FirstLayer(Protocol):
    def outputs(self, step: int) -> Tensor:
        """X·Wᵀ of the step's batches, (clients, batch, units)."""

    def descend(self, step: int, gradient: Tensor, active: Tensor | None) -> None:
        """One step of the optimiser, from the gradient by the outputs. `active` (clients, 1, 1) is 0 at the end."""

    def moved(self) -> tuple[Tensor, Tensor]:
        """(columns (clients, width), the change of Wᵀ there (clients, width, units))."""


def _first_layer(rows: SparseRows, used: np.ndarray, weight: Tensor, task: Task, mask: Tensor | None) -> _FirstLayer:
    """`used` (clients, steps, batch) are the numbers of the rows in every batch."""
    narrow = _Narrow(rows, used, None if mask is None else mask.any(1))
    if task.train.optimizer == "sgd" and mask is None and narrow.prefers_rows:
        return _ByRows(narrow, weight, task.train.local_lr)
    return _ByColumns(narrow, weight, mask, task.train.optimizer, task.train.local_lr)


class _Narrow:
    """The rows that the clients' batches use, with each client's columns renumbered from 0.

    `columns` (clients, width) are the columns that a client's rows have, `moving` ones only. A client with fewer than
    `width` of them is given others to fill up, each once; its rows are zero there. `whole` are the rows as they were.
    """

    def __init__(self, rows: SparseRows, used: np.ndarray, moving: Tensor | None = None) -> None:
        device, clients = rows.device, len(used)
        kept, inverse = np.unique(used, return_inverse=True)
        owner = np.searchsorted(used.reshape(clients, -1).min(1), kept, side="right") - 1
        held = np.bincount(owner, minlength=clients)
        self._first = np.cumsum(held) - held
        self.numbers = torch.from_numpy(inverse.reshape(used.shape)).to(device)
        self.most_rows = int(held.max())
        self._held = held
        self.whole = rows[kept]
        some = self.whole if moving is None else self.whole.only_columns(moving)
        key = torch.from_numpy(owner).to(device)[some.row_of_entry()] * rows.num_columns + some.indices
        present = torch.zeros(clients * rows.num_columns, dtype=torch.bool, device=device)
        present[key] = True
        present = present.view(clients, -1)
        self.width = max(1, int(present.sum(1).max()))
        self.columns = torch.argsort(present.logical_not(), dim=1, stable=True)[:, : self.width]
        local = (present.cumsum(1) - 1).view(-1)[key]
        self.rows = SparseRows(some.indptr, local.to(torch.int32), self.width, some.values)

    @property
    def prefers_rows(self) -> bool:
        """Whether `_ByRows` multiplies less than `_ByColumns`, and in little memory."""
        clients, steps, batch = self.numbers.shape
        work, rows, width = steps * batch, self.most_rows, self.width
        return rows * (2 * width + work) < 2 * work * width and clients * rows * max(rows, width) <= _MOST_BLOCK // 16

    def batch(self, step: int) -> Tensor:
        """The inputs of a step, (clients, batch, width)."""
        numbers = self.numbers[:, step]
        if numbers.numel() * self.width > _MOST_BLOCK:
            raise DataError(f"batches of {numbers.shape[1]} records need too much memory: lower ⟨batch-size⟩")
        return self.rows[numbers.reshape(-1)].dense().view(*numbers.shape, self.width)

    def blocks(self) -> tuple[Tensor, Tensor]:
        """(all rows (clients, most rows, width), the numbers in `numbers` as those within the client's block)."""
        place = np.arange(self.most_rows)
        real = torch.from_numpy(place < self._held[:, None]).to(self.columns.device)
        block = torch.zeros(*real.shape, self.width, device=self.columns.device)
        block[real] = self.rows.dense()
        start = torch.from_numpy(self._first).to(self.columns.device)
        return block, self.numbers - start[:, None, None]


class _ByColumns:
    """Holds a client's columns of Wᵀ and steps on them: ∇Wᵀ = Xᵀ·gradient.

    Where only some weights move, it holds their change alone, in the columns that have any; what all the weights gave
    at the beginning is computed once for every row.
    """

    def __init__(self, narrow: _Narrow, weight: Tensor, mask: Tensor | None, optimizer: str, lr: float) -> None:
        self._narrow, self._before = narrow, weight
        self._mask = None if mask is None else mask[narrow.columns]
        self._start = None if mask is None else narrow.whole.times(weight)
        self._weight = weight[narrow.columns] if self._mask is None else torch.zeros_like(self._mask)
        self._optimizer = make_optimizer(optimizer, [self._weight], lr)
        self._last: tuple[Tensor, Tensor] | None = None

    def outputs(self, step: int) -> Tensor:
        numbers = self._narrow.numbers[:, step]
        if self._last is None or not torch.equal(self._last[0], numbers):  # batches of the whole set stay the same
            self._last = (numbers, self._narrow.batch(step))
        product = self._last[1] @ self._weight
        return product if self._start is None else product.add_(self._start[numbers])

    def descend(self, step: int, gradient: Tensor, active: Tensor | None) -> None:
        assert self._last is not None
        gradient = self._last[1].transpose(1, 2) @ gradient
        if self._mask is not None:
            gradient *= self._mask
        self._optimizer.step([self._weight], [gradient], None if active is None else [active])

    def moved(self) -> tuple[Tensor, Tensor]:
        columns = self._narrow.columns
        return columns, self._weight if self._mask is not None else self._weight - self._before[columns]


class _ByRows:
    """Never steps on W itself: under plain SGD, W = W₀ + Aᵀ·X with one coefficient per row of X and unit.

    With K = X·Xᵀ, X·Wᵀ = X·W₀ᵀ + K·A, and a step is A ← A − η·gradient. K is as small as the client's number of rows.
    """

    def __init__(self, narrow: _Narrow, weight: Tensor, lr: float) -> None:
        self._narrow, self._lr = narrow, lr
        self._block, self._numbers = narrow.blocks()
        self._kernel = self._block @ self._block.transpose(1, 2)
        self._start = self._block @ weight[narrow.columns]
        self._coefficients = torch.zeros_like(self._start)
        self._client = torch.arange(len(self._block), device=weight.device)[:, None]

    def outputs(self, step: int) -> Tensor:
        where = self._client, self._numbers[:, step]
        return torch.baddbmm(self._start[where], self._kernel[where], self._coefficients)

    def descend(self, step: int, gradient: Tensor, active: Tensor | None) -> None:
        # A client that has finished has gradient 0: its records have no weight.
        numbers = self._numbers[:, step, :, None].expand_as(gradient)
        self._coefficients.scatter_add_(1, numbers, gradient * -self._lr)

    def moved(self) -> tuple[Tensor, Tensor]:
        return self._narrow.columns, self._block.transpose(1, 2) @ self._coefficients
