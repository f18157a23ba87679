"""Which weights matter: absolute gradients accumulated on public data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from laconic.data.inputs import dense
from laconic.data.population import Records
from laconic.errors import ConfigError
from laconic.train.batches import balanced, batch_schedule
from laconic.train.engines.engine import make_optimizer
from laconic.train.flat import FlatModel
from laconic.train.local import LocalSGD

_FIXED = np.zeros(1, dtype=np.uint64)
"""The stream of the public batch: always the same."""


def accumulated_gradient(model: FlatModel, train: LocalSGD, public: Records, steps: int) -> Tensor:
    """Σ_t |∇f(w_t)| over `steps` local steps from w_0, all on the same public batch (thesis section 4.2.1).

    Where local training balances classes, that batch is balanced too (UAI'21 section 4: 12 patients of each class).
    """
    device = model.initial.device
    weights, total = model.initial.clone(), torch.zeros_like(model.initial)
    rows, share = _balanced_batch(train, public)
    inputs, targets = dense(public.inputs[rows]).to(device), public.targets[rows].to(device)
    share = share.to(device)
    gradient_of = torch.func.grad(model.mean_loss)
    optimizer = make_optimizer(train.optimizer, [weights], train.local_lr)
    model.module.train()
    for step in range(steps):
        key = torch.tensor(step, device=device)
        params = dict(zip(model.names, model.split(weights), strict=True))
        gradient = model.join(list(gradient_of(params, inputs, targets, share, key).values()))
        total += gradient.abs()
        optimizer.step([weights], [gradient])
    return total


def _balanced_batch(train: LocalSGD, public: Records) -> tuple[Tensor, Tensor]:
    """(the rows of the public batch, how much each counts)."""
    sizes = np.array([len(public.targets)])
    whole = batch_schedule(replace(train, local_steps=1, epochs=None, batch_size=None), sizes, _FIXED)
    if train.balance != "none":
        whole = balanced(whole, train.balance, public.targets[None].cpu().numpy(), sizes, _FIXED)
    count = int(whole.counts[0, 0])
    if count == 0:
        raise ConfigError(
            f"the {sizes[0]} public records are of one class only, so they cannot be balanced: raise ⟨public-records⟩"
        )
    share = torch.full((count,), 1 / count) if whole.shares is None else torch.from_numpy(whole.shares[0, 0])
    return torch.from_numpy(whole.indices[0, 0, :count]), share
