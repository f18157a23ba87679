"""Clipped sums of units by their definition: one backward pass for each record, in float64, without a grid."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from laconic.codecs.base import Codec
from laconic.data.inputs import dense
from laconic.data.population import Records
from laconic.plan import RoundPlan
from laconic.train.flat import FlatModel


def unit_codes(
    model: FlatModel, weights: Tensor, records: Records, units: Tensor, codec: Codec, plan: RoundPlan, shares: Tensor
) -> Tensor:
    """−P·Σ a(r)·∇ℓ(w; r) of every unit, (units, m), without a clip."""
    module = copy.deepcopy(model.module).double().train()
    with torch.no_grad():
        for parameter, value in zip(module.parameters(), model.split(weights), strict=True):
            parameter.copy_(value)
    gradients = torch.zeros(int(units.max()) + 1, model.size, dtype=torch.float64)
    for row in range(len(records.targets)):
        inputs, target = dense(records.inputs[[row]]).double(), records.targets[row : row + 1]
        loss = model.loss(module(inputs), target).sum() * float(shares[row])
        parts = torch.autograd.grad(loss, list(module.parameters()))
        gradients[units[row]] += torch.cat([part.reshape(-1) for part in parts])
    return codec.encode(-gradients, plan, [])


def clipped_sum(codes: Tensor, drawn: Tensor, clip_norm: float) -> Tensor:
    """Σ over the drawn units of c·min(1, S/‖c‖); a code that is not finite counts as zeros."""
    norms = codes.norm(dim=1, keepdim=True)
    bounded = codes * (clip_norm / norms).clamp(max=1.0)
    return bounded.where(norms.isfinite(), 0.0)[drawn].sum(0)
