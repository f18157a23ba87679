"""The journal of charges: a round is charged before anything of it is released, and never forgotten.

A round that is replayed after a kill with the same seed on the same software and hardware repeats its release bit
for bit, so it is the same charge. In any other environment floats may differ, so the replay is a new attempt, with a
new cohort and new noise, and is charged again.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from laconic.errors import PrivacyError, RunFolderError
from laconic.plan import RoundPlan
from laconic.store.chain import CHARGES, WAY_OUT, Chain
from laconic.store.folder import RunFolder
from laconic.store.saves import Saves


@dataclass(frozen=True)
class Charge:
    """One attempt at a round."""

    round: int
    attempt: int
    environment: str
    cohort: list[int]

    @classmethod
    def of(cls, row: dict[str, Any]) -> Charge:
        """From a row; ValueError, TypeError or KeyError if it is none."""
        charge = cls(row["round"], row["attempt"], row["environment"], row["cohort"])
        if not isinstance(charge.environment, str) or not isinstance(charge.cohort, list):
            raise TypeError
        for number in (charge.round, charge.attempt, *charge.cohort):
            if type(number) is not int or number < 0:
                raise TypeError
        return charge


class Journal:
    """Charges by (round, attempt), and the saves between them. Without a folder it only counts."""

    def __init__(self, folder: RunFolder | None, environment: str) -> None:
        self.chain = Chain(folder) if folder else None
        self.saves = Saves(self.chain)
        self._environment = environment
        self._charged: dict[tuple[int, int], Charge] = {}
        """In the order in which they were made."""
        rows = [row for name, row in self.chain.links if name == CHARGES] if self.chain else []
        for number, row in enumerate(rows, 1):
            try:
                charge = Charge.of(row)
                if (charge.round, charge.attempt) in self._charged:
                    raise ValueError
            except (KeyError, TypeError, ValueError):
                assert folder is not None
                raise RunFolderError(
                    f"{folder.path / CHARGES}, line {number}, is no charge: it was altered; {WAY_OUT}"
                ) from None
            self._charged[charge.round, charge.attempt] = charge

    @property
    def charges(self) -> list[Charge]:
        """All of them, in the order in which they were made."""
        return list(self._charged.values())

    @property
    def num_charged(self) -> int:
        """How many releases were charged so far, repeated attempts counted in."""
        return len(self._charged)

    def attempt_of(self, round: int) -> int:
        """The attempt to make now: an identical replay keeps its number, anything else gets a new one.

        It is identical if the environment is the same and no earlier round was attempted anew since: such an attempt
        led to other weights, on which the old noise must not be used again.
        """
        charges = list(self._charged)
        earlier = [attempt for number, attempt in charges if number == round]
        if not earlier:
            return 0
        last: int = max(earlier)
        since = charges[charges.index((round, last)) + 1 :]
        same = self._charged[round, last].environment == self._environment
        return last if same and all(number > round for number, _ in since) else last + 1

    def repeated(self, *, also: tuple[int, int] | None = None, through: int | None = None) -> Counter[int]:
        """By round, how many of its charges are not its first; `also` is about to be charged.

        Of all charges, or only of those that `num_released(through)` counts.
        """
        counted = self.charges if through is None else released_charges(self.charges, through, self._environment)
        keys = {(charge.round, charge.attempt) for charge in counted} | ({also} if also is not None else set())
        return Counter({round: count - 1 for round, count in Counter(round for round, _ in keys).items() if count > 1})

    def would_add(self, round: int, attempt: int) -> int:
        """1 if the attempt is not charged yet, else 0."""
        return int((round, attempt) not in self._charged)

    def charge(self, plan: RoundPlan) -> None:
        """Write the charge down, unless it is an identical replay."""
        key = (plan.round, plan.attempt)
        cohort = plan.drawn.tolist()
        if key in self._charged:
            if self._charged[key].cohort != cohort:
                raise PrivacyError(
                    f"round {plan.round} was charged with another cohort: the run was not resumed as it was started"
                )
            if self.chain:
                self.chain.check_in_place()
            return
        if self.chain:
            row = {"round": plan.round, "attempt": plan.attempt, "environment": self._environment, "cohort": cohort}
            self.chain.add(CHARGES, row)
        self._charged[key] = Charge(plan.round, plan.attempt, self._environment, cohort)

    def finished(self, attempts: list[tuple[int, int]]) -> list[tuple[int, int, list[int]]]:
        """Round, attempt and cohort of these attempts, as far as they were charged."""
        return [(*key, self._charged[key].cohort) for key in attempts if key in self._charged]

    def released(self, through: int) -> list[np.ndarray]:
        """Cohorts of all charges up to a round, and of attempts at later ones that will not be replayed identically."""
        return [
            np.array(charge.cohort, dtype=np.int64)
            for charge in released_charges(self.charges, through, self._environment)
        ]

    def num_released(self, through: int) -> int:
        """How many those are."""
        return len(released_charges(self.charges, through, self._environment))

    @property
    def last_round(self) -> int:
        return max((number for number, _ in self._charged), default=0)

    def participations(self) -> Counter[int]:
        """How often each client was charged, over all attempts."""
        return Counter(client for charge in self._charged.values() for client in charge.cohort)

    def most_participations(self) -> int:
        """How often the busiest client was."""
        return max(self.participations().values(), default=0)

    def covers(self, through: int) -> bool:
        """Whether every round up to this one was charged."""
        return set(range(1, through + 1)) <= {round for round, _ in self._charged}


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
