"""Populations whose records are features. Each record goes through the front end once, when it is first needed."""

from __future__ import annotations

import copy
from collections import OrderedDict

import torch
from torch import nn

from laconic.data.inputs import dense
from laconic.data.population import MappedPool, PooledPopulation, Population, Records
from laconic.features.blocks import in_blocks

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
        # One client is one batch: whoever else is in the cohort changes no bit of its features.
        features = in_blocks(self._front_end, raw.inputs, self._device).cpu()
        self._kept[client] = Records(features, raw.targets)
        self._kept_bytes += features.nbytes
        while self._kept_bytes > _CACHE_BYTES and len(self._kept) > 1:
            self._kept_bytes -= dense(self._kept.popitem(last=False)[1].inputs).nbytes
        return Records(features, raw.targets)

    def to(self, device: torch.device) -> ClientFeatures:
        return self
