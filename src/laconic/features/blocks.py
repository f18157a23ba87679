"""Features of many records, block by block."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor, nn

from laconic.data.inputs import Inputs, dense
from laconic.errors import DataError

_BLOCK = {"cpu": 64, "cuda": 1024}
"""Always the same, so that a record's features have the same bits in every run of one machine."""
_THREADS = 8
"""At most so many blocks are in memory at once."""


@torch.no_grad()
def in_blocks(front_end: nn.Module, inputs: Inputs, device: torch.device) -> Tensor:
    """The features of all the records, on the device. The inputs go there a block at a time."""
    front_end = front_end.to(device).eval()
    blocks = inputs.split(_BLOCK.get(device.type, 64))
    threads = torch.get_num_threads()
    if device.type == "cpu" and threads > 1 and getattr(front_end, "for_threads", False):
        found = _at_once(front_end, blocks, min(threads, _THREADS))
    else:
        found = [front_end(dense(block).to(device)) for block in blocks]
    features = torch.cat(found)
    if not bool(torch.isfinite(features).all()):
        raise DataError("the front end makes features of some records that are not finite: check the records")
    return features


def _at_once(front_end: nn.Module, blocks: Iterable[Inputs], threads: int) -> list[Tensor]:
    """Each thread has blocks of its own. That is faster than all threads in one block, whose operations are small."""

    @torch.no_grad()
    def work(block: Inputs) -> Tensor:
        features: Tensor = front_end(dense(block))
        return features

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)  # this thread too: its helpers would keep cores busy while they wait
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            return list(pool.map(work, blocks))
    finally:
        torch.set_num_threads(before)
