"""The server: it has a few public pictures, by which FL-TOP chooses the weights to train, and some to evaluate on."""

from __future__ import annotations

from typing import Any

import numpy as np
from flwr.app import Context

from laconic.federation.flower.server_app import ServerData, server_app


def data(context: Context) -> ServerData:
    public, test = (load(str(context.run_config[f"app.{name}"])) for name in ("public", "test"))
    inputs, targets = public
    return ServerData(example=(inputs[:2], targets[:2]), num_classes=2, public=public, test=test)


def load(path: str) -> tuple[Any, Any]:
    with np.load(path) as file:
        return file["inputs"], file["targets"]


app = server_app(data)
