"""Momentum and error feedback in the code domain."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from laconic.codecs.base import Codec
from laconic.parts import below_one, positive
from laconic.plan import RoundPlan
from laconic.server.rules import ServerRule, State


@dataclass(frozen=True, kw_only=True)
class ErrorFeedback(ServerRule):
    """What decoding loses in one round is kept for the next (EuroS&P Alg. 3, thesis Alg. 4).

    u ← ρ·u + y;  e ← e + η_G·u;  s = decode(e);  e ← e − encode(s);  w ← w + s
    """

    server_lr: float = 1.0
    momentum: float = 0.9

    def __post_init__(self) -> None:
        positive(server_lr=self.server_lr)
        below_one(momentum=self.momentum)

    def init(self, size: int, code_size: int, device: torch.device) -> State:
        return {"velocity": torch.zeros(code_size, device=device), "error": torch.zeros(code_size, device=device)}

    def step(self, mean_code: Tensor, state: State, codec: Codec, size: int, plan: RoundPlan) -> tuple[Tensor, State]:
        velocity = self.momentum * state["velocity"] + mean_code
        error = state["error"] + self.server_lr * velocity
        change = codec.decode(error, size, plan)
        return change, {"velocity": velocity, "error": error - codec.encode(change[None], plan, [])[0]}
