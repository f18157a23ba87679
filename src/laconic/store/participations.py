"""How often each client took part: four bytes for each, whoever they are and however many rounds there were."""

from __future__ import annotations

import numpy as np


class Participations:
    """Counts by client number. Nobody has taken part who is not counted yet."""

    def __init__(self, clients: np.ndarray | None = None, counts: np.ndarray | None = None) -> None:
        """From clients, each once, and their counts; ValueError if they are none."""
        self._counts = np.zeros(0, dtype=np.int32)
        self.most = 0
        """How often the busiest client took part."""
        if clients is not None and counts is not None and (len(clients) or len(counts)):
            if clients.shape != counts.shape or bool((np.diff(clients, prepend=-1) < 1).any()):
                raise ValueError("clients must be in ascending order, each with a count")
            self._grow(int(clients.max()))
            self._counts[clients] = counts
            self.most = int(counts.max())

    def __contains__(self, client: int) -> bool:
        return client < len(self._counts) and bool(self._counts[client])

    def add(self, clients: np.ndarray) -> None:
        """Each of these took part once more."""
        if len(clients):
            self._grow(int(clients.max()))
            np.add.at(self._counts, clients, 1)
            self.most = max(self.most, int(self._counts[clients].max()))

    def most_of(self, clients: np.ndarray) -> int:
        """How often the busiest of these did; 0 if there are none."""
        known = clients[clients < len(self._counts)]
        return int(self._counts[known].max(initial=0))

    def at_least(self, count: int) -> np.ndarray:
        """Who took part so often or more, sorted."""
        return np.flatnonzero(self._counts >= count)

    @property
    def clients(self) -> np.ndarray:
        """Who ever did, sorted."""
        return np.flatnonzero(self._counts)

    @property
    def counts(self) -> np.ndarray:
        """How often each of `clients` did."""
        found: np.ndarray = self._counts[self.clients].astype(np.int64)
        return found

    def copy(self) -> Participations:
        return Participations(self.clients, self.counts)

    def _grow(self, client: int) -> None:
        """Room for this client: by an eighth more than is needed, so that it is not made often."""
        if client >= len(self._counts):
            counts = np.zeros(client + 1 + client // 8, dtype=np.int32)
            counts[: len(self._counts)] = self._counts
            self._counts = counts
