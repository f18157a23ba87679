"""What pictures look like before any code is seen: neighbouring pixels are alike; and guesses that need no code."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from laconic.data.population import Records


def total_variation(pictures: Tensor) -> Tensor:
    """Mean |difference| of neighbours, down and across, for each of (..., channels, height, width) (Rudin et al. 1992).

    Other inputs have no neighbours: 0.
    """
    if pictures.ndim < 4:
        return pictures.flatten(1).sum(1) * 0
    down = (pictures[..., 1:, :] - pictures[..., :-1, :]).abs().mean((-3, -2, -1))
    across = (pictures[..., 1:] - pictures[..., :-1]).abs().mean((-3, -2, -1))
    return down + across


def mean_picture(known: Records, count: int) -> Tensor:
    """The mean of pictures that are no client's, so many times: the best guess if nothing is known."""
    inputs = known.inputs
    assert isinstance(inputs, Tensor)
    return inputs.mean(0, keepdim=True).expand(count, *inputs.shape[1:])


def random_pictures(known: Records, labels: Tensor, rng: np.random.Generator) -> Tensor:
    """For each label a picture of that class that is no client's: what somebody guesses who knows the labels."""
    inputs = known.inputs
    assert isinstance(inputs, Tensor)
    rows = []
    for label in labels.tolist():
        of_class = torch.nonzero(known.targets == label).flatten()
        of_class = of_class if len(of_class) else torch.arange(len(known.targets))
        rows.append(int(of_class[int(rng.integers(len(of_class)))]))
    return inputs[rows]
