"""What the attacker looks at in an update: a few thousand numbers instead of all coordinates.

`absolute` is as cited (Melis et al., S&P 2019, and their public code): sizes without signs, biases left out. Of a
vector of signs it sees nothing, as |±1| = 1. `signed` keeps signs: means over the same groups of weights, and the
biases.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from laconic.errors import ConfigError, unknown

_MOST = 5000
"""Layers with more pairs of inputs and outputs than this are summarised, or left out."""

Shapes = Sequence[torch.Size]
FeatureMap = Callable[[Tensor, Shapes], Tensor]
"""Updates (observations, n) and the shapes of the model's parameters → features (observations, f)."""


def absolute(updates: Tensor, shapes: Shapes) -> Tensor:
    """Per pair of channels max |Δw| over the kernel; of large matrices per input max |Δw| over the outputs.

    Convolutions with more than 5,000 pairs of channels are left out.
    """
    features = []
    for values in _layers(updates.abs(), shapes):
        pairs = values.shape[1] * values.shape[2] if values.ndim > 2 else 0
        if values.ndim > 3 and pairs <= _MOST:
            features.append(values.flatten(3).amax(3).flatten(1))
        elif values.ndim == 3:
            features.append(values.flatten(1) if pairs <= _MOST else values.amax(1))
    return _joined(features, "absolute")


def signed(updates: Tensor, shapes: Shapes) -> Tensor:
    """Per pair of channels the mean of Δw over the kernel; of large layers per input and per output the mean.

    Biases are taken as they are.
    """
    features = []
    for values in _layers(updates, shapes):
        if values.ndim <= 2:
            features.append(values.flatten(1))
            continue
        pairs = values.flatten(3).mean(3) if values.ndim > 3 else values
        if pairs[0].numel() <= _MOST:
            features.append(pairs.flatten(1))
        else:
            features += [pairs.mean(1), pairs.mean(2)]
    return _joined(features, "signed")


FEATURES: dict[str, FeatureMap] = {"absolute": absolute, "signed": signed}


def check_features(names: tuple[str, ...]) -> None:
    """Refuse a feature map that does not exist."""
    for name in names:
        if name not in FEATURES:
            raise ConfigError(unknown("feature map", name, FEATURES))


def _layers(updates: Tensor, shapes: Shapes) -> list[Tensor]:
    """(observations, *shape) for every parameter. A weight's first axes are outputs, then inputs."""
    parts = torch.split(updates, [shape.numel() for shape in shapes], dim=1)
    return [part.reshape(len(updates), *shape) for part, shape in zip(parts, shapes, strict=True)]


def _joined(features: list[Tensor], name: str) -> Tensor:
    if not features:
        raise ConfigError(f"--features {name} finds nothing to look at in this model: choose another --model")
    return torch.cat(features, dim=1)
