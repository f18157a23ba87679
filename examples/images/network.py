"""The model of this app. Server and nodes have the same file: the server's configuration names it as network:network,
and so does each owner, where the node is started: laconic node serve … --model network:network
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn


def network(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    from math import prod

    from torch import nn

    layer = nn.Linear(prod(input_shape), num_classes)
    nn.init.zeros_(layer.weight)  # random weights would be noise to unlearn
    return nn.Sequential(nn.Flatten(), layer)
