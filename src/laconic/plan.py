"""The plan of a round: everything public that clients and server must agree on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True, kw_only=True)
class RoundPlan:
    """One attempt at one round.

    `cohort` are the announced clients, of whom `max_dropouts` may vanish and `max_colluders` may side with the
    adversary; `planned_cohort` is the public denominator. Cohorts outside `least_cohort` … `largest_cohort` are not
    opened. `run_seed` and `round_seed` are public: codecs draw their shuffles and subsets from them.

    If the cohort is summed in groups, all numbers are those of one group, and each has a plan of its own.
    """

    round: int
    attempt: int
    cohort: np.ndarray
    planned_cohort: float
    least_cohort: int = 1
    largest_cohort: int = 2**31
    max_dropouts: int = 0
    max_colluders: int = 0
    run_seed: int
    round_seed: int
    fingerprint: str
    shared: Mapping[str, Any] = field(default_factory=dict)
    """What clients were told once, before their first round (the kept coordinates of FL-TOP)."""
    planned_units: float | None = None
    """How many clipped vectors a sum is expected to hold, where clients send sums of them: declared, never counted."""
    groups: tuple[RoundPlan, ...] = ()
    excluded: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Who was drawn but is left out, since the sums of earlier rounds tell that it attacks."""

    @property
    def drawn(self) -> np.ndarray:
        """All that were drawn, sorted. Each is charged for the round: what excluded it may depend on its data."""
        return np.sort(np.concatenate([self.cohort, self.excluded])) if len(self.excluded) else self.cohort

    @property
    def sums(self) -> tuple[RoundPlan, ...]:
        """The plan of every sum: those of the groups, or this one."""
        return self.groups or (self,)

    def group_of(self, clients: np.ndarray) -> np.ndarray:
        """In which group each of the clients is."""
        members = np.concatenate([group.cohort for group in self.groups])
        numbers = np.repeat(np.arange(len(self.groups)), [len(group.cohort) for group in self.groups])
        order = np.argsort(members)
        return numbers[order][np.searchsorted(members[order], clients)]

    @property
    def slack(self) -> int:
        return self.max_dropouts + self.max_colluders

    @property
    def noise_shares(self) -> int:
        """How many shares alone must make up the noise: dropouts bring none, colluders can subtract theirs."""
        return len(self.cohort) - self.slack

    @property
    def min_survivors(self) -> int:
        """How many messages must arrive for the sum to be opened."""
        return len(self.cohort) - self.max_dropouts

    @property
    def usual_cohort(self) -> int:
        """A larger one comes with a probability below 2^−41."""
        return min(self.largest_cohort, _usual(self.planned_cohort))

    @property
    def divisor(self) -> float:
        """What a released sum is divided by, a public constant."""
        return self.planned_cohort if self.planned_units is None else self.planned_units

    @property
    def usual_vectors(self) -> int:
        """How many clipped vectors a sum holds: more come with a probability below 2^−41, if so many were declared."""
        return self.usual_cohort if self.planned_units is None else _usual(self.planned_units)

    @property
    def viable(self) -> bool:
        """Whether the sum may be opened at all, or that of any group."""
        if self.groups:
            return any(group.viable for group in self.groups)
        return self.least_cohort <= len(self.cohort) <= self.largest_cohort and self.noise_shares >= 1

    @property
    def released_variance(self) -> float:
        """The variance of the released noise in units of (S·σ)²: the same in every round, for any number that came."""
        return self.least_cohort / (self.least_cohort - self.slack) if self.slack else 1.0


def _usual(mean: float) -> int:
    """A sum of coins of this mean is larger with a probability below 2^−41, by Bernstein's inequality.

    t = ℓ/3 + √(ℓ²/9 + 2ℓμ) solves exp(−t²/2(μ + t/3)) = e^−ℓ, with μ the mean.
    """
    nats = 41 * math.log(2)
    return math.ceil(mean + nats / 3 + math.sqrt(nats**2 / 9 + 2 * nats * mean))
