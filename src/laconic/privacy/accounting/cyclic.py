"""Clients that take turns: each takes part once in so many rounds, and never sooner.

The clients are dealt at random into B groups whose sizes differ by one at most, once for the run. Round t takes group
(t − 1) mod B. So two participations of a client are exactly B rounds apart, and in T rounds it has ⌈T/B⌉ at most. Who
takes part when is no secret here: nothing amplifies, and the ε is the same for those who know it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from laconic.errors import ConfigError
from laconic.parts import positive_int
from laconic.privacy.accounting.sampling import ZERO_OUT, Sampler
from laconic.streams import Streams

if TYPE_CHECKING:
    from dp_accounting import DpEvent


@dataclass(frozen=True, kw_only=True)
class Cyclic(Sampler):
    """Every client takes part in every `separation`-th round. The noise may then be correlated over rounds.

    Args:
        separation: B, the rounds from one participation of a client to its next.

    Examples:
        >>> from laconic.streams import Streams
        >>> turns = laconic.Cyclic(separation=3)
        >>> first, second, fourth = (turns.cohort(10, Streams(0), round, 0).tolist() for round in (1, 2, 4))
        >>> len(first), set(first) & set(second), first == fourth
        (4, set(), True)

    References:
        docs/maths.md#correlated-noise; Choquette-Choo et al. (2023), who call it a minimum separation.
    """

    separation: int

    adjacency: ClassVar[str] = ZERO_OUT
    sensitivity_scale: ClassVar[float] = 1.0
    figures: ClassVar[tuple[str, ...]] = ("moments", "rdp", "pld")
    allows_participation_cap: ClassVar[bool] = False
    amplifies: ClassVar[bool] = False

    def __post_init__(self) -> None:
        positive_int(separation=self.separation)

    def check(self, num_clients: int) -> None:
        if self.separation > num_clients:
            raise ConfigError(
                f"⟨separation⟩ {self.separation}: with {num_clients} clients some rounds would have nobody: lower"
                " ⟨separation⟩, or raise ⟨num-clients⟩"
            )

    def rate_in(self, num_clients: int) -> float:
        return 1 / self.separation

    def least_cohort(self, num_clients: int, slack: int, groups: int = 1, excluded: int = 0) -> int:
        least = num_clients // self.separation
        return max(min(least // groups, slack + 1), (least - excluded) // groups)

    def largest_cohort(self, num_clients: int, groups: int = 1) -> int:
        return math.ceil(math.ceil(num_clients / self.separation) / groups)

    def dealt(self, num_clients: int) -> bool:
        return True

    def most_participations(self, rounds: int) -> int:
        return math.ceil(rounds / self.separation)

    def usual_participations(self, rounds: int, num_clients: int) -> int:
        """Those of the busiest client: it is known beforehand, and a mean would be rounded below it."""
        return self.most_participations(rounds)

    def cohort(self, num_clients: int, streams: Streams, round: int, attempt: int) -> np.ndarray:
        """The group whose turn it is, in every attempt: otherwise a repeated round would break the separation."""
        self.check(num_clients)
        order = streams.numpy("cohort", "turns").permutation(num_clients)
        return np.sort(order[(round - 1) % self.separation :: self.separation]).astype(np.int64)

    def draw(self, num_clients: int, rng: np.random.Generator) -> np.ndarray:
        raise TypeError("clients that take turns are not drawn anew in each round: use cohort")

    def released_event(self, round_event: DpEvent, num_clients: int) -> DpEvent:
        return round_event
