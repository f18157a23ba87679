"""Reading an evaluation: the weights stay as they are."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from laconic.codecs.base import Codec
from laconic.plan import RoundPlan
from laconic.server.rules import ServerRule, State

SCORES = "scores"
"""The name of the mean cells in the server's state, until the round is over."""


@dataclass(frozen=True, kw_only=True)
class Scores(ServerRule):
    """scores ← mean cells, w ← w."""

    def step(self, mean_code: Tensor, state: State, codec: Codec, size: int, plan: RoundPlan) -> tuple[Tensor, State]:
        return mean_code.new_zeros(size), state | {SCORES: mean_code}
