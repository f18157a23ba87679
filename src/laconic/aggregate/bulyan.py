"""Bulyan: Krum again and again, then a trimmed mean around the median."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from laconic.aggregate.base import Aggregator
from laconic.aggregate.blocks import middle, of_sorted, squared_distances
from laconic.aggregate.krum import krum_scores
from laconic.parts import non_negative_int

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Bulyan(Aggregator):
    """Bulyan over Krum (El Mhamdi et al. 2018, section 4).

    First θ = n − 2f codes are selected: Krum chooses one of those that are left, θ times. Then each coordinate is the
    mean of the β = θ − 2f selected values that are nearest to their median. n ≥ 4f + 3 is needed. Krum's score sums
    over n' − f − 2 neighbours where n' codes are left, but over one at least: the last choices have fewer than that.
    Two codes that are each other's only neighbour have the same score, and the first client's is taken. All clients
    count alike.
    """

    byzantine: int

    def __post_init__(self) -> None:
        non_negative_int(byzantine=self.byzantine)

    @property
    def least_codes(self) -> int:
        return 4 * self.byzantine + 3

    def tolerates(self, codes: int) -> int:
        return self.byzantine

    def combine(self, codes: Tensor, weights: Tensor) -> Tensor:
        chosen = codes[self.selected(codes)]
        dropped = 2 * self.byzantine
        return of_sorted(chosen, lambda values: _mean_around_the_median(values, dropped))

    def selected(self, codes: Tensor) -> Tensor:
        """Whose codes are left after the first step, in ascending order."""
        distances = squared_distances(codes)
        left = torch.arange(len(codes), device=codes.device)
        chosen = []
        for _ in range(len(codes) - 2 * self.byzantine):
            neighbours = max(1, len(left) - self.byzantine - 2)
            best = int(krum_scores(distances[left][:, left], neighbours).argmin())
            chosen.append(left[best])
            left = torch.cat([left[:best], left[best + 1 :]])
        return torch.stack(chosen).sort().values


def _mean_around_the_median(values: Tensor, dropped: int) -> Tensor:
    """The mean of each sorted row without the values that are farthest from its median, so many of them."""
    centre = middle(values)[:, None]
    low = torch.zeros(len(values), 1, dtype=torch.int64, device=values.device)
    high = torch.full_like(low, values.shape[1] - 1)
    for _ in range(dropped):  # the farthest is at one of the ends
        below = (values.gather(1, low) - centre).abs() > (values.gather(1, high) - centre).abs()
        low, high = low + below.long(), high - (~below).long()
    places = torch.arange(values.shape[1], device=values.device)
    kept = (places >= low) & (places <= high)
    return values.where(kept, values.new_zeros(())).sum(dim=1) / (values.shape[1] - dropped)
