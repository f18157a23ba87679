"""Server rules that choose the length of steps. All that they look at was released before, so they cost no privacy.

`Preconditioned` is for a linear layer in few rounds: strong directions of the released means get short steps.
Features of real records vary much more in a few directions than in all others. A step that is short enough for those
is too short for the rest, and few rounds end far from the optimum. The means that were released so far show the
strong directions, because most of these lie in the span of the class means. So the server can shorten its steps
there, as a Newton step would.

`Scheduled` comes after another rule's step: steps that get shorter, and the mean of the last iterates as the final
model.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from laconic.codecs.base import Codec
from laconic.errors import ConfigError
from laconic.parts import below_one, positive, positive_int
from laconic.plan import RoundPlan
from laconic.server.rules import ServerRule, State


@dataclass(frozen=True, kw_only=True)
class Preconditioned(ServerRule):
    """L ← L + U·Uᵀ, v ← ρ·v + U, w ← w + η_G·(I + L/(λ·ℓ))⁻¹·v, where U is the decoded mean as a matrix.

    U has a row for every input of the layer, and one for its bias, and a column for every output. ℓ is the largest
    eigenvalue of L. So a direction in which nothing was released keeps its whole step, and the strongest one has
    λ/(1 + λ) of it. Shampoo (Gupta, Koren and Singer 2018) keeps the same L and takes a root of its inverse.

    Args:
        outputs: C, the outputs of the layer. Its weights are C rows, and then the bias.
        damping: λ. A large one is `Average`.
        server_lr: η_G.
        momentum: ρ.

    Examples:
        >>> from laconic.server.steps import Preconditioned
        >>> Preconditioned(outputs=10, damping=0.1).momentum
        0.0

    References:
        docs/maths.md#few-rounds-of-a-linear-layer
    """

    outputs: int
    damping: float
    server_lr: float = 1.0
    momentum: float = 0.0

    def __post_init__(self) -> None:
        positive_int(outputs=self.outputs)
        positive(precondition=self.damping, server_lr=self.server_lr)
        below_one(momentum=self.momentum)

    def init(self, size: int, code_size: int, device: torch.device) -> State:
        if size % self.outputs:
            raise ConfigError(f"a linear layer of {size} weights does not have {self.outputs} outputs")
        inputs = size // self.outputs
        state = {"second_moments": torch.zeros(inputs, inputs, dtype=torch.float64, device=device)}
        return state | ({"velocity": torch.zeros(size, device=device)} if self.momentum else {})

    def step(self, mean_code: Tensor, state: State, codec: Codec, size: int, plan: RoundPlan) -> tuple[Tensor, State]:
        change = codec.decode(mean_code, size, plan)
        released = self._matrix(change)
        moments = state["second_moments"] + released @ released.T
        remembered = {"second_moments": moments}
        if self.momentum:
            change = self.momentum * state["velocity"] + change
            remembered["velocity"] = change
        return self.server_lr * self._flat(self._solved(moments, self._matrix(change))).to(change.dtype), remembered

    def _solved(self, moments: Tensor, step: Tensor) -> Tensor:
        """(I + L/(λ·ℓ))⁻¹·step."""
        largest = torch.linalg.eigvalsh(moments)[-1]
        if not bool(largest > 0):
            return step
        curvature = moments / (self.damping * largest)
        curvature.diagonal().add_(1.0)
        return torch.cholesky_solve(step, torch.linalg.cholesky(curvature))

    def _matrix(self, flat: Tensor) -> Tensor:
        """(inputs, outputs) in float64: the layer's rows as columns, and its bias as the last row."""
        weights, bias = flat[: -self.outputs].double(), flat[-self.outputs :].double()
        return torch.cat([weights.view(self.outputs, -1).T, bias[None]])

    def _flat(self, matrix: Tensor) -> Tensor:
        """The inverse of `_matrix`."""
        return torch.cat([matrix[:-1].T.reshape(-1), matrix[-1]])


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
        >>> from laconic.server.steps import Scheduled
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
            raise ConfigError(f"⟨average-last⟩ {self.average_last} of {self.rounds} rounds: give no more than ⟨rounds⟩")

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
