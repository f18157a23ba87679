"""What comes after another rule's step: steps that get shorter, and the mean of the last iterates as the final model.

Both look at what was released before and at nothing else, so they are post-processing and cost no privacy.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from laconic.codecs.base import Codec
from laconic.errors import ConfigError
from laconic.parts import below_one, positive_int
from laconic.plan import RoundPlan
from laconic.server.rules import ServerRule, State

_AHEAD, _SUM, _COUNT = "tail.ahead", "tail.sum", "tail.count"


@dataclass(frozen=True, kw_only=True)
class Scheduled(ServerRule):
    """c_t ← (1 − d·(t − 1)/(T − 1))·c_t for the changes c_t of `rule`; w_T ← (1/k)·Σ_{t > T−k} w_t in the last round.

    Until the last round the weights are those of the shorter steps, and clients train from them. A run that ends early
    ends with them as well. A round without a step does not count among the k: one that was discarded, without privacy.

    Args:
        rule: the rule whose changes these are.
        rounds: T, the rounds of the run.
        step_decay: d, by how much the last step is shorter than the first, below 1.
        average_last: k, over how many of the last iterates the mean is taken; 1 is the last one alone.

    Examples:
        >>> from laconic.server.rules import Average
        >>> from laconic.server.scheduled import Scheduled
        >>> Scheduled(rule=Average(), rounds=10, step_decay=0.5).factor(10)
        0.5

    References:
        Polyak and Juditsky (1992) for the mean of iterates; docs/maths.md#shorter-steps-and-the-mean-of-iterates.
    """

    rule: ServerRule
    rounds: int
    step_decay: float = 0.0
    average_last: int = 1

    def __post_init__(self) -> None:
        positive_int(rounds=self.rounds, average_last=self.average_last)
        below_one(step_decay=self.step_decay)
        if self.average_last > self.rounds:
            raise ConfigError(f"--average-last {self.average_last} of {self.rounds} rounds: give no more than --rounds")

    @property
    def momentum(self) -> float:
        """That of the rule."""
        return float(getattr(self.rule, "momentum", 0.0))

    def factor(self, number: int) -> float:
        """Of the step of this round."""
        return 1 - self.step_decay * min(1.0, (number - 1) / max(1, self.rounds - 1))

    def init(self, size: int, code_size: int, device: torch.device) -> State:
        state = self.rule.init(size, code_size, device)
        if self.average_last == 1:
            return state
        nothing = torch.zeros(size, device=device)
        return state | {_AHEAD: nothing, _SUM: nothing.clone(), _COUNT: torch.zeros((), device=device)}

    def step(self, mean_code: Tensor, state: State, codec: Codec, size: int, plan: RoundPlan) -> tuple[Tensor, State]:
        own = {name: value for name, value in state.items() if name not in (_AHEAD, _SUM, _COUNT)}
        change, own = self.rule.step(mean_code, own, codec, size, plan)
        change = self.factor(plan.round) * change
        if self.average_last == 1:
            return change, own
        before, total, count = (state[name] for name in (_AHEAD, _SUM, _COUNT))
        if plan.round > self.rounds - self.average_last:
            ahead = before + change  # from where the weights were when the last k rounds began
            total, count = total + ahead, count + 1
            if plan.round == self.rounds:
                change = total / count - before
            before = ahead
        return change, own | {_AHEAD: before, _SUM: total, _COUNT: count}
