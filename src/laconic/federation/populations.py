"""Who holds records, seen from one machine of a federation: a node has its own, a server has none."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from laconic.data.population import Population, Records, as_records, patients_of


class Held(NamedTuple):
    """What one machine holds: records, and whose each is, as numbers; None if they do not say."""

    records: Records
    patients: np.ndarray | None = None

    @classmethod
    def of(cls, given: Records | Held) -> Held:
        return given if isinstance(given, Held) else cls(given)

    @classmethod
    def at(cls, population: Population, client: int) -> Held:
        """What one client of a population holds."""
        return cls(population.records(client), patients_of(population, client))

    @classmethod
    def given(cls, data: Any, what: str) -> Held:
        """What an owner's function gives: inputs and targets, or whose each is as well."""
        if not (isinstance(data, tuple) and len(data) == 3):
            return cls(as_records(data, what))
        inputs, targets, patients = data
        return cls(as_records((inputs, targets), what), np.asarray(patients))


class OwnRecords:
    """A federation of so many clients, of which this machine is one: whichever number it has, these are its records."""

    def __init__(self, num_clients: int, records: Records, patients: np.ndarray | None = None) -> None:
        self._num_clients, self._records, self._patients = num_clients, records, patients

    @property
    def num_clients(self) -> int:
        return self._num_clients

    def size(self, client: int) -> int:
        return len(self._records.targets)

    def records(self, client: int) -> Records:
        return self._records

    def patients(self, client: int) -> np.ndarray | None:
        """Whose each record is; None if these records do not say."""
        return self._patients

    def to(self, device: torch.device) -> OwnRecords:
        return OwnRecords(self._num_clients, self._records.to(device), self._patients)


class FarRecords(OwnRecords):
    """Clients elsewhere: the records are examples that show what shape theirs have, and are not trained on."""

    def size(self, client: int) -> int:
        """One: that a client has at least one record is all that is known here."""
        return 1

    def patients(self, client: int) -> np.ndarray:
        """True: whether a node's records say whose they are is for the node to see."""
        return np.zeros(1, dtype=np.int64)
