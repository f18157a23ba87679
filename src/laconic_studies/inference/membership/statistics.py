"""Numbers that grow when the target was there: an inner product with its expected code, and how well its records fit.

In a sum of |K| codes that are independent draws with covariance Σ, plus noise of variance ν in each coordinate, the
likelihood ratio of "the target's code e is in it" grows with ⟨(|K|·Σ + ν·I)⁻¹·e, sum⟩: a matched filter. Under much
noise that is the inner product with e itself.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import functional_call

from laconic.data.inputs import dense
from laconic.data.population import Records
from laconic.train.flat import FlatModel

_MOST_ROWS = 1000
_RIDGE = 1e-3
"""Without noise, directions in which clients hardly differ are trusted up to this share of the mean variance."""


def matched_filter(expected: Tensor, others: Tensor, count: int, noise_variance: float) -> Tensor:
    """(count·Σ + ν·I)⁻¹·e of length 1, with Σ from some others' codes (rows, m).

    By Woodbury's identity the system has the size of the rows, not of the code.
    """
    rows = (others[:: max(1, len(others) // _MOST_ROWS)] - others.mean(0)).double()
    scaled = rows * (count / max(1, len(rows) - 1)) ** 0.5
    spread = float(scaled.square().sum()) / scaled.shape[1]
    nu = max(noise_variance, _RIDGE * spread, 1e-30)
    system = scaled @ scaled.T + nu * torch.eye(len(rows), dtype=torch.float64, device=rows.device)
    e = expected.double()
    whitened = e - scaled.T @ torch.linalg.solve(system, scaled @ e)
    return unit(whitened).to(expected.dtype)


def unit(vector: Tensor) -> Tensor:
    """The vector of length 1 in the same direction; zeros stay zeros."""
    scaled: Tensor = vector / torch.linalg.vector_norm(vector, dim=-1, keepdim=True).clamp(min=1e-30)
    return scaled


def largest_cosine(codes: Tensor, expected: Tensor) -> Tensor:
    """max_k cos(code_k, e) of codes (trials, clients, m), all less what they have in common.

    Somebody who gets codes without names looks for the target's.
    """
    return (unit(codes) @ unit(expected)).max(dim=-1).values


@torch.no_grad()
def fit_of(model: FlatModel, weights: Tensor, records: Records) -> Tensor:
    """Mean over the records of −ln(e^loss − 1) for each of some weights (trials, n).

    For a cross-entropy that is the mean logit of the right class' probability, ln p/(1 − p), which is closer to a
    Gaussian than the loss (Carlini et al. 2022).
    """
    inputs, targets = dense(records.inputs), records.targets
    model.module.eval()

    def fit(flat: Tensor) -> Tensor:
        params = dict(zip(model.names, model.split(flat), strict=True))
        losses = model.loss(functional_call(model.module, params, (inputs,)), targets)
        return -torch.log(torch.expm1(losses.double().clamp(1e-9, 500))).mean()

    return torch.stack([fit(flat) for flat in weights])
