"""Which weights matter: absolute gradients accumulated on public data."""

from __future__ import annotations

import torch
from torch import Tensor

from laconic.data.population import Records
from laconic.data.sparse import dense
from laconic.train.flat import FlatModel
from laconic.train.local import LocalSGD
from laconic.train.optimizers import make_optimizer


def accumulated_gradient(model: FlatModel, train: LocalSGD, public: Records, steps: int) -> Tensor:
    """Σ_t |∇f(w_t)| over `steps` local steps from w_0, all on the same public batch (thesis section 4.2.1)."""
    device = model.initial.device
    weights, total = model.initial.clone(), torch.zeros_like(model.initial)
    inputs, targets = dense(public.inputs).to(device), public.targets.to(device)
    share = torch.full((len(targets),), 1 / len(targets), device=device)
    gradient = torch.func.grad(model.mean_loss)
    optimizer = make_optimizer(train.optimizer, [weights], train.local_lr)
    model.module.train()
    for step in range(steps):
        key = torch.tensor(step, device=device)
        params = dict(zip(model.names, model.split(weights), strict=True))
        slope = model.join(list(gradient(params, inputs, targets, share, key).values()))
        total += slope.abs()
        optimizer.step([weights], [slope])
    return total
