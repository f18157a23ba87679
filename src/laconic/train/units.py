"""The exact sum of clipped gradients of units: what an owner's records add to a masked sum.

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

import torch
from torch import Tensor
from torch.func import grad, vmap

from laconic.codecs.base import Codec
from laconic.data.inputs import dense
from laconic.data.population import Records
from laconic.errors import ConfigError
from laconic.guard.noise import MEAN_BITS
from laconic.plan import RoundPlan
from laconic.train.flat import FlatModel
from laconic.train.layers.first_linear import loss_of

_MARGIN = 1 - 2.0**-40
"""More than the roundings of a few operations in float64."""
_FINER, _MOST = 2.0**8, 2.0**50
"""Gradients of a patient's records are added up on a grid that is this much finer, and bounded there by that."""


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
    """C, (m,) int64: around C/256 the noise is drawn, as around the sum of `Noise.terms`.

    Args:
        model: whose loss is differentiated.
        weights: w (n,).
        records: all records of the owner.
        units: (records,), of which unit each record is, numbered from 0; None: every record is a unit.
        drawn: (units,), which of them contribute; None: all.
        codec: P; it must be linear.
        plan: of the round.
        clip_norm: S, of one unit at this owner.
        grid_units: how many units of the noise's grid are one of the code (`Grid.units`).
        class_weights: (classes,), a public weight for each class.
    """
    if not codec.linear:
        raise ConfigError(
            f"{type(codec).__name__} is not linear, so the code of a sum is not the sum of the units' codes: protect"
            " whole clients (--unit client), or choose another scheme"
        )
    count = len(records.targets)
    total = torch.zeros(codec.code_size(model.size), dtype=torch.int64, device=weights.device)
    if units is None:
        units = torch.arange(count, device=weights.device)
    gradient = vmap(grad(loss_of(model)), in_dims=(None, 0, 0, 0, None), randomness="error")
    model.module.train()
    params = model.split(weights)
    share = torch.ones(count, device=weights.device) if class_weights is None else class_weights[records.targets]
    for unit in range(int(units.max()) + 1 if count else 0):
        rows = torch.nonzero(units == unit)[:, 0]
        if not len(rows) or (drawn is not None and not bool(drawn[unit])):
            continue
        x, y = dense(records.inputs[rows]), records.targets[rows]
        found = gradient(params, x[:, None], y[:, None], share[rows][:, None], torch.zeros((), dtype=torch.int64))
        whole = model.join(list(found), 1).double()
        fine = (whole * (grid_units * 2**MEAN_BITS * _FINER)).clamp(-_MOST, _MOST).round().sum(0, keepdim=True)
        code = codec.encode(-fine, plan, []) / (grid_units * 2**MEAN_BITS * _FINER)
        total += on_grid(code, clip_norm=clip_norm, grid_units=grid_units)[0].long()
    return total


def on_grid(codes: Tensor, *, clip_norm: float, grid_units: float) -> Tensor:
    """Clipped codes (units, m) as whole numbers in float64: of norm S·F at most, rounding included.

    A code that is not finite becomes zeros. What comes of one row does not depend on the others.

    *Why the norm holds.* `_norms` gives n⁺ ≥ ‖c‖. The factor is f = min(F, (S·F − √m/2)/n⁺), so ‖f·c‖ ≤ S·F − √m/2.
    Rounding to the nearest moves each entry by ½ at most, so the vector by √m/2. The factor 1 − 2⁻⁴⁰ is for the
    roundings of float64.
    """
    size = codes.shape[-1]
    target = _target(clip_norm, grid_units, size)
    codes = codes.double()
    norms = _norms(codes)
    factor = (target / norms).clamp(max=grid_units * 2**MEAN_BITS * _MARGIN)
    # where(), not a product: 0 × NaN would stay NaN.
    return (codes * factor).round_().where(norms.isfinite(), codes.new_zeros(()))


def _target(clip_norm: float, grid_units: float, size: int) -> float:
    """S·F without what rounding of so many entries adds to a norm."""
    largest = clip_norm * grid_units * 2**MEAN_BITS
    if largest < 8 * math.sqrt(size):
        raise ConfigError(
            f"the grid is too coarse for single units: one of norm {clip_norm:g} has {largest:.3g} steps, and codes of"
            f" {size} values take {8 * math.sqrt(size):.3g} or more; use more --bits"
        )
    return (largest - math.sqrt(size) / 2) * _MARGIN


def _norms(codes: Tensor) -> Tensor:
    """(units, 1): an upper bound of every row's norm, a little above it; NaN or infinity if the row has one.

    The entries are scaled by the largest and rounded to b bits, so that the sum of their squares is exact in float64:
    it has the same bits in every order. Rounding moves the scaled row by √m/2 at most, which is added.
    """
    size = codes.shape[-1]
    one = 2.0 ** ((52 - math.ceil(math.log2(max(size, 1)))) // 2)
    largest = codes.abs().amax(-1, keepdim=True) if size else codes.new_zeros(len(codes), 1)
    scaled = (codes / largest.clamp(min=1e-290)).mul_(one).round_()
    return (scaled.square_().sum(-1, keepdim=True).sqrt_() + math.sqrt(size) / 2) * (largest.clamp(min=1e-290) / one)
