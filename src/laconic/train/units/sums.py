"""The sum of an owner's units: one object that is prepared once and asked in every round.

A unit u is a record, or a patient with all its records at this owner. With the linear codec P, the loss ℓ and the
public weights of the classes a,

    c_u = −P·Σ_{records r of u} a(r)·∇ℓ(w; r),   c̄_u = c_u·min(1, S/‖c_u‖),   C = Σ_{drawn u} c̄_u.

The sign is that of an update: one step of SGD with rate 1 on the same records. C is a vector of integers on the grid
of the noise, in 256ths of its units, as `laconic.guard.noise.fixed_point` has it: F = 256·`grid_units` of them are one
unit of the code. Every unit is put on that grid by itself (`on_grid`), and then integers are added. So

- no rounding can lift what a unit contributes above S, and the noise needs nothing on top;
- C does not depend on the order of the units, nor on which owner holds which of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from laconic.codecs.base import Codec
from laconic.data.population import Records
from laconic.errors import ConfigError
from laconic.guard.noise import MEAN_BITS
from laconic.plan import RoundPlan
from laconic.train.flat import FlatModel
from laconic.train.units.groups import Groups
from laconic.train.units.linear import CANCELLED_BITS, LinearUnits, find_layer
from laconic.train.units.networks import NetworkUnits
from laconic.train.units.rounding import UnitGrid, on_grid


class _Way(Protocol):
    def terms(self, weights: Tensor, drawn: Tensor | None, codec: Codec, plan: RoundPlan, grid: UnitGrid) -> Tensor:
        """C (m,) int64."""


class UnitSums:
    """All units of one owner. The records are looked at once, and then every round costs one pass over them.

    Args:
        model: whose loss is differentiated.
        records: all records of the owner, on the device of the model.
        units: (records,), of which unit each record is, numbered from 0; None: every record is a unit.
        class_weights: (classes,), a public weight for each class.
    """

    def __init__(
        self,
        model: FlatModel,
        records: Records,
        units: Tensor | None = None,
        *,
        class_weights: Tensor | None = None,
    ) -> None:
        if units is not None and (units.shape != records.targets.shape[:1] or (len(units) and int(units.min()) < 0)):
            raise ConfigError("there must be one number of a unit for each record, from 0")
        model.check_classes(records.targets)
        self._targets = records.targets
        groups = Groups(units, len(records.targets))
        self.groups, self.num_units, self._single = groups, groups.num_units, groups.single
        shares = None if class_weights is None else class_weights[records.targets]
        layer = find_layer(model)
        self._way: _Way = (
            NetworkUnits(model, records, groups, shares)
            if layer is None
            else LinearUnits(layer, records, groups, shares)
        )

    @property
    def exact(self) -> bool:
        """Whether every split of the units gives the same bits, on every machine: see `networks` where it is not."""
        return isinstance(self._way, LinearUnits)

    def terms(
        self,
        weights: Tensor,
        *,
        drawn: Tensor | None = None,
        codec: Codec,
        plan: RoundPlan,
        clip_norm: float,
        grid_units: float,
    ) -> Tensor:
        """C, (m,) int64: around C/256 the noise is drawn, as around the sum of `Noise.terms`.

        Args:
            weights: w (n,).
            drawn: (units,), which of them contribute; None: all.
            codec: P; it must be linear.
            plan: of the round.
            clip_norm: S, of one unit at this owner.
            grid_units: how many units of the noise's grid are one of the code (`Grid.units`).
        """
        if not codec.linear:
            raise ConfigError(
                f"{type(codec).__name__} is not linear, so the code of a sum is not the sum of the units' codes:"
                " protect whole clients (--unit client), or choose another scheme"
            )
        if len(self._targets) > most_records(clip_norm, grid_units, single=self._single):
            raise ConfigError(
                f"sums of {len(self._targets)} records on a grid of {grid_units:.3g} units are not exact in float64:"
                " use fewer --bits"
            )
        grid, size = UnitGrid(clip_norm, grid_units), codec.code_size(len(weights))
        grid.check(size)
        if not self.num_units:
            return torch.zeros(size, dtype=torch.int64, device=weights.device)
        return self._way.terms(weights, drawn, codec, plan, grid)


def most_records(clip_norm: float, grid_units: float, *, single: bool) -> int:
    """How many records may be one sum, so that float64 has it exactly; `single`: each of them is a unit."""
    # Where records are added up within units, what they add may be longer than their sum.
    longest = 1.0 if single else 2.0 ** (CANCELLED_BITS + 1)
    return -1 + math.ceil(2.0**53 / (longest * clip_norm * grid_units * float(2**MEAN_BITS)))


def unit_terms(
    model: FlatModel,
    weights: Tensor,
    records: Records,
    units: Tensor | None = None,
    *,
    drawn: Tensor | None = None,
    codec: Codec,
    plan: RoundPlan,
    clip_norm: float,
    grid_units: float,
    class_weights: Tensor | None = None,
) -> Tensor:
    """`UnitSums.terms` for one round."""
    sums = UnitSums(model, records, units, class_weights=class_weights)
    return sums.terms(weights, drawn=drawn, codec=codec, plan=plan, clip_norm=clip_norm, grid_units=grid_units)


_ANSWERS = 1 << 21
"""Numbers in the answers of records that are held at once."""
_WHOLE = 2.0**30


def answer_terms(
    rows: Callable[[Tensor], Tensor], groups: Groups, *, cells: int, drawn: Tensor | None, grid: UnitGrid
) -> Tensor:
    """The sum of what units answer to a query, (cells,) int64 on the grid: the mean over a unit's records, clipped.

    Args:
        rows: from numbers of records to their answers (records, cells).
        groups: which records belong to which unit.
        cells: how many values an answer has.
        drawn: (units,), which of them answer; None: all.
        grid: S and the noise's grid.
    """
    grid.check(cells)
    total = torch.zeros(cells, dtype=torch.int64)
    units = groups.all_units(drawn)
    most = max(1, int(_ANSWERS // cells / max(1.0, groups.sizes.mean() if len(groups.sizes) else 1.0)))
    for start in range(0, len(units), most):
        some = units[start : start + most]
        records, owners = groups.records_of(some)
        whole = rows(torch.from_numpy(records)).double().cpu().mul(_WHOLE).round_()  # so that sums are exact
        places = torch.from_numpy(np.searchsorted(some, owners))
        sums = whole.new_zeros(len(some), cells).index_add_(0, places, whole)
        means = sums / torch.from_numpy(groups.sizes[some])[:, None] / _WHOLE
        total += on_grid(means, grid).sum(0).long()
    return total
