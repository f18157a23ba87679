"""An owner of pictures: it reads its own file and answers what its policy allows.

flower-supernode … --node-config 'data="pictures.npz" folder="node" policy="policy.toml"'
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flwr.app import Context

from laconic.federation.flower.client_app import client_app

if TYPE_CHECKING:
    from torch import nn


def network(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """The model, on nodes and server alike; the server's configuration names it as client_app:network."""
    from math import prod

    from torch import nn

    layer = nn.Linear(prod(input_shape), num_classes)
    nn.init.zeros_(layer.weight)  # random weights would be noise to unlearn
    return nn.Sequential(nn.Flatten(), layer)


def records(context: Context) -> tuple[Any, Any]:
    """This owner's pictures, (count, 1, height, width), and what they show. They are used here, and never sent."""
    import numpy as np

    with np.load(str(context.node_config["data"])) as file:
        return file["inputs"], file["targets"]


app = client_app(records, model=network)
