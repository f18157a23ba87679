"""The journal of charges: a round is charged before anything of it is released, and never forgotten.

A round that is replayed after a kill with the same seed on the same software and hardware repeats its release bit
for bit, so it is the same charge. In any other environment floats may differ, so the replay is a new attempt, with a
new cohort and new noise, and is charged again.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from laconic.errors import PrivacyError, RunFolderError
from laconic.plan import RoundPlan
from laconic.store.folder import RunFolder
from laconic.store.saves import CHARGES, WAY_OUT, Chain, Saves


class Participations:
    """Counts by client number. Clients that are not stored have count 0."""

    def __init__(self, clients: np.ndarray | None = None, counts: np.ndarray | None = None) -> None:
        """Make it from clients, each once, and their counts; ValueError for anything else."""
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
        """Count one more participation of each of these clients."""
        if len(clients):
            self._grow(int(clients.max()))
            np.add.at(self._counts, clients, 1)
            self.most = max(self.most, int(self._counts[clients].max()))

    def most_of(self, clients: np.ndarray) -> int:
        """How often the busiest of these did; 0 if there are none."""
        known = clients[clients < len(self._counts)]
        return int(self._counts[known].max(initial=0))

    def at_least(self, count: int) -> np.ndarray:
        """The clients that took part so often or more, sorted."""
        return np.flatnonzero(self._counts >= count)

    @property
    def clients(self) -> np.ndarray:
        """The clients that ever took part, sorted."""
        return np.flatnonzero(self._counts)

    @property
    def counts(self) -> np.ndarray:
        """How often each of `clients` took part."""
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


@dataclass(frozen=True)
class Charge:
    """One attempt at a round."""

    round: int
    attempt: int
    environment: str
    cohort: np.ndarray

    @classmethod
    def of(cls, row: dict[str, Any]) -> Charge:
        """The charge of a row; ValueError, TypeError, OverflowError or KeyError if it is not one."""
        round, attempt, environment, cohort = (row[key] for key in ("round", "attempt", "environment", "cohort"))
        if not isinstance(environment, str) or not isinstance(cohort, list):
            raise TypeError
        for number in (round, attempt, *cohort):
            if type(number) is not int or number < 0:
                raise TypeError
        return cls(round, attempt, environment, np.array(cohort, dtype=np.int64))

    def row(self) -> dict[str, Any]:
        return vars(self) | {"cohort": self.cohort.tolist()}


class Journal:
    """Charges by (round, attempt), and the saves between them. Without a folder it only counts."""

    def __init__(self, folder: RunFolder | None, environment: str) -> None:
        self.chain = Chain(folder) if folder else None
        self.saves = Saves(self.chain)
        self.environment = environment
        self._charged: dict[tuple[int, int], Charge] = {}
        """In the order in which they were made."""
        self._last_attempt: dict[int, int] = {}
        """By round: the last one, of any order."""
        self._again: Counter[int] = Counter()
        """By round, how many of its charges are not its first."""
        self._taken, self._taken_in = Participations(), 0
        """Participations in the first so many charges."""
        self._assumed: list[Charge] = []
        self.last_round = 0
        rows = [row for name, row in self.chain.links if name == CHARGES] if self.chain else []
        for number, row in enumerate(rows, 1):
            try:
                charge = Charge.of(row)
                if (charge.round, charge.attempt) in self._charged:
                    raise ValueError
            except (KeyError, TypeError, ValueError, OverflowError):
                assert folder is not None
                raise RunFolderError(
                    f"{folder.path / CHARGES}, line {number}, is no charge: it was altered; {WAY_OUT}"
                ) from None
            self._add(charge)

    def _add(self, charge: Charge) -> None:
        round, attempt = charge.round, charge.attempt
        self._charged[round, attempt] = charge
        if round in self._last_attempt:
            self._again[round] += 1
        self._last_attempt[round] = max(attempt, self._last_attempt.get(round, 0))
        self.last_round = max(self.last_round, round)

    @property
    def charges(self) -> list[Charge]:
        """All charges, in the order in which they were made."""
        return list(self._charged.values())

    @property
    def num_charged(self) -> int:
        """How many releases were charged so far, repeated attempts counted in."""
        return len(self._charged)

    def attempt_of(self, round: int, environment: str | None = None) -> int:
        """The attempt to make now: an identical replay keeps its number, anything else gets a new one.

        `environment` is another one than this process has.

        It is identical if the environment is the same and no earlier round was attempted anew since: such an attempt
        led to other weights, on which the old noise must not be used again.
        """
        if round not in self._last_attempt:
            return 0
        charges, last = list(self._charged), self._last_attempt[round]
        since = charges[charges.index((round, last)) + 1 :]
        same = self._charged[round, last].environment == (environment or self.environment)
        return last if same and all(number > round for number, _ in since) else last + 1

    def repeated(self, *, also: tuple[int, int] | None = None, through: int | None = None) -> Counter[int]:
        """By round, how many of its charges are not its first; `also` is about to be charged.

        Of all charges, or only of those that `num_released(through)` counts.
        """
        if through is None or through >= self.last_round:
            again = self._again.copy()
            if also is not None and also not in self._charged and also[0] in self._last_attempt:
                again[also[0]] += 1
            return again
        counted = released_charges(self.charges, through, self.environment)
        keys = {(charge.round, charge.attempt) for charge in counted} | ({also} if also is not None else set())
        return Counter({round: count - 1 for round, count in Counter(round for round, _ in keys).items() if count > 1})

    def would_add(self, round: int, attempt: int) -> int:
        """1 if the attempt is not charged yet, else 0."""
        return int((round, attempt) not in self._charged)

    def charge(self, plan: RoundPlan) -> None:
        """Write the charge down, unless it is an identical replay."""
        key, charge = (plan.round, plan.attempt), Charge(plan.round, plan.attempt, self.environment, plan.drawn)
        if key in self._charged:
            if not np.array_equal(self._charged[key].cohort, plan.drawn):
                raise PrivacyError(
                    f"round {plan.round} was charged with another cohort: the run was not resumed as it was started"
                )
            if self.chain:
                self.chain.check_in_place()
            return
        if self.chain:
            self.chain.add(CHARGES, charge.row())
        self._add(charge)

    def assume(self, charge: Charge) -> None:
        """Count a charge that may have been made and lost. `write_assumed` writes it down."""
        self._add(charge)
        self._assumed.append(charge)

    def write_assumed(self) -> None:
        """Write down what was assumed."""
        assert self.chain is not None
        for charge in self._assumed:
            self.chain.add(CHARGES, charge.row() | {"assumed": True})
        self._assumed.clear()

    def finished(self, attempts: list[tuple[int, int]]) -> list[tuple[int, int, np.ndarray]]:
        """Round, attempt and cohort of these attempts, as far as they were charged."""
        return [(*key, self._charged[key].cohort) for key in attempts if key in self._charged]

    def released(self, through: int) -> list[np.ndarray]:
        """Cohorts of all charges up to a round, and of attempts at later ones that will not be replayed identically."""
        return [charge.cohort for charge in released_charges(self.charges, through, self.environment)]

    def num_released(self, through: int) -> int:
        """How many releases `released` returns."""
        if through >= self.last_round:
            return len(self._charged)
        return len(released_charges(self.charges, through, self.environment))

    def participations(self) -> Participations:
        """How often each client was charged, over all attempts."""
        for charge in itertools.islice(self._charged.values(), self._taken_in, None):
            self._taken.add(charge.cohort)
        self._taken_in = len(self._charged)
        return self._taken

    def most_participations(self) -> int:
        """How often the busiest client was charged."""
        return self.participations().most

    def covers(self, through: int) -> bool:
        """Whether every round up to this one was charged."""
        return set(range(1, through + 1)) <= set(self._last_attempt)


def released_charges(charges: Sequence[Charge], through: int, environment: str) -> list[Charge]:
    """Those up to a round, and those of later ones that would not be replayed identically in the environment.

    Replayed is the last charge of a round, if it was made in this environment and no earlier or equal round was
    charged since (see `Journal.attempt_of`).
    """
    found: list[Charge] = []
    lowest = math.inf
    for charge in reversed(charges):
        replayed = charge.environment == environment and charge.round < lowest
        if charge.round <= through or not replayed:
            found.append(charge)
        lowest = min(lowest, charge.round)
    return found[::-1]
