"""Aggregators: one code in the place of many.

A weighted mean needs the sum of the codes and nothing else, so it can be masked. Every other aggregator looks at single
codes; a scheme refuses it together with a secure sum, which hides them.

*What robust rules share* sorts, measures and combines large codes, a block of coordinates at a time. A hundred codes of
a CNN are 0.7 GB. No function here copies more than a block of them per thread. Distances and sums are taken in float64:
an attacker may send values of any size, and honest codes may be close to each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from laconic.parts import Part


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


_VALUES = 1 << 20
"""Values in a block: it stays in a processor's caches."""
_VALUES_ON_A_GPU = 1 << 26


def blocks(codes: Tensor) -> Iterator[slice]:
    """Coordinates of one block after another."""
    width = max(1, (_VALUES_ON_A_GPU if codes.is_cuda else _VALUES) // len(codes))
    return (slice(start, start + width) for start in range(0, codes.shape[1], width))


def of_sorted(codes: Tensor, reduce: Callable[[Tensor], Tensor]) -> Tensor:
    """What `reduce` makes of the values of each coordinate, (coordinates, clients) in ascending order.

    On a CPU numpy sorts, on as many threads as torch has: torch's sort is some ten times slower for short rows.
    """
    if codes.is_cuda:
        return torch.cat([reduce(codes[:, block].T.contiguous().sort(dim=1).values) for block in blocks(codes)])
    result = codes.new_empty(codes.shape[1])

    def work(block: slice) -> None:
        values = np.ascontiguousarray(codes[:, block].numpy().T)
        values.sort(axis=1)
        result[block] = reduce(torch.from_numpy(values))

    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        list(pool.map(work, blocks(codes)))
    return result


def middle(values: Tensor) -> Tensor:
    """The median of sorted rows: the middle value, or the mean of the two in the middle."""
    count = values.shape[1]
    return 0.5 * values[:, (count - 1) // 2] + 0.5 * values[:, count // 2]


def squared_distances(codes: Tensor) -> Tensor:
    """‖x_i − x_j‖² for all pairs, (clients, clients) in float64: ‖x_i‖² + ‖x_j‖² − 2·x_i·x_j, by one matrix product.

    The error is some 1e-13·‖x_i‖², so two codes are told apart if they differ by more than 1e-6 of their length; what
    others send does not matter.
    """
    products = torch.zeros(len(codes), len(codes), dtype=torch.float64, device=codes.device)
    for block in blocks(codes):
        some = codes[:, block].double()
        products.addmm_(some, some.T)
    products = (products + products.T) / 2  # to the last bit the same for both of a pair: ties are ties
    squares = products.diagonal()
    distances = (squares[:, None] + squares[None] - 2 * products).clamp_(min=0)
    distances.fill_diagonal_(0)
    return distances


def combination(shares: Tensor, codes: Tensor) -> Tensor:
    """Σ_k shares_k·c_k (m), in float64."""
    result = torch.empty(codes.shape[1], dtype=torch.float64, device=codes.device)
    for block in blocks(codes):
        result[block] = shares.double() @ codes[:, block].double()
    return result


def centre_and_distances(shares: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
    """(v = Σ_k shares_k·c_k, ‖c_k − v‖ of every code), in float64, in one pass over the codes."""
    centre = torch.empty(codes.shape[1], dtype=torch.float64, device=codes.device)
    squares = torch.zeros(len(codes), dtype=torch.float64, device=codes.device)
    for block in blocks(codes):
        some = codes[:, block].double()
        centre[block] = shares @ some
        squares += (some - centre[block]).square_().sum(dim=1)
    return centre, squares.sqrt_()


def distances_to(point: Tensor, codes: Tensor) -> Tensor:
    """‖c_k − point‖ of every code (clients), in float64."""
    squares = torch.zeros(len(codes), dtype=torch.float64, device=codes.device)
    for block in blocks(codes):
        squares += (codes[:, block].double() - point[block]).square_().sum(dim=1)
    return squares.sqrt_()


def norms(codes: Tensor) -> Tensor:
    """‖c_k‖ of every code (clients), in float64."""
    return distances_to(torch.zeros(codes.shape[1], dtype=torch.float64, device=codes.device), codes)
