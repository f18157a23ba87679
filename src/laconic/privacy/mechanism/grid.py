"""The grid of integer noise: how fine it is, and how many bits a sum on it needs.

u grid units make one unit of the code. With ξ the scale of the noise in the sum, in grid units, ξ = u·S·σ. Two things
bound it from below: the share of every client has a scale ξ/√h of at least 4 units, for every number h ≤ L of shares,
L the largest cohort; and ξ is at least 32, so that smoothing (see `discrete_gaussian`) costs no more than a
five-hundredth of σ. So the coarsest grid has

    ξ = max(4·√L, 32),   u = ξ/(S·σ)

It depends on public numbers alone, so it is the same in every round and says nothing about who came. The sum of a
round, of |K| codes with entries within ±a (a = S, or 1 for signs) and noise of scale ξ, is below
|K|·u·a + ξ·√(2·ln(m·2^42)) in all m coordinates but for a chance of 2^−41; and b bits hold twice that. A cohort is
larger than the usual one with a chance of 2^−41. Only the sum must fit: a single residue may be anything.

A ring may have more bits than that (`ring_bits`): the grid stays as coarse as it is, so noise and ε are the same, and
only the messages are longer. What honest clients send does not need the room; sums to which clients add much more than
they may do (thesis section 6.3) wrap around without it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from laconic.errors import PrivacyError

if TYPE_CHECKING:
    from laconic.plan import RoundPlan

SMALLEST_SHARE = 4.0
"""Scale of one share, in grid units: below this, sums of shares are no longer discrete Gaussians for all purposes."""
SMALLEST_SUM = 32.0
"""Scale of the noise in a sum, in grid units."""
SMOOTHING = 2.0
"""What is taken from that scale, as a difference of squares, so that the ε is that of a continuous Gaussian."""
WRAP_BITS = 40
"""The sum of a round wraps around with probability below 2^−40."""
FEWEST_BITS, MOST_BITS = 8, 32


@dataclass(frozen=True)
class Grid:
    """The grid of a run. `scale` is ξ, `released_scale` that of a release with the server's own noise in it."""

    units: float
    bits: int
    scale: float
    released_scale: float
    log2_wrap: float
    """log₂ of a bound on the probability that the sum of a round wraps around."""

    def share_scale(self, noise_shares: int) -> float:
        """Scale of one client's share, in grid units, where so many of them make up the noise."""
        if noise_shares < 1:
            raise PrivacyError(
                f"noise cannot be shared among {noise_shares} clients: lower max_dropouts or max_colluders"
            )
        share = self.scale / math.sqrt(noise_shares)
        if share < SMALLEST_SHARE * (1 - 1e-9):
            raise PrivacyError(
                f"a share of the noise would have a scale of {share:.3g} grid units, and it takes {SMALLEST_SHARE:g}:"
                " the cohort is larger than the largest that was planned for"
            )
        return share


def coarsest_scale(largest_cohort: int) -> float:
    """ξ on the coarsest grid that is allowed."""
    return max(SMALLEST_SHARE * math.sqrt(largest_cohort), SMALLEST_SUM)


def choose_grid(
    *,
    noise_multiplier: float,
    sensitivity: float,
    largest_entry: float,
    whole: bool,
    code_size: int,
    plan: RoundPlan,
    bits: int | None,
    ring_bits: int | None = None,
) -> Grid:
    """The coarsest grid and the bits that it needs; or, if the bits are given, the finest grid that they can hold.

    Args:
        noise_multiplier: σ.
        sensitivity: S, the L2 norm by which one client moves a sum.
        largest_entry: a bound on each value of a code.
        whole: codes such as signs get a whole number of grid units, so that they stay whole on the grid.
        code_size: m.
        plan: of the largest round.
        bits: of a value; None for as few as are needed.
        ring_bits: of the ring, if not those: the same grid with more room.
    """
    unit_noise = sensitivity * noise_multiplier
    tail = math.sqrt(2 * (math.log(2) * (WRAP_BITS + 2) + math.log(code_size)))
    codes = plan.usual_vectors * largest_entry

    def released(units: float) -> float:
        # With slack there is room for a top-up of at least the smallest share, for any cohort.
        return math.hypot(units * unit_noise * math.sqrt(plan.released_variance), SMALLEST_SHARE if plan.slack else 0.0)

    coarsest = coarsest_scale(plan.largest_cohort) / unit_noise
    units = float(math.ceil(coarsest)) if whole else coarsest
    needed = _bits(tail * released(units) + units * codes)
    if bits is None:
        bits = needed
    elif bits < needed:
        raise PrivacyError(
            f"{bits} bits cannot hold the sum of a round on a grid on which a share of the noise has a scale of"
            f" {SMALLEST_SHARE:g} units: use ⟨bits⟩ {needed} or more, or leave it out"
        )
    else:
        room = (2.0**bits - 1) / 2 - (SMALLEST_SHARE * tail if plan.slack else 0.0)
        finest = room / (tail * unit_noise * math.sqrt(plan.released_variance) + codes)
        units = max(units, float(math.floor(finest)) if whole else finest)
    if ring_bits is not None:
        if ring_bits < bits:
            raise PrivacyError(
                f"a ring of {ring_bits} bits cannot hold the sum of a round, which takes {bits}: use ⟨ring-bits⟩"
                f" {bits} or more, or leave it out"
            )
        bits = ring_bits
    if bits > MOST_BITS:
        raise PrivacyError(
            f"the sum of a round would need {bits} bits, more than {MOST_BITS}: raise ⟨noise-multiplier⟩, or have fewer"
            " clients in a round"
        )
    sigmas = ((2.0**bits - 1) / 2 - units * codes) / released(units)
    wrap = math.log2(2 * code_size) - sigmas**2 / (2 * math.log(2))
    if plan.planned_units is not None or plan.usual_cohort < plan.largest_cohort:
        wrap = math.log2(2.0 ** -(WRAP_BITS + 1) + 2.0**wrap)
    return Grid(units, bits, units * unit_noise, released(units), wrap)


def _bits(largest: float) -> int:
    """The bits of a ring in which every whole number up to ±largest has a residue of its own."""
    return max(FEWEST_BITS, math.ceil(math.log2(2 * largest + 1)))
