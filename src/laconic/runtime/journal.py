"""The journal of charges: a round is charged before anything of it is released, and never forgotten.

A round that is replayed after a kill with the same seed on the same software and hardware repeats its release bit
for bit, so it is the same charge. In any other environment floats may differ, so the replay is a new attempt, with a
new cohort and new noise, and is charged again.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from laconic.errors import PrivacyError
from laconic.plan import RoundPlan
from laconic.runtime.folder import RunFolder

_FILE = "charges.jsonl"


class Journal:
    """Charges by (round, attempt). Without a folder it only counts."""

    def __init__(self, folder: RunFolder | None, environment: str) -> None:
        self._folder, self._environment = folder, environment
        rows = folder.rows(_FILE) if folder else []
        if folder and folder.torn(_FILE):
            folder.replace_rows(_FILE, rows)  # else the next charge would be appended to half of one
        self._charged = {(row["round"], row["attempt"]): (row["environment"], row["cohort"]) for row in rows}

    @property
    def num_charged(self) -> int:
        """How many releases were charged so far, repeated attempts counted in."""
        return len(self._charged)

    def attempt_of(self, round: int) -> int:
        """The attempt to make now: an identical replay keeps its number, anything else gets a new one.

        It is identical if the environment is the same and no earlier round was attempted anew since: such an attempt
        led to other weights, on which the old noise must not be used again.
        """
        charges = list(self._charged)  # in the order in which they were made
        earlier = [attempt for number, attempt in charges if number == round]
        if not earlier:
            return 0
        last: int = max(earlier)
        since = charges[charges.index((round, last)) + 1 :]
        same = self._charged[round, last][0] == self._environment and all(number > round for number, _ in since)
        return last if same else last + 1

    def would_add(self, round: int, attempt: int) -> int:
        """1 if the attempt is not charged yet, else 0."""
        return int((round, attempt) not in self._charged)

    def charge(self, plan: RoundPlan) -> None:
        """Write the charge down, unless it is an identical replay."""
        key = (plan.round, plan.attempt)
        cohort = plan.cohort.tolist()
        if key in self._charged:
            if self._charged[key][1] != cohort:
                raise PrivacyError(
                    f"round {plan.round} was charged with another cohort: the run was not resumed as it was started"
                )
            return
        self._charged[key] = (self._environment, cohort)
        if self._folder:
            row = {"round": plan.round, "attempt": plan.attempt, "environment": self._environment, "cohort": cohort}
            self._folder.append(_FILE, row)

    def released(self, through: int) -> list[np.ndarray]:
        """Cohorts of all charges up to a round, and of attempts at later ones that will not be replayed identically."""
        return [
            np.array(cohort, dtype=np.int64)
            for (round, attempt), (_, cohort) in self._charged.items()
            if round <= through or attempt != self.attempt_of(round)
        ]

    def num_released(self, through: int) -> int:
        """How many those are."""
        return sum(r <= through or a != self.attempt_of(r) for r, a in self._charged)

    @property
    def last_round(self) -> int:
        return max((number for number, _ in self._charged), default=0)

    def most_participations(self) -> int:
        """How often the busiest client was charged, over all attempts."""
        counts = Counter(client for _, cohort in self._charged.values() for client in cohort)
        return max(counts.values(), default=0)

    def covers(self, through: int) -> bool:
        """Whether every round up to this one was charged."""
        return set(range(1, through + 1)) <= {round for round, _ in self._charged}
