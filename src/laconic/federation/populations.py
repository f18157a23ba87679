"""Who holds records, seen from one machine of a federation: a node has its own, a server has none."""

from __future__ import annotations

import torch

from laconic.data.population import Records


class OwnRecords:
    """A federation of so many clients, of which this machine is one: whichever number it has, these are its records."""

    def __init__(self, num_clients: int, records: Records) -> None:
        self._num_clients, self._records = num_clients, records

    @property
    def num_clients(self) -> int:
        return self._num_clients

    def size(self, client: int) -> int:
        return len(self._records.targets)

    def records(self, client: int) -> Records:
        return self._records

    def to(self, device: torch.device) -> OwnRecords:
        return OwnRecords(self._num_clients, self._records.to(device))


class FarRecords(OwnRecords):
    """Clients elsewhere: the records are examples that show what shape theirs have, and nobody trains on them."""

    def size(self, client: int) -> int:
        """One: that a client has at least one record is all that is known here."""
        return 1
