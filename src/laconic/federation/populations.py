"""Who holds records, seen from one machine of a federation: a node has its own, a server has none."""

from __future__ import annotations

import numpy as np
import torch

from laconic.data.population import Records


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
    """Clients elsewhere: the records are examples that show what shape theirs have, and nobody trains on them."""

    def size(self, client: int) -> int:
        """One: that a client has at least one record is all that is known here."""
        return 1
