"""A trial's data: every node reads the data set that the configuration names and keeps its own part of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from laconic.data.federated import FederatedData
from laconic.errors import ConfigError
from laconic.federation.populations import FarRecords, Held
from laconic.settings.config import RunConfig
from laconic.settings.data.datasets import load_federation
from laconic.settings.resolve import max_owners
from laconic.streams import Streams


def load_trial(config: RunConfig) -> FederatedData:
    """The data set, unless its name is code: a node imports nothing that a run's configuration names."""
    if ":" in config.data.dataset:
        raise ConfigError(
            f"⟨dataset⟩ {config.data.dataset} names code, which the nodes of a federation do not import: give a named"
            " data set, a folder or a table"
        )
    streams = Streams(config.run.seed)
    return load_federation(config.data, holdout=config.run.holdout, streams=streams, max_owners=max_owners(config))


def part_of(config: RunConfig, number: int) -> Held:
    """What one node holds."""
    return Held.at(load_trial(config).population, number)


@dataclass(frozen=True)
class TrialData:
    """What the server of a trial has: the test and public records of the data set, and an example of the others."""

    loaded: FederatedData

    def federation(self, num_clients: int) -> FederatedData:
        shown = self.loaded.test or self.loaded.population.records(0)
        few = shown.some(np.arange(min(2, len(shown.targets))))
        return replace(self.loaded, population=FarRecords(num_clients, few))
