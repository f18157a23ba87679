"""Records through a front end: in blocks of one size, and populations whose records are mapped when first needed."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor, nn

from laconic.data.inputs import Inputs, dense
from laconic.data.population import MappedPool, PooledPopulation, Population, Records, patients_of
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


_CACHE_BYTES = 1 << 30


def as_features(population: Population, front_end: nn.Module | None, device: torch.device) -> Population:
    """What the head is trained on: the features of the clients' records, or the records themselves."""
    if front_end is None:
        return population.to(device)
    if isinstance(population, PooledPopulation):  # the whole table at once, when the first cohort asks for it
        return MappedPool(population, lambda records: record_features(records, front_end, device))
    return ClientFeatures(population, copy.deepcopy(front_end), device)


def record_features(records: Records, front_end: nn.Module | None, device: torch.device) -> Records:
    """The same for records in one place."""
    if front_end is None:
        return records.to(device)
    return Records(in_blocks(copy.deepcopy(front_end), records.inputs, device), records.targets.to(device))


class ClientFeatures:
    """The features of clients that are made or read on demand; the last ones used are kept, up to a gigabyte."""

    def __init__(self, population: Population, front_end: nn.Module, device: torch.device) -> None:
        self._population, self._front_end, self._device = population, front_end, device
        self._kept: OrderedDict[int, Records] = OrderedDict()
        self._kept_bytes = 0

    @property
    def num_clients(self) -> int:
        return self._population.num_clients

    def size(self, client: int) -> int:
        return self._population.size(client)

    def records(self, client: int) -> Records:
        if client in self._kept:
            self._kept.move_to_end(client)
            return self._kept[client]
        raw = self._population.records(client)
        # Computed per client, so the bits of its features do not depend on the cohort.
        features = in_blocks(self._front_end, raw.inputs, self._device).cpu()
        self._kept[client] = Records(features, raw.targets)
        self._kept_bytes += features.nbytes
        while self._kept_bytes > _CACHE_BYTES and len(self._kept) > 1:
            self._kept_bytes -= dense(self._kept.popitem(last=False)[1].inputs).nbytes
        return Records(features, raw.targets)

    def patients(self, client: int) -> np.ndarray | None:
        return patients_of(self._population, client)

    def to(self, device: torch.device) -> ClientFeatures:
        return self
