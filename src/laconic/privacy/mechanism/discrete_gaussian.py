"""Integer noise: each client draws an integer around its code, so that what is summed and masked never floats.

The clipped code, a real vector c with ‖c‖₂ ≤ S, is put on a grid of u units (`grid`). The client draws DG(u·c, ξ_k)
around the *real* point u·c, coordinate by coordinate, and sends the integers mod 2^b. Nothing is rounded before the
draw, so the grid costs no privacy: the sensitivity stays S. (Stochastic rounding after clipping would lengthen a code.)

Why the ε of the continuous Gaussian holds. Write θ(ξ) for the gap of thesis Lemma 1.

1. The sum of K shares DG(μ_k, ξ_k) is, at every integer point and per coordinate, within a factor 1 ± 3K·θ(ξ_k/√2) of
   DG(Σμ_k, ξ), ξ² = Σξ_k² (complete the square share by share; the thesis' Lemma 3).
2. DG(μ, ξ) is within 1 ± 3θ(s) of this: draw y from the continuous G(μ, √(ξ² − s²)), then an integer from DG(y, s).
   The second draw does not look at the data: it is post-processing.
3. Residues mod 2^b, masks, the server's top-up, lifting and scaling back: post-processing as well. A sum that wraps
   around is a wrong sum, but not one that tells more.

A simulation that adds up the codes itself draws DG(Σμ_k, ξ) at once (`terms`, `around`). That is step 1 without its
factor. How far it is from the sum of shares is `sum_total_variation`, which is counted in δ; docs/maths.md has the
proof.

So the released sum is the Gaussian mechanism with the noise multiplier σ·√(1 − s²/ξ²), post-processed, up to the
factors above in every coordinate, which move ε by at most twice their logarithm. With ξ_k ≥ 4 and s = 2 that is below
1e-12 for a million coordinates, a thousand clients and a thousand rounds. Unlike thesis Theorem 3 (which needs
corrections: the exponent 2λ+1 on (1+ν)/(1−ν), one more (1+κ), Lemma 3's condition on ξ, all per coordinate) this holds
for every accountant and every sampler.

*Private steps of one client* (DP-SGD). The sum s of a step's clipped gradients is put on a grid of u units. What is
used further is DG(u·s, ξ)/u, drawn around the real point u·s, so the argument above holds: up to factors that move ε by
less than 1e-9, the step is a continuous Gaussian of variance ξ² − 4, post-processed. Two things make sums of neighbours
differ by more than S. The sampler cuts a mean to multiples of 1/256: at most √n/256 grid units. And the smoothing takes
4 from ξ². Both are made up for by more noise, so that the noise multiplier is σ as it was asked for:

    ξ² = (u·S·σ·(1 + η))² + 4,   √n/256 ≤ η·u·S,   η = 1/1024

Gradients are added up in float64, so rounding moves the sum of N records by N²·S/2^52 at most: S/4500 for a million.
They are computed in float32, where the size of a batch may show in the last bits of the others' gradients. Neither is
accounted for; the statement says so.
"""

from __future__ import annotations

import functools
import importlib.util
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from laconic.errors import ConfigError, PrivacyError
from laconic.figures import rounded_up
from laconic.guard.noise import (
    MEAN_BITS,
    TABLE_TOTAL_VARIATION,
    Tables,
    draw_around,
    draw_centred,
    draw_gap,
    draw_total_variation,
    exact_tables,
    noisy_residues,
    theta_gap,
)
from laconic.parts import decided, positive, positive_int
from laconic.privacy.mechanism.gaussian import Counted, Noise
from laconic.privacy.mechanism.grid import (
    FEWEST_BITS,
    MOST_BITS,
    SMALLEST_SHARE,
    SMALLEST_SUM,
    SMOOTHING,
    Grid,
    choose_grid,
    coarsest_scale,
)

if TYPE_CHECKING:
    from torch import Tensor

    from laconic.plan import RoundPlan
    from laconic.streams import Stream


class StreamSource(NamedTuple):
    """The words of a stream and the tables, on one device."""

    stream: Stream
    device: Any

    def words(self, count: int) -> Tensor:
        return self.stream.words(count, self.device)

    def words_at(self, places: Tensor, count: int) -> Tensor:
        return self.stream.words_at(places, count)

    def fork(self, name: str) -> StreamSource:
        return StreamSource(self.stream.fork(name), self.device)

    def tables(self, scale: float, num_means: int) -> Tables:
        return discrete_tables(scale, num_means, str(self.device))


@functools.lru_cache(maxsize=64)
def discrete_tables(scale: float, num_means: int, device: str) -> Tables:
    """The exact tables as tensors on a device."""
    import torch

    tables = exact_tables(scale, num_means)
    if device.startswith("cuda") and importlib.util.find_spec("triton") is not None:
        from laconic.privacy.mechanism.kernels import KernelTables

        tables = KernelTables(**vars(tables))
    return tables.mapped(lambda array: torch.from_numpy(array).to(device))


def fixed_point(mean: Tensor, units: float = 1.0, *, whole: bool = False) -> Tensor:
    """mean·units in 256ths (int64), cut towards zero; of a `whole` code, such as signs, in whole units."""
    fixed: Tensor = (mean.double() * (units if whole else units * 2**MEAN_BITS)).long()
    return fixed


def draw_discrete_gaussian(mean: Tensor, scale: float, stream: Stream, *, integer_mean: bool = False) -> Tensor:
    """Integers (int64) from DG(mean, scale), one per entry of `mean`, which is cut to multiples of 1/256."""
    source = StreamSource(stream, mean.device)
    drawn: Tensor
    drawn = draw_centred(scale, mean.long(), source) if integer_mean else draw_around(fixed_point(mean), scale, source)
    return drawn


def sum_total_variation(scale: float, count: int) -> float:
    """At most how far, in total variation, the sum of so many DG(μ_k, scale) is from DG(Σμ_k, scale·√count).

    The distribution of X₁ + X₂ at z is that of DG(μ₁ + μ₂, √(ξ₁² + ξ₂²)) times S(z), a sum of exp(−(a − c)²/2s²) over
    integers a, up to a constant. S varies by a factor r = (1 + θ(s))/(1 − θ(s)) at most, and s ≥ scale/√2 for each of
    count − 1 additions. A ratio within 1/R … R everywhere, R = r^(count − 1), is a distance of (R − 1)/2 at most.
    """
    gap = theta_gap(scale / math.sqrt(2))
    return math.expm1((count - 1) * (math.log1p(gap) - math.log1p(-gap))) / 2


_EXACT = 2.0**53
"""Up to here a double holds every integer."""


@dataclass(frozen=True, kw_only=True)
class DiscreteGaussian(Noise):
    """DG(u·code, u·S·σ/√min_cohort) mod 2^b, per client and coordinate (thesis Alg. 9, for any code).

    `bits` is b; unless given, it is as small as the sum allows. `ring_bits` makes b larger without a finer grid: room
    in the ring that costs bytes and changes neither noise nor ε. `signs` says that the code is a vector of signs, or of
    marks: no entry exceeds 1, and all are whole. A σ of None is open: see `decided`.

    Args:
        noise_multiplier: σ.
        bits: b.
        signs: whether the code is a vector of signs.
        ring_bits: bits of the ring, where it shall have room to spare.

    Examples:
        >>> laconic.DiscreteGaussian(noise_multiplier=1.0).on_integers
        True

    References:
        Thesis Alg. 9; Canonne, Kamath and Steinke (NeurIPS 2020) for the sampler; docs/maths.md#noise-on-integers.
    """

    noise_multiplier: float | None
    bits: int | None = None
    signs: bool = False
    ring_bits: int | None = None

    def __post_init__(self) -> None:
        if self.noise_multiplier is not None:
            positive(noise_multiplier=self.noise_multiplier)
        for name, bits in (("bits", self.bits), ("ring_bits", self.ring_bits)):
            if bits is not None:
                positive_int(**{name: bits})
                if not FEWEST_BITS <= bits <= MOST_BITS:
                    raise ConfigError(f"{name} must be {FEWEST_BITS} to {MOST_BITS}, not {bits}")

    @property
    def sigma(self) -> float:
        return decided(self.noise_multiplier)

    def to_dict(self) -> dict[str, Any]:
        """Without the key 'ring_bits' where the ring has no room to spare: such schemes keep their fingerprints."""
        data = super().to_dict()
        if self.ring_bits is None:
            del data["ring_bits"]
        return data

    @property
    def private(self) -> bool:
        return True

    @property
    def on_integers(self) -> bool:
        return True

    @property
    def for_signs(self) -> bool:
        return self.signs

    def about(self, *, code_size: int, sensitivity: float, plan: RoundPlan, rounds: int, delta_slack: float) -> str:
        epsilon = self.epsilon_slack(code_size=code_size, sensitivity=sensitivity, plan=plan)
        return (
            f"the noise is drawn on integers: over the run that adds at most {rounded_up(rounds * epsilon, 1)} to ε"
            f" (neglected) and, by the sampler's finite precision, {rounded_up(delta_slack, 1)} to δ (counted)"
        )

    def bits_by_the_papers(self, *, code_size: int, cohort: int) -> int | None:
        if not self.signs:
            return None
        return papers_bits(code_size=code_size, cohort=cohort, noise_multiplier=self.sigma)

    def grid(self, *, code_size: int, sensitivity: float, plan: RoundPlan) -> Grid:
        """Grid and bits of the run: of one of its sums, if it has groups."""
        if not math.isfinite(sensitivity):
            raise PrivacyError("noise needs a bounded code: give the scheme a clip (clip_norm)")
        return choose_grid(
            noise_multiplier=self.sigma,
            sensitivity=sensitivity,
            largest_entry=1.0 if self.signs else sensitivity,
            whole=self.signs,
            code_size=code_size,
            plan=plan.sums[0],
            bits=self.bits,
            ring_bits=self.ring_bits,
        )

    def share(self, code: Tensor, *, sensitivity: float, plan: RoundPlan, rng: Stream) -> Tensor:
        """Residues mod 2^b (int64)."""
        grid = self.grid(code_size=code.shape[-1], sensitivity=sensitivity, plan=plan)
        scale = grid.share_scale(plan.noise_shares)
        fixed = fixed_point(code, grid.units, whole=self.signs)
        residues: Tensor = noisy_residues(fixed, scale, grid.bits, StreamSource(rng, code.device), whole=self.signs)
        return residues

    @property
    def draws_at_once(self) -> bool:
        return True

    def terms(self, codes: Tensor, *, code_size: int, sensitivity: float, plan: RoundPlan) -> Tensor:
        """u·code as `share` has it, in 256ths cut towards zero (of signs in whole units): int64, so sums are exact."""
        grid = self.grid(code_size=code_size, sensitivity=sensitivity, plan=plan)
        return fixed_point(codes, grid.units, whole=self.signs)

    def term_units(self, *, code_size: int, sensitivity: float, plan: RoundPlan) -> float | None:
        units = self.grid(code_size=code_size, sensitivity=sensitivity, plan=plan).units
        return units if self.signs else units * 2**MEAN_BITS

    def bare_terms(self, messages: Tensor) -> Tensor:
        """Whole numbers move the mean, and the draw with it: DG(μ + n, ξ) is DG(μ, ξ) + n."""
        return messages if self.signs else messages << MEAN_BITS

    def around(self, total: Tensor, *, shares: int, sensitivity: float, plan: RoundPlan, rng: Stream) -> Tensor:
        """DG(Σμ_k, ξ_k·√shares) mod 2^b, with Σμ_k exactly the sum of the points around which shares are drawn."""
        grid = self.grid(code_size=total.shape[-1], sensitivity=sensitivity, plan=plan)
        residues: Tensor
        if shares:
            share = grid.share_scale(plan.noise_shares)
            # As many shares as make up ξ are ξ to the last bit: one table serves cohorts of every size.
            scale = grid.scale if shares == plan.noise_shares else share * math.sqrt(shares)
            residues = noisy_residues(total, scale, grid.bits, StreamSource(rng, total.device), whole=self.signs)
        else:  # no client adds noise, and only whole numbers were added up
            residues = (total if self.signs else total >> MEAN_BITS) & (2**grid.bits - 1)
        return residues

    def for_votes(self, noise_multiplier: float | None) -> DiscreteGaussian:
        """On a grid and in a ring of its own: as coarse, and of as few bits, as ballots allow."""
        return DiscreteGaussian(noise_multiplier=noise_multiplier or self.noise_multiplier, signs=True)

    def for_cells(self, noise_multiplier: float | None) -> DiscreteGaussian:
        """On a grid and in a ring of its own, for shares of records."""
        return DiscreteGaussian(noise_multiplier=noise_multiplier or self.noise_multiplier)

    def without_noise(self, code: Tensor, *, boost: float, sensitivity: float, plan: RoundPlan) -> Tensor:
        """boost·u·code as residues mod 2^b: a message like any other, where only masked residues are seen."""
        grid = self.grid(code_size=code.shape[-1], sensitivity=sensitivity, plan=plan)
        units = (code.double() * (boost * grid.units)).nan_to_num(0.0).clamp(-_EXACT, _EXACT).round().long()
        residues: Tensor = units & (2**grid.bits - 1)
        return residues

    def code_bits(self, *, code_size: int, sensitivity: float, plan: RoundPlan) -> int | None:
        return self.grid(code_size=code_size, sensitivity=sensitivity, plan=plan).bits

    def released(self, total: Tensor, *, sensitivity: float, plan: RoundPlan, survivors: int, rng: Stream) -> Tensor:
        """The sum of the codes from the opened one (integers that are right mod 2^b): centred and scaled back."""
        if total.is_floating_point():
            raise TypeError("integer noise is summed in integers: the sum must be one too")
        grid = self.grid(code_size=total.shape[-1], sensitivity=sensitivity, plan=plan)
        present = survivors * grid.share_scale(plan.noise_shares) ** 2 if survivors else 0.0
        missing = grid.released_scale**2 - present
        if missing > 1e-6:
            total = total + draw_discrete_gaussian(
                total.new_zeros(total.shape), math.sqrt(missing), rng, integer_mean=True
            )
        return self.read(total, sensitivity=sensitivity, plan=plan)

    def read(self, total: Tensor, *, sensitivity: float, plan: RoundPlan) -> Tensor:
        """Centred and scaled back."""
        grid = self.grid(code_size=total.shape[-1], sensitivity=sensitivity, plan=plan)
        half = 2 ** (grid.bits - 1)
        centred: Tensor = ((total + half) & (2**grid.bits - 1)) - half
        return centred.double().div_(grid.units).float()

    def released_scale(self, *, code_size: int, sensitivity: float, plan: RoundPlan) -> float:
        grid = self.grid(code_size=code_size, sensitivity=sensitivity, plan=plan)
        return grid.released_scale / grid.units

    def counted(self, *, sensitivity: float, largest_cohort: int) -> Counted:
        """A unit of a sign is at least one of the grid."""
        return Counted(self.sigma, coarsest_scale(largest_cohort), sensitivity if self.signs else 0.0)

    def epsilon_slack(self, *, code_size: int, sensitivity: float, plan: RoundPlan) -> float:
        """At most how much one round's ε exceeds the continuous mechanism's: the factors of the module's text, and
        the sampler's."""
        grid = self.grid(code_size=code_size, sensitivity=sensitivity, plan=plan)
        share = grid.share_scale(plan.noise_shares)
        draw = max(draw_gap(scale, integer_mean=self.signs) for scale in (share, grid.released_scale))
        each = 3 * theta_gap(share / math.sqrt(2)) + draw
        gap = (len(plan.cohort) + 1) * each + 3 * theta_gap(SMOOTHING)
        return 2 * code_size * math.log1p(gap)

    def delta_slack(self, *, code_size: int, num_draws: float, sensitivity: float, plan: RoundPlan) -> float:
        """What finite precision adds to δ: the total variation distance over all draws of a run."""
        grid = self.grid(code_size=code_size, sensitivity=sensitivity, plan=plan)
        return num_draws * draw_total_variation(grid.share_scale(plan.noise_shares), integer_mean=self.signs)

    def shares_distance(self, *, plan: RoundPlan) -> float:
        """Every share has a scale of at least 4 units, so this holds for every cohort of the run."""
        return sum_total_variation(SMALLEST_SHARE * (1 - 1e-9), plan.largest_cohort)

    def at_once_slack(self, *, code_size: int, num_draws: float, sensitivity: float, plan: RoundPlan) -> float:
        """Draws of sums have scales up to that of a release; a smaller one may take one table more."""
        grid = self.grid(code_size=code_size, sensitivity=sensitivity, plan=plan)
        draw = draw_total_variation(grid.released_scale, integer_mean=self.signs) + TABLE_TOTAL_VARIATION
        return num_draws * (draw + self.shares_distance(plan=plan))


def papers_bits(*, code_size: int, cohort: int, noise_multiplier: float) -> int:
    """The papers' count, ⌈log₂((12·√n·σ + 1)·|K|)⌉ bits a value, sized for the largest share times the cohort."""
    return math.ceil(math.log2((12 * math.sqrt(code_size) * noise_multiplier + 1) * cohort))


NOISES = ("continuous", "integer")
_MARGIN = 2.0**-10


class RecordGrid(NamedTuple):
    """`units` of the grid are one of the gradients; the noise has the scale `scale` in grid units."""

    units: float
    scale: float


def record_grid(size: int, clip_norm: float, noise_multiplier: float) -> RecordGrid:
    """The coarsest grid for sums of gradients by so many weights."""
    cut = math.sqrt(size) / 2**MEAN_BITS
    noise = max(SMALLEST_SUM, noise_multiplier * (1 + _MARGIN) * cut / _MARGIN)  # u·S·σ·(1 + η)
    return RecordGrid(noise / (clip_norm * noise_multiplier * (1 + _MARGIN)), math.hypot(noise, SMOOTHING))


def noisy_sum(total: Tensor, *, clip_norm: float, noise_multiplier: float, stream: Stream) -> Tensor:
    """The sum of a step's clipped gradients with its noise: multiples of the grid's step, as float32."""
    grid = record_grid(total.numel(), clip_norm, noise_multiplier)
    drawn = draw_discrete_gaussian(total.double() * grid.units, grid.scale, stream)
    noisy: Tensor = drawn.double().div_(grid.units).float()
    return noisy


def record_delta_slack(size: int, steps: int, noise_multiplier: float) -> float:
    """What the sampler's finite precision adds to δ over so many steps of one client, for any ε up to 20."""
    grid = record_grid(size, 1.0, noise_multiplier)
    return steps * size * draw_total_variation(grid.scale) * (1 + math.exp(20))
