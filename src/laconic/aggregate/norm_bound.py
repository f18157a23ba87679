"""Norm bounding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from laconic.aggregate.base import Aggregator
from laconic.aggregate.blocks import combination, norms
from laconic.parts import positive

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
