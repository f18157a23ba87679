"""Rules around a median: of each coordinate, a mean of each without its extremes, and the geometric median."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from laconic.aggregate.base import Aggregator, centre_and_distances, middle, of_sorted
from laconic.parts import non_negative, non_negative_int, positive, positive_int

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Median(Aggregator):
    """[med(c_1, …, c_n)]_j = med(c_1j, …, c_nj) (Yin et al. 2018, Definition 1; of two middle values, the mean).

    With fewer than n/2 attackers every coordinate stays within the range of the honest values for any vectors sent.
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


@dataclass(frozen=True, kw_only=True)
class GeometricMedian(Aggregator):
    """argmin_v Σ_k ‖v − c_k‖, by the smoothed Weiszfeld algorithm (Pillutla et al. 2022, Algorithm 2).

    v ← Σ_k β_k·c_k / Σ_k β_k,   β_k = 1/max(ν, ‖v − c_k‖)

    from the mean, until v moves by less than `tolerance` times the median distance of the codes (which attackers cannot
    inflate, as they can the objective), at most `max_iterations` times; ν is `smoothing`, in units of the code. Fewer
    than n/2 attackers cannot move it without bound; `byzantine` is how many are expected, and a round with 2f codes or
    fewer is not used. The paper weighs clients by their data; here they count alike, since data sizes are claims.
    """

    byzantine: int = 0
    max_iterations: int = 100
    tolerance: float = 1e-5
    smoothing: float = 1e-6

    def __post_init__(self) -> None:
        non_negative_int(byzantine=self.byzantine)
        positive_int(max_iterations=self.max_iterations)
        non_negative(tolerance=self.tolerance)
        positive(smoothing=self.smoothing)

    @property
    def least_codes(self) -> int:
        return 2 * self.byzantine + 1

    def tolerates(self, codes: int) -> int:
        return (codes - 1) // 2

    def combine(self, codes: Tensor, weights: Tensor) -> Tensor:
        shares = weights.new_full((len(codes),), 1 / len(codes)).double()
        point, distances = centre_and_distances(shares, codes)
        for _ in range(self.max_iterations):
            inverse = 1 / distances.clamp(min=self.smoothing)
            before = point
            point, distances = centre_and_distances(inverse / inverse.sum(), codes)
            if (point - before).norm() <= self.tolerance * distances.quantile(0.5):
                break
        return point.to(codes.dtype)
