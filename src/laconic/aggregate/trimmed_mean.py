"""The coordinate-wise trimmed mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from laconic.aggregate.base import Aggregator
from laconic.aggregate.blocks import of_sorted
from laconic.parts import non_negative_int

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class TrimmedMean(Aggregator):
    """Of each coordinate, the mean without the f smallest and the f largest values (Yin et al. 2018, Definition 2).

    With c_(1)j ≤ … ≤ c_(n)j it is Σ_{i=f+1}^{n−f} c_(i)j / (n − 2f), which needs n > 2f. With at most f attackers every
    coordinate stays within the range of the honest values. f is `byzantine` (β·n in the paper). All clients count
    alike.
    """

    byzantine: int

    def __post_init__(self) -> None:
        non_negative_int(byzantine=self.byzantine)

    @property
    def least_codes(self) -> int:
        return 2 * self.byzantine + 1

    def tolerates(self, codes: int) -> int:
        return self.byzantine

    def combine(self, codes: Tensor, weights: Tensor) -> Tensor:
        kept = slice(self.byzantine, len(codes) - self.byzantine)
        return of_sorted(codes, lambda values: values[:, kept].mean(dim=1))
