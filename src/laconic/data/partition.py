"""Ways to deal the records of one pooled table out to clients. Every record goes to exactly one client."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from laconic.errors import ConfigError, DataError
from laconic.parts import Part, positive, positive_int

Rows = list[np.ndarray] | np.ndarray
"""For every client the rows it holds: a list of arrays, or a 2-D array when all hold equally many."""


@dataclass(frozen=True, kw_only=True)
class Partition(Part, ABC):
    """A rule that says which rows of a table each client holds."""

    @abstractmethod
    def rows(self, targets: np.ndarray, rng: np.random.Generator, column: np.ndarray | None = None) -> Rows:
        """The clients' rows: disjoint, together all of them, and no client without any.

        `targets` has one entry per record; `column`, one value per record, is for rules that go by a column.
        """


@dataclass(frozen=True, kw_only=True)
class IIDShards(Partition):
    """Shuffle, then cut into equal shards; a remainder goes one record each to the first clients."""

    num_clients: int

    def __post_init__(self) -> None:
        positive_int(num_clients=self.num_clients)

    def rows(self, targets: np.ndarray, rng: np.random.Generator, column: np.ndarray | None = None) -> Rows:
        _enough(len(targets), self.num_clients)
        shuffled = rng.permutation(len(targets))
        if len(targets) % self.num_clients == 0:
            return shuffled.reshape(self.num_clients, -1)
        return np.array_split(shuffled, self.num_clients)


@dataclass(frozen=True, kw_only=True)
class Dirichlet(Partition):
    """Label skew: each class is divided among the clients in proportions from a Dirichlet distribution.

    A small `alpha` gives each class to few clients, a large one divides it evenly. Clients left with fewer than
    `min_records` get theirs from the client that has most at the time, so one draw is always enough.
    """

    num_clients: int
    alpha: float
    min_records: int = 1

    def __post_init__(self) -> None:
        positive_int(num_clients=self.num_clients, min_records=self.min_records)
        positive(alpha=self.alpha)

    def rows(self, targets: np.ndarray, rng: np.random.Generator, column: np.ndarray | None = None) -> Rows:
        labels = _labels(targets, "Dirichlet")
        _enough(len(labels), self.num_clients, self.min_records)
        owner = np.empty(len(labels), dtype=np.int64)
        for label in np.unique(labels):
            members = rng.permutation(np.flatnonzero(labels == label))
            ends = np.rint(np.cumsum(self._shares(rng)) * len(members)).astype(np.int64)
            ends[-1] = len(members)  # the shares sum to 1 only up to rounding
            owner[members] = np.repeat(np.arange(self.num_clients), np.diff(ends, prepend=0))
        _top_up(owner, self.num_clients, self.min_records, rng)
        return _by_owner(owner, self.num_clients)

    def _shares(self, rng: np.random.Generator) -> np.ndarray:
        # Beyond these bounds the outcome is the limit already (one client, or all alike) and floats run out.
        shares = rng.dirichlet(np.full(self.num_clients, np.clip(self.alpha, 1e-6, 1e6)))
        return np.minimum(shares, 1.0)


def _top_up(owner: np.ndarray, num_clients: int, least: int, rng: np.random.Generator) -> None:
    """Hand single records, in place, from the clients that hold most to those below `least`."""
    counts = np.bincount(owner, minlength=num_clients)
    richest = [(-int(count), client) for client, count in enumerate(counts) if count > least]
    heapq.heapify(richest)
    held = _by_owner(owner, num_clients)
    spare: dict[int, list[int]] = {}
    for poor in np.repeat(np.arange(num_clients), np.maximum(least - counts, 0)):
        minus_count, rich = heapq.heappop(richest)
        if rich not in spare:
            spare[rich] = rng.permutation(held[rich]).tolist()
        owner[spare[rich].pop()] = poor
        if -minus_count - 1 > least:
            heapq.heappush(richest, (minus_count + 1, rich))


@dataclass(frozen=True, kw_only=True)
class LabelsPerClient(Partition):
    """The pathological split: every client holds records of exactly `num_labels` classes."""

    num_clients: int
    num_labels: int

    def __post_init__(self) -> None:
        positive_int(num_clients=self.num_clients, num_labels=self.num_labels)

    def rows(self, targets: np.ndarray, rng: np.random.Generator, column: np.ndarray | None = None) -> Rows:
        labels = _labels(targets, "LabelsPerClient")
        _enough(len(labels), self.num_clients)
        _, inverse, counts = np.unique(labels, return_inverse=True, return_counts=True)
        holders = self._deal(self._holders_per_label(counts), rng)
        owner = np.empty(len(labels), dtype=np.int64)
        for label, clients in enumerate(holders):
            members = rng.permutation(np.flatnonzero(inverse == label))
            for client, part in zip(rng.permutation(clients), np.array_split(members, len(clients)), strict=True):
                owner[part] = client
        return _by_owner(owner, self.num_clients)

    def _holders_per_label(self, counts: np.ndarray) -> np.ndarray:
        """How many clients share each label: at least one, and as near as can be in proportion to its records."""
        pairs, most = self.num_clients * self.num_labels, np.minimum(counts, self.num_clients)
        if self.num_labels > len(counts):
            raise ConfigError(f"num_labels is {self.num_labels}, but the data have only {len(counts)} labels")
        if pairs < len(counts):
            raise ConfigError(
                f"num_clients x num_labels is {pairs}, too few to place all {len(counts)} labels; raise one of them"
            )
        if pairs > most.sum():
            raise ConfigError(
                f"num_clients {self.num_clients} with num_labels {self.num_labels} needs {pairs} groups of one label, "
                f"but the records make {most.sum()} at most; lower one of them"
            )
        holders = np.ones(len(counts), dtype=np.int64)
        fullest = [(-float(count), label) for label, count in enumerate(counts) if most[label] > 1]
        heapq.heapify(fullest)
        for _ in range(pairs - len(counts)):
            _, label = heapq.heappop(fullest)
            holders[label] += 1
            if holders[label] < most[label]:
                heapq.heappush(fullest, (-counts[label] / holders[label], label))
        return holders

    def _deal(self, holders: np.ndarray, rng: np.random.Generator) -> list[list[int]]:
        """The clients that hold each label.

        Each client in turn takes the labels that want most holders still, ties at random. As no label wants more
        holders than there are clients left, this never runs into a dead end.
        """
        wanted = holders.copy()
        clients: list[list[int]] = [[] for _ in holders]
        for client in range(self.num_clients):
            for label in np.lexsort((rng.random(len(wanted)), -wanted))[: self.num_labels]:
                wanted[label] -= 1
                clients[label].append(client)
        return clients


@dataclass(frozen=True, kw_only=True)
class ByColumn(Partition):
    """One client per distinct value of a column (a hospital, a user), in the order of the sorted values."""

    column: str

    def __post_init__(self) -> None:
        if not isinstance(self.column, str) or not self.column:
            raise ConfigError(f"column must be the name of a column, not {self.column!r}")

    def rows(self, targets: np.ndarray, rng: np.random.Generator, column: np.ndarray | None = None) -> Rows:
        if column is None:
            raise ConfigError(f"column '{self.column}': these data have no columns; use a CSV or Parquet table")
        values = np.asarray(column)
        _enough(len(targets), num_clients=1)
        if values.shape != (len(targets),):
            raise DataError(f"column '{self.column}' has shape {values.shape}, but there are {len(targets)} records")
        # NaN and None are not equal to themselves or not sortable: each would quietly become a client of its own.
        missing = np.array([value is None or value != value for value in values.tolist()], dtype=bool)
        if missing.any():
            raise DataError(f"column '{self.column}' has no value in row {int(missing.argmax()) + 1}")
        try:
            distinct, owner = np.unique(values, return_inverse=True)
        except TypeError:
            raise DataError(f"column '{self.column}' mixes text and numbers; make it one or the other") from None
        return _by_owner(owner, len(distinct))


def _by_owner(owner: np.ndarray, num_clients: int) -> list[np.ndarray]:
    """Every client's rows, ascending, from every row's client."""
    ends = np.cumsum(np.bincount(owner, minlength=num_clients))
    return np.split(np.argsort(owner, kind="stable"), ends[:-1])


def _enough(num_records: int, num_clients: int, min_records: int = 1) -> None:
    if num_clients * min_records > num_records:
        each = f" with min_records {min_records} each" if min_records > 1 else ""
        raise ConfigError(f"num_clients {num_clients}{each} is too many for {num_records} records; lower num_clients")


def _labels(targets: np.ndarray, who: str) -> np.ndarray:
    labels = np.asarray(targets)
    if labels.ndim != 1 or labels.dtype.kind not in "iub":
        raise ConfigError(
            f"{who} needs one whole-number class label per record, not {labels.dtype} targets of shape "
            f"{labels.shape}; use IIDShards or ByColumn"
        )
    return labels
