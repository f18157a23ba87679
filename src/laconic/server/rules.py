"""Server rules: mean code and state in, change of the weights and new state out."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from laconic.codecs.base import Codec
from laconic.parts import Part, below_one, positive
from laconic.plan import RoundPlan

State = dict[str, Tensor]
"""All that a rule remembers from round to round; it is saved with the checkpoint."""


@dataclass(frozen=True, kw_only=True)
class ServerRule(Part):
    """Base of the rules."""

    @property
    def same_step(self) -> float | None:
        """By how much every weight moves, up or down, in every round; None if that differs."""
        return None

    def init(self, size: int, code_size: int, device: torch.device) -> State:
        """The state before the first round."""
        return {}

    def step(self, mean_code: Tensor, state: State, codec: Codec, size: int, plan: RoundPlan) -> tuple[Tensor, State]:
        """(change of the weights (n,), new state)."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Average(ServerRule):
    """w ← w + η_G·v, v ← ρ·v + decode(mean code). With ρ = 0, η_G = 1: federated averaging (thesis Alg. 1)."""

    server_lr: float = 1.0
    momentum: float = 0.0

    def __post_init__(self) -> None:
        positive(server_lr=self.server_lr)
        below_one(momentum=self.momentum)

    def init(self, size: int, code_size: int, device: torch.device) -> State:
        return {"velocity": torch.zeros(size, device=device)} if self.momentum else {}

    def step(self, mean_code: Tensor, state: State, codec: Codec, size: int, plan: RoundPlan) -> tuple[Tensor, State]:
        change = codec.decode(mean_code, size, plan)
        if self.momentum:
            change = self.momentum * state["velocity"] + change
            state = {"velocity": change}
        return self.server_lr * change, state
