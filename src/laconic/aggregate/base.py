"""Aggregators: one code in the place of many.

A weighted mean needs the sum of the codes and nothing else, so it can be masked. Every other aggregator looks at single
codes; a scheme refuses it together with a secure sum, which hides them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from laconic.parts import Part

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Aggregator(Part):
    """Base of the aggregators. Most have `combine` alone; one that remembers something has `init` and `step`."""

    sums: ClassVar[bool] = False
    """Whether the sum of the codes is enough."""

    @property
    def least_codes(self) -> int:
        """How many codes it takes: a round with fewer changes nothing."""
        return 1

    def tolerates(self, codes: int) -> int:
        """How many of so many codes may be anything, and the result is still bounded by the others alone."""
        return 0

    @property
    def remembers(self) -> bool:
        """Whether it starts from the code of the last round."""
        return False

    def combine(self, codes: Tensor, weights: Tensor) -> Tensor:
        """The codes (clients, m), in ascending order of the clients, and what each counts (clients) → one code (m)."""
        raise NotImplementedError

    def init(self, code_size: int, device: torch.device) -> dict[str, Tensor]:
        """What it remembers before the first round; it is saved with the checkpoint."""
        return {}

    def step(self, codes: Tensor, weights: Tensor, state: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """(one code, what is remembered for the next round)."""
        return self.combine(codes, weights), state


@dataclass(frozen=True, kw_only=True)
class WeightedMean(Aggregator):
    """Σ_k w_k·c_k / Σ_k w_k (thesis Alg. 1)."""

    sums: ClassVar[bool] = True

    def combine(self, codes: Tensor, weights: Tensor) -> Tensor:
        mean: Tensor = weights @ codes / weights.sum()
        return mean
