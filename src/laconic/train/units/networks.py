"""Units of any model: the gradients of single records, some at a time, each clipped and put on the grid by itself.

A patient's records are added up before the clip, as whole numbers on a grid that is 256 times finer, so their order
does not matter. A record is always one of a batch of the same shape, whoever holds it. Still the libraries that
multiply matrices do not promise that a row's result has the same last bit at every place of a batch. So the sum is the
same for every split up to single steps of the grid, and mostly to the bit; `UnitSums.exact` is false.

Dropout has one mask for each round, from its public seed: it must not depend on the number of a record at its owner.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.func import grad, vmap

from laconic.codecs.base import Codec, Identity
from laconic.codecs.subset import Subset
from laconic.data.inputs import dense
from laconic.data.population import Records
from laconic.errors import ConfigError
from laconic.graphs import Replayed
from laconic.plan import RoundPlan
from laconic.train.engines.engine import products_in
from laconic.train.flat import FlatModel
from laconic.train.layers.first_linear import loss_of
from laconic.train.units.ghost import Ghosts, find_ghosts
from laconic.train.units.groups import Groups
from laconic.train.units.rounding import UnitGrid, on_grid

_NUMBERS_ON_A_CPU, _NUMBERS_ON_A_GPU = 1 << 24, 1 << 29
"""Numbers in the gradients that are looked at together, at most (64 MiB, 2 GiB)."""
_MOST_RECORDS = 256
_GHOSTS_ON_A_CPU, _GHOSTS_ON_A_GPU = 64, 1024
"""Records in one backward pass."""
_BLOCK, _MOST_PASSES = 32, 16
"""Recorded passes have a multiple of this many records. Batches of more sizes than this are not recorded."""
Batch = tuple[Tensor, Tensor, Tensor]
"""Inputs, targets, and what each record counts."""
_FINER, _MOST = 2.0**8, 2.0**50
"""A patient's gradients are added up on a grid that is this much finer, and bounded there by that."""


class _Pass:
    """Sums of clipped gradients of a batch in memory of its own, so that a GPU can record how it is made.

    A batch that is smaller is filled up with records whose share is 0: their terms are 0.
    """

    def __init__(
        self, ghosts: Ghosts, weights: Tensor, batch: Batch, mask: Tensor | None, grid: UnitGrid, size: int
    ) -> None:
        self._ghosts, self._grid = ghosts, grid
        self._batch = tuple(part.new_zeros((size, *part.shape[1:])) for part in batch)
        self._weights, self._mask = weights.clone(), None if mask is None else mask.clone()
        self._total = torch.zeros(len(weights), dtype=torch.float64, device=weights.device)
        self._run = Replayed(self._once, weights.device, "the sum of units")

    def __call__(self, weights: Tensor, batch: Batch, mask: Tensor | None) -> Tensor:
        """Valid until the next call."""
        self._weights.copy_(weights)
        for own, part in zip(self._batch, batch, strict=True):
            own[: len(part)] = part
            own[len(part) :].zero_()
        if self._mask is not None and mask is not None:
            self._mask.copy_(mask)
        self._run()
        return self._total

    def _once(self) -> None:
        x, y, share = self._batch
        self._total.copy_(self._ghosts.total(self._weights, x, y, share, self._mask, self._grid))


class NetworkUnits:
    """One owner's records for any model that `torch.func.vmap` takes."""

    def __init__(self, model: FlatModel, records: Records, groups: Groups, shares: Tensor | None) -> None:
        self._model, self._records, self._groups, self._shares = model, records, groups, shares
        # randomness="error": what a model draws on its own could not be repeated.
        self._gradient = vmap(grad(loss_of(model)), in_dims=(None, 0, 0, 0, None), randomness="error")
        self._ghosts = find_ghosts(model)
        self._passes: dict[tuple[int, bool, UnitGrid], _Pass] = {}
        self.replays = records.targets.is_cuda
        """Whether passes are recorded. Elsewhere nothing can be, and a larger batch is only work."""
        numbers = _NUMBERS_ON_A_GPU if records.targets.is_cuda else _NUMBERS_ON_A_CPU
        self._at_once = max(1, min(_MOST_RECORDS, numbers // model.size))

    def terms(self, weights: Tensor, drawn: Tensor | None, codec: Codec, plan: RoundPlan, grid: UnitGrid) -> Tensor:
        """C as int64, (m,)."""
        rows, units = self._groups.records_of(self._groups.all_units(drawn))
        if self._ghosts is not None and self._groups.single and isinstance(codec, Identity | Subset):
            return self._ghostly(self._ghosts, weights, rows, codec, plan, grid)
        total = torch.zeros(codec.code_size(len(weights)), dtype=torch.int64, device=weights.device)
        waiting: tuple[int, Tensor] | None = None
        # Always float32: what TF32 gives depends on the device.
        with products_in("float32", weights.device):
            for start in range(0, len(rows), self._at_once):
                some = slice(start, start + self._at_once)
                gradients = self._gradients(weights, rows[some], plan)
                if self._groups.single:
                    total += self._summed(gradients, codec, plan, grid, 1.0)
                    continue
                fine = grid.steps * _FINER
                whole = gradients.double().mul_(fine).round_()
                # Infinities become NaN, so that they do not pass as the largest number.
                whole = whole.where(whole.isfinite(), torch.nan).clamp_(-_MOST, _MOST)
                numbers, places = np.unique(units[some], return_inverse=True)
                sums = whole.new_zeros(len(numbers), whole.shape[1])
                sums.index_add_(0, torch.from_numpy(places).to(sums.device), whole)
                if waiting is not None:
                    if waiting[0] == numbers[0]:
                        sums[0] += waiting[1]
                    else:
                        total += self._summed(waiting[1][None], codec, plan, grid, fine)
                waiting = int(numbers[-1]), sums[-1].clone()
                if len(sums) > 1:
                    total += self._summed(sums[:-1], codec, plan, grid, fine)
            if waiting is not None:
                total += self._summed(waiting[1][None], codec, plan, grid, fine)
        self._model.check_constants()
        return total

    def _ghostly(
        self, ghosts: Ghosts, weights: Tensor, rows: np.ndarray, codec: Codec, plan: RoundPlan, grid: UnitGrid
    ) -> Tensor:
        """C from records that are units, without their gradients."""
        kept = codec.kept(len(weights), plan, weights.device) if isinstance(codec, Subset) else None
        mask = None if kept is None else torch.zeros_like(weights).index_fill_(0, kept, 1.0)
        total = torch.zeros(len(weights), dtype=torch.float64, device=weights.device)
        at_once = _GHOSTS_ON_A_GPU if weights.is_cuda else _GHOSTS_ON_A_CPU
        with products_in("float32", weights.device):
            index = torch.from_numpy(rows).to(weights.device)
            for start in range(0, len(rows), at_once):
                batch = self._batch(index[start : start + at_once])
                if self.replays:
                    total += self._replayed(ghosts, weights, batch, mask, grid)
                else:
                    total += ghosts.total(weights, *batch, mask, grid)
        self._model.check_constants()
        found = total.long()
        return found if kept is None else found[kept]

    def _replayed(self, ghosts: Ghosts, weights: Tensor, batch: Batch, mask: Tensor | None, grid: UnitGrid) -> Tensor:
        """The same from a recorded pass over a batch of the next size that is one: a hundred launches become one."""
        size = -(-len(batch[0]) // _BLOCK) * _BLOCK
        name = (size, mask is None, grid)
        passed = self._passes.get(name)
        if passed is None and len(self._passes) >= _MOST_PASSES:
            return ghosts.total(weights, *batch, mask, grid)
        if passed is None:
            passed = self._passes[name] = _Pass(ghosts, weights, batch, mask, grid, size)
        return passed(weights, batch, mask)

    def _batch(self, index: Tensor) -> Batch:
        share = torch.ones(len(index), device=index.device) if self._shares is None else self._shares[index].float()
        return dense(self._records.inputs[index]), self._records.targets[index], share

    def _summed(self, gradients: Tensor, codec: Codec, plan: RoundPlan, grid: UnitGrid, scale: float) -> Tensor:
        """The units' part of C from their gradients, scaled."""
        codes = codec.encode(gradients, plan, [])
        return on_grid(codes if scale == 1 else codes / scale, grid).sum(0).neg_().long()

    def _gradients(self, weights: Tensor, rows: np.ndarray, plan: RoundPlan) -> Tensor:
        """(records, n), computed in a batch of the usual shape: filled up with the first record."""
        filled = np.concatenate([rows, np.full(self._at_once - len(rows), rows[0])])
        x, y, share = self._batch(torch.from_numpy(filled).to(weights.device))
        key = torch.tensor(plan.round_seed & (2**63 - 1), device=weights.device)
        self._model.module.train()
        try:
            found = self._gradient(self._model.split(weights), x[:, None], y[:, None], share[:, None], key)
        except RuntimeError as error:
            raise ConfigError(
                "the gradients of single records, which units inside clients need, cannot be computed for this model"
                f" ({(str(error).splitlines() or ['RuntimeError'])[0]}): protect whole clients (--unit client)"
            ) from None
        return self._model.join(list(found), 1)[: len(rows)]
