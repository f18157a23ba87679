"""How alike pictures are: PSNR, correlation, and the best assignment of reconstructions to the records of a batch."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

BEST = 60.0
"""dB at which two pictures count as the same: all above is rounding."""


def psnr(guess: Tensor, truth: Tensor) -> Tensor:
    """10·log₁₀(1/MSE) in dB for pictures with values from 0 to 1, over all but the first axis; 60 at most."""
    error = (guess - truth).flatten(1).double().square().mean(1)
    return (-10 * torch.log10(error.clamp(min=10 ** (-BEST / 10)))).to(torch.float64)


def correlation(guess: Tensor, truth: Tensor) -> Tensor:
    """Pearson's, over all but the first axis: signs tell shapes, but not how bright they are; 0 for a constant."""
    a, b = ((x.flatten(1).double() - x.flatten(1).double().mean(1, keepdim=True)) for x in (guess, truth))
    lengths: Tensor = torch.linalg.vector_norm(a, dim=1) * torch.linalg.vector_norm(b, dim=1)
    return (a * b).sum(1) / lengths.clamp(min=1e-12)


def assigned(guesses: Tensor, truth: Tensor) -> Tensor:
    """The guesses (batch, ...) in the order of the records they fit best: a sum of gradients has no order.

    The assignment has the smallest squared error in all.
    """
    from scipy.optimize import linear_sum_assignment

    costs = torch.cdist(truth.flatten(1).double(), guesses.flatten(1).double()).square()
    _, columns = linear_sum_assignment(costs.cpu().numpy())
    return guesses[torch.from_numpy(np.asarray(columns)).to(guesses.device)]
