"""Features of many records, block by block."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from laconic.data.inputs import Inputs, dense
from laconic.errors import DataError

_BLOCK = {"cpu": 64, "cuda": 1024}
"""Always the same, so that a record's features have the same bits in every run of one machine."""


@torch.no_grad()
def in_blocks(front_end: nn.Module, inputs: Inputs, device: torch.device) -> Tensor:
    """The features of all the records, on the device. The inputs go there a block at a time."""
    front_end = front_end.to(device).eval()
    blocks = inputs.split(_BLOCK.get(device.type, 64))
    features = torch.cat([front_end(dense(block).to(device)) for block in blocks])
    if not bool(torch.isfinite(features).all()):
        raise DataError("the front end makes features of some records that are not finite: check the records")
    return features
