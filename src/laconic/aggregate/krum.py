"""Krum, multi-Krum and Bulyan: rules that choose the codes with the nearest neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from laconic.aggregate.base import Aggregator, combination, middle, of_sorted, squared_distances
from laconic.parts import non_negative_int, positive_int

if TYPE_CHECKING:
    from torch import Tensor


def krum_scores(distances: Tensor, neighbours: int) -> Tensor:
    """s(i) = Σ ‖c_i − c_j‖² over the nearest other codes, so many of them; from all squared distances (n, n)."""
    others = distances.clone().fill_diagonal_(float("inf"))
    scores: Tensor = others.sort(dim=1).values[:, :neighbours].sum(dim=1)
    return scores


@dataclass(frozen=True, kw_only=True)
class Krum(Aggregator):
    """The code with the smallest score, as it is (Blanchard et al. 2017, section 4).

    s(i) = Σ_{i→j} ‖c_i − c_j‖², where i→j are the n − f − 2 codes nearest to c_i. Of equal scores the first client's is
    taken. f is `byzantine`; n ≥ 2f + 3 is needed, or attackers alone could be each other's neighbours. All clients
    count alike. One client's code is released as it is: there is no averaging.
    """

    byzantine: int

    def __post_init__(self) -> None:
        non_negative_int(byzantine=self.byzantine)

    @property
    def least_codes(self) -> int:
        return 2 * self.byzantine + 3

    def tolerates(self, codes: int) -> int:
        return self.byzantine

    def combine(self, codes: Tensor, weights: Tensor) -> Tensor:
        scores = krum_scores(squared_distances(codes), len(codes) - self.byzantine - 2)
        return codes[int(scores.argmin())].clone()


@dataclass(frozen=True, kw_only=True)
class MultiKrum(Aggregator):
    """The mean of the codes with the smallest scores (Blanchard et al. 2017, section 5): of `selected`, or of n − f.

    The scores are Krum's, and so is n ≥ 2f + 3. All clients count alike.
    """

    byzantine: int
    selected: int | None = None

    def __post_init__(self) -> None:
        non_negative_int(byzantine=self.byzantine)
        if self.selected is not None:
            positive_int(selected=self.selected)

    @property
    def least_codes(self) -> int:
        return max(2 * self.byzantine + 3, self.selected or 0)

    def tolerates(self, codes: int) -> int:
        return self.byzantine

    def combine(self, codes: Tensor, weights: Tensor) -> Tensor:
        count = len(codes)
        scores = krum_scores(squared_distances(codes), count - self.byzantine - 2)
        chosen = scores.sort(stable=True).indices[: self.selected or count - self.byzantine]
        shares = scores.new_zeros(count)
        shares[chosen] = 1 / len(chosen)
        return combination(shares, codes).to(codes.dtype)


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
