"""The coordinate-wise median."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from laconic.aggregate.base import Aggregator
from laconic.aggregate.blocks import middle, of_sorted
from laconic.parts import non_negative_int

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Median(Aggregator):
    """[med(c_1, …, c_n)]_j = med(c_1j, …, c_nj) (Yin et al. 2018, Definition 1; of two middle values, the mean).

    With fewer than n/2 attackers every coordinate stays within the range of the honest values, whatever is sent.
    `byzantine` is how many attackers are expected: a round with 2f codes or fewer is not used. All clients count alike.
    Of signs, the median is the majority vote.
    """

    byzantine: int = 0

    def __post_init__(self) -> None:
        non_negative_int(byzantine=self.byzantine)

    @property
    def least_codes(self) -> int:
        return 2 * self.byzantine + 1

    def tolerates(self, codes: int) -> int:
        return (codes - 1) // 2

    def combine(self, codes: Tensor, weights: Tensor) -> Tensor:
        return of_sorted(codes, middle)
