"""Nearest-neighbour mixing, in front of any rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from laconic.aggregate.base import Aggregator, blocks, squared_distances
from laconic.parts import non_negative_int

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class NearestNeighbourMixing(Aggregator):
    """y_i = the mean of the n − f codes nearest to c_i, itself among them; then `rule` on y_1, …, y_n.

    (Allouah et al. 2023, Algorithm 2.) It makes honest codes more alike, which is what all rules live on where clients
    have different data. f is `byzantine`; n > 2f is needed. All clients count alike.
    """

    rule: Aggregator
    byzantine: int

    def __post_init__(self) -> None:
        non_negative_int(byzantine=self.byzantine)

    @property
    def least_codes(self) -> int:
        return max(self.rule.least_codes, 2 * self.byzantine + 1)

    def tolerates(self, codes: int) -> int:
        return min(self.byzantine, self.rule.tolerates(codes))

    @property
    def remembers(self) -> bool:
        return self.rule.remembers

    def init(self, code_size: int, device: torch.device) -> dict[str, Tensor]:
        return self.rule.init(code_size, device)

    def step(self, codes: Tensor, weights: Tensor, state: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        return self.rule.step(self.mixed(codes), weights, state)

    def combine(self, codes: Tensor, weights: Tensor) -> Tensor:
        return self.rule.combine(self.mixed(codes), weights)

    def mixed(self, codes: Tensor) -> Tensor:
        """y_1, …, y_n."""
        kept = len(codes) - self.byzantine
        nearest = squared_distances(codes).fill_diagonal_(-1).sort(dim=1, stable=True).indices[:, :kept]
        shares = torch.zeros(len(codes), len(codes), dtype=torch.float64, device=codes.device)
        shares.scatter_(1, nearest, 1 / kept)
        mixed = torch.empty_like(codes)
        for block in blocks(codes):
            mixed[:, block] = (shares @ codes[:, block].double()).to(codes.dtype)
        return mixed
