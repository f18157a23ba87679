"""Server rules: mean code and state in, change of the weights and new state out.

`Average` and `ErrorFeedback` decode the mean, `MajorityVote` takes its signs. `Tally` and `Scores` are the rules of
votes and of evaluations, which leave the weights as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from laconic.codecs.base import Codec
from laconic.parts import Part, below_one, positive
from laconic.plan import RoundPlan
from laconic.streams import Stream

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


VOTES = "votes"
"""The name of the counts in the server's state, while there is a vote."""


@dataclass(frozen=True, kw_only=True)
class Tally(ServerRule):
    """votes ← votes + mean ballot, w ← w. A client in several cohorts votes several times."""

    def step(self, mean_code: Tensor, state: State, codec: Codec, size: int, plan: RoundPlan) -> tuple[Tensor, State]:
        votes = state[VOTES] + mean_code if VOTES in state else mean_code
        return votes.new_zeros(size), state | {VOTES: votes}


SCORES = "scores"
"""The name of the mean cells in the server's state, until the round is over."""


@dataclass(frozen=True, kw_only=True)
class Scores(ServerRule):
    """scores ← mean cells, w ← w."""

    def step(self, mean_code: Tensor, state: State, codec: Codec, size: int, plan: RoundPlan) -> tuple[Tensor, State]:
        return mean_code.new_zeros(size), state | {SCORES: mean_code}
