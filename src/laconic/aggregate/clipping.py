"""Rules that bound how far one code can move the result: a norm bound, and centred clipping."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from laconic.aggregate.base import Aggregator, combination, distances_to, norms
from laconic.parts import positive, positive_int

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class NormBound(Aggregator):
    """1/n·Σ_k c_k/max(1, ‖c_k‖/M): no code counts for more than its bound (Sun et al. 2019, section 5).

    M is `radius`, in units of the code's norm; or, unless given, the median norm of the round's codes, which fewer than
    n/2 attackers cannot raise above the largest honest norm. It bounds what boosting is worth, and nothing else: f
    attackers move the mean by up to f·M/n each round. All clients count alike.
    """

    radius: float | None = None

    def __post_init__(self) -> None:
        if self.radius is not None:
            positive(radius=self.radius)

    def combine(self, codes: Tensor, weights: Tensor) -> Tensor:
        lengths = norms(codes)
        bound = lengths.quantile(0.5) if self.radius is None else lengths.new_tensor(self.radius)
        shares = (bound / lengths.clamp(min=1e-300)).clamp(max=1) / len(codes)
        return combination(shares, codes).to(codes.dtype)


@dataclass(frozen=True, kw_only=True)
class CentredClipping(Aggregator):
    """Steps of bounded length from the last aggregate (Karimireddy et al. 2021, Algorithm 2 and equation CC).

    v ← v + 1/n·Σ_k (c_k − v)·min(1, τ/‖c_k − v‖),   `iterations` times

    v starts where the last round ended, and at 0 in the first; τ is `radius`, in units of the code's norm. One attacker
    moves v by at most 2τ/n per iteration. The state is `last`, the aggregate of the last round: it is saved with the
    checkpoint. A code that means something else in every round has no last aggregate, and is refused (`Scheme`). All
    clients count alike.
    """

    radius: float
    iterations: int = 1

    def __post_init__(self) -> None:
        positive(radius=self.radius)
        positive_int(iterations=self.iterations)

    @property
    def remembers(self) -> bool:
        return True

    def tolerates(self, codes: int) -> int:
        return (codes - 1) // 2

    def init(self, code_size: int, device: torch.device) -> dict[str, Tensor]:
        return {"last": torch.zeros(code_size, device=device)}

    def step(self, codes: Tensor, weights: Tensor, state: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        point = state["last"].double()
        for _ in range(self.iterations):
            shares = (self.radius / distances_to(point, codes)).clamp(max=1) / len(codes)
            point = (1 - shares.sum()) * point + combination(shares, codes)
        last = point.to(codes.dtype)
        return last, {"last": last}

    def combine(self, codes: Tensor, weights: Tensor) -> Tensor:
        """The result of a first round, without a mean of the round before."""
        return self.step(codes, weights, self.init(codes.shape[1], codes.device))[0]
