"""Counting votes: the weights stay as they are."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from laconic.codecs.base import Codec
from laconic.plan import RoundPlan
from laconic.server.rules import ServerRule, State

VOTES = "votes"
"""The name of the counts in the server's state, while there is a vote."""


@dataclass(frozen=True, kw_only=True)
class Tally(ServerRule):
    """votes ← votes + mean ballot, w ← w. Whoever is in several cohorts votes several times."""

    def step(self, mean_code: Tensor, state: State, codec: Codec, size: int, plan: RoundPlan) -> tuple[Tensor, State]:
        votes = state[VOTES] + mean_code if VOTES in state else mean_code
        return votes.new_zeros(size), state | {VOTES: votes}
