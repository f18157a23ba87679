"""Majority vote: the sign of the sum of signs, scaled."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from laconic.codecs.base import Codec
from laconic.parts import below_one, positive
from laconic.plan import RoundPlan
from laconic.server.rules import ServerRule, State
from laconic.streams import Stream


@dataclass(frozen=True, kw_only=True)
class MajorityVote(ServerRule):
    """w ← w + γ·sign(v), v ← ρ·v + mean of the signs (thesis Alg. 3; a tie is decided at random)."""

    sign_step: float
    momentum: float = 0.0

    def __post_init__(self) -> None:
        positive(sign_step=self.sign_step)
        below_one(momentum=self.momentum)

    @property
    def same_step(self) -> float | None:
        return self.sign_step

    def init(self, size: int, code_size: int, device: torch.device) -> State:
        return {"velocity": torch.zeros(code_size, device=device)} if self.momentum else {}

    def step(self, mean_code: Tensor, state: State, codec: Codec, size: int, plan: RoundPlan) -> tuple[Tensor, State]:
        if self.momentum:
            mean_code = self.momentum * state["velocity"] + mean_code
            state = {"velocity": mean_code}
        vote = torch.sign(codec.decode(mean_code, size, plan))
        tie = vote == 0
        if bool(tie.any()):
            coin = Stream(plan.round_seed).fork("tie").signs(tuple(vote.shape), vote.device)
            vote = torch.where(tie, coin, vote)
        return self.sign_step * vote, state
