"""Integer noise: each client draws an integer around its code, so that what is summed and masked never floats.

Why the ε of the continuous Gaussian holds. Write θ(ξ) for the gap of thesis Lemma 1.

1. The sum of K shares DG(μ_k, ξ_k) is, at every integer point and per coordinate, within a factor 1 ± 3K·θ(ξ_k/√2) of
   DG(Σμ_k, ξ), ξ² = Σξ_k² (complete the square share by share; the thesis' Lemma 3).
2. DG(μ, ξ) is within 1 ± 3θ(s) of this: draw y from the continuous G(μ, √(ξ² − s²)), then an integer from DG(y, s).
   The second draw does not look at the data: it is post-processing.

So the released sum is the Gaussian mechanism with the noise multiplier σ·√(1 − s²/ξ²), post-processed, up to the
factors above in every coordinate, which move ε by at most twice their logarithm. With ξ_k ≥ 4 and s = 2 that is below
1e-20 for a million coordinates and a thousand rounds. Unlike thesis Theorem 3 (which needs corrections: the exponent
2λ+1 on (1+ν)/(1−ν), one more (1+κ), all per coordinate) this holds for every accountant and every sampler.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from laconic.errors import PrivacyError
from laconic.parts import positive
from laconic.privacy.discrete_sampler import draw_discrete_gaussian, draw_total_variation, theta_gap
from laconic.privacy.gaussian import Noise

if TYPE_CHECKING:
    from dp_accounting import DpEvent
    from torch import Tensor

    from laconic.plan import RoundPlan
    from laconic.streams import Stream

SMALLEST_SHARE = 4.0
"""ξ of one share, in grid units: below this the gaps above are no longer negligible."""
_SMOOTHING = 2.0
WRAP_BITS = 40
"""The sum of a round wraps around with probability below 2^−40."""


@dataclass(frozen=True, kw_only=True)
class DiscreteGaussian(Noise):
    """DG(code, S·σ/√min_cohort) per client and coordinate (thesis Alg. 9), for codes of whole numbers such as signs.

    `units` grid units make one unit of the code: 1, or as many as it takes to bring a share's scale up to 4.
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        positive(noise_multiplier=self.noise_multiplier)

    @property
    def private(self) -> bool:
        return True

    def units(self, *, sensitivity: float, plan: RoundPlan) -> int:
        """Grid units per unit of the code: the same in every round, so that the grid says nothing of the cohort."""
        narrowest = sensitivity * self.noise_multiplier / math.sqrt(plan.largest_cohort)
        return max(1, math.ceil(SMALLEST_SHARE / narrowest))

    def share_scale(self, *, sensitivity: float, plan: RoundPlan) -> float:
        """ξ of one share in grid units: units·S·σ/√noise_shares."""
        if plan.noise_shares < 1:
            raise PrivacyError(
                f"{plan.noise_shares} clients cannot share the noise: lower max_dropouts or max_colluders"
            )
        units = self.units(sensitivity=sensitivity, plan=plan)
        return units * sensitivity * self.noise_multiplier / math.sqrt(plan.noise_shares)

    def share(self, code: Tensor, *, sensitivity: float, plan: RoundPlan, rng: Stream) -> Tensor:
        scale = self.share_scale(sensitivity=sensitivity, plan=plan)
        units = self.units(sensitivity=sensitivity, plan=plan)
        noisy: Tensor = draw_discrete_gaussian(code * units, scale, rng, integer_mean=True).to(code.dtype)
        return noisy

    def code_bits(self, *, code_size: int, sensitivity: float, plan: RoundPlan) -> int | None:
        """b such that the sum of a round, of codes within ±1, fits into b bits but for a chance of 2^−40.

        Only the sum must fit: residues of single messages may wrap. The tail is Lemma 2's, over all coordinates.
        """
        scale = self._released_scale(sensitivity, plan)
        tail = scale * math.sqrt(2 * (math.log(2) * (WRAP_BITS + 2) + math.log(code_size)))
        largest = tail + plan.largest_cohort * self.units(sensitivity=sensitivity, plan=plan)
        bits = math.ceil(math.log2(2 * largest + 1))
        if bits > 24:  # sums are held in float32, which counts up to 2^24
            raise PrivacyError(f"sums of {bits} bits are not exact here: lower the noise, or use Gaussian noise")
        return bits

    def released(self, total: Tensor, *, sensitivity: float, plan: RoundPlan, survivors: int, rng: Stream) -> Tensor:
        bits = self.code_bits(code_size=total.numel(), sensitivity=sensitivity, plan=plan)
        assert bits is not None
        present = survivors * self.share_scale(sensitivity=sensitivity, plan=plan) ** 2 if survivors else 0.0
        missing = self._released_scale(sensitivity, plan) ** 2 - present
        if missing > 1e-6:
            scale = math.sqrt(missing)
            total = total + draw_discrete_gaussian(total.new_zeros(total.shape), scale, rng, integer_mean=True)
        half = 2 ** (bits - 1)
        centred: Tensor = (total.double() + half).remainder(2.0**bits) - half
        return centred.div(self.units(sensitivity=sensitivity, plan=plan)).float()

    def _released_scale(self, sensitivity: float, plan: RoundPlan) -> float:
        """ξ of the released sum. With slack it has room for a top-up of at least 4 units, whoever came."""
        square = (self.units(sensitivity=sensitivity, plan=plan) * sensitivity * self.noise_multiplier) ** 2
        return math.sqrt(square * plan.released_variance + (SMALLEST_SHARE**2 if plan.slack else 0.0))

    def event(self, *, sensitivity_scale: float, sensitivity: float) -> DpEvent:
        from dp_accounting import GaussianDpEvent

        total = max(SMALLEST_SHARE, sensitivity * self.noise_multiplier)
        effective = self.noise_multiplier * math.sqrt(1 - (_SMOOTHING / total) ** 2)
        return GaussianDpEvent(effective / sensitivity_scale)

    def epsilon_slack(self, *, code_size: int, sensitivity: float, plan: RoundPlan) -> float:
        """At most how much one round's ε exceeds the continuous mechanism's: the factors of the module's text."""
        share = self.share_scale(sensitivity=sensitivity, plan=plan)
        gap = 3 * (len(plan.cohort) + 1) * theta_gap(share / math.sqrt(2)) + 3 * theta_gap(_SMOOTHING)
        return 2 * code_size * math.log1p(gap)

    def delta_slack(self, *, num_draws: float, sensitivity: float, plan: RoundPlan) -> float:
        """What finite precision adds to δ: the total variation distance over all draws of a run."""
        scale = self.share_scale(sensitivity=sensitivity, plan=plan)
        return num_draws * draw_total_variation(scale, integer_mean=True)


def papers_bits(*, code_size: int, cohort: int, noise_multiplier: float) -> int:
    """The papers' count, ⌈log₂((12·√n·σ + 1)·|K|)⌉ bits a value, sized for the largest share times the cohort."""
    return math.ceil(math.log2((12 * math.sqrt(code_size) * noise_multiplier + 1) * cohort))
