"""Integer noise that the server adds to sums, correlated over rounds: a banded matrix mechanism (DP-FTRL family).

It is *central*: clients send clipped codes without noise, and the server sees their sums before it adds any. So its ε
holds against everybody who sees no more than what is released, and not against the server.

In round t the server has the sum g_t and remembers the last b − 1 sums. It releases integers around a combination of
them, and everybody can compute an estimate of g_t from that and earlier estimates (see `bands` for c and C):

    y_t = DG(Σ_j c_j·g_{t−j}, σ·S),    ĝ_t = y_t − Σ_{j≥1} c_j·ĝ_{t−j},    so that ĝ = g + C⁻¹·z, z the noise in y

*On integers.* A client puts its clipped code c_k on a grid of u = 32/(S·σ) units for one unit of the code, cut towards
zero to 256ths of a grid unit, which cannot lengthen it. Sums of these are exact. With c_j = n_j/1024, the combination
is a whole number of 256ths of a 1024th of a grid unit: y_t is drawn on the grid that is 1024 times finer, around
exactly Σ_j n_j·g_{t−j}, with scale ξ = 1024·32. Nothing is rounded after the clip, so what one client moves is bounded
by S·c_j in every release, as on real numbers. DG(μ, ξ) is within a factor 1 ± 3θ(2) of a continuous Gaussian of scale
√(ξ² − 4) that is post-processed (`discrete_gaussian`), so σ·√(1 − 4/ξ²) is what the accountant counts on.

*In a ring.* Clients' sums come as residues mod 2^b, and so does everything up to the noise: n_j·g mod 2^b follows from
g mod 2^b. Only y_t, with its noise, is lifted to the numbers around zero. So what is released is a function of the
Gaussian mechanism's output even where a client sends codes that are not clipped. Lifted before the noise, a sum at the
edge of the ring would show the sign of another client's code: it jumps by the whole ring. b is so large that y_t does
not wrap around for clipped codes, but for a chance of 2^−40.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from laconic.errors import ConfigError, PrivacyError
from laconic.figures import rounded_up
from laconic.guard.noise import MEAN_BITS, draw_gap, draw_total_variation, noisy_residues, theta_gap
from laconic.parts import decided, positive
from laconic.privacy.mechanism.bands import MOST_BANDS, UNIT
from laconic.privacy.mechanism.discrete_sampler import StreamSource, fixed_point
from laconic.privacy.mechanism.gaussian import Counted, Noise
from laconic.privacy.mechanism.grid import FEWEST_BITS, SMALLEST_SUM, SMOOTHING, WRAP_BITS, Grid

if TYPE_CHECKING:
    from torch import Tensor

    from laconic.plan import RoundPlan
    from laconic.streams import Stream

SUMS, ESTIMATES = "sums", "estimates"
"""What is remembered of the last rounds, the last one first: exact sums (their residues), a secret, and estimates."""
SCALE = UNIT * SMALLEST_SUM
"""ξ of what is released, in units of the finer grid."""
MOST_BITS = 48
"""Of the ring. Nothing is masked here, so it may be larger than that of masked sums."""


@dataclass(frozen=True, kw_only=True)
class CorrelatedGaussian(Noise):
    """DG(Σ_j c_j·g_{t−j}, σ·S), added by the server; c_0 … c_{b−1} are given in 1024ths. A σ of None is open.

    Args:
        noise_multiplier: σ, before the sensitivity of the matrix: the accountant counts that.
        coefficients: the bands, the first 1024.

    Examples:
        >>> laconic.CorrelatedGaussian(noise_multiplier=1.0, coefficients=(1024, 565, 455)).bands
        3

    References:
        docs/maths.md#correlated-noise; Kairouz et al. (2021); Denisov et al. (2022); Choquette-Choo et al. (2023).
    """

    noise_multiplier: float | None
    coefficients: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "coefficients", tuple(self.coefficients))
        if self.noise_multiplier is not None:
            positive(noise_multiplier=self.noise_multiplier)
        units = self.coefficients
        whole = all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n <= UNIT for n in units)
        if not (whole and units and units[0] == UNIT and len(units) <= MOST_BANDS):
            raise ConfigError(
                f"coefficients must be up to {MOST_BANDS} whole numbers from 0 to {UNIT}, the first {UNIT}, not {units}"
            )

    @property
    def sigma(self) -> float:
        return decided(self.noise_multiplier)

    @property
    def bands(self) -> int:
        """b."""
        return len(self.coefficients)

    @property
    def factors(self) -> tuple[float, ...]:
        """c_0 … c_{b−1}."""
        return tuple(units / UNIT for units in self.coefficients)

    @property
    def private(self) -> bool:
        return True

    @property
    def central(self) -> bool:
        return True

    @property
    def remembers(self) -> bool:
        return self.bands > 1

    @property
    def on_integers(self) -> bool:
        return True

    @property
    def added_by(self) -> dict[str, str]:
        return {
            "noise_added_by": "the server (central): it sees the sums of the clients' codes before it adds any noise",
            "denominator": "the planned cohort, a public constant",
        }

    def about(self, *, code_size: int, sensitivity: float, plan: RoundPlan, rounds: int, delta_slack: float) -> str:
        gap = 2 * code_size * math.log1p(draw_gap(SCALE) + 3 * theta_gap(SMOOTHING))
        return (
            f"the noise is drawn on integers and correlated over {self.bands} rounds: over the run that adds at most"
            f" {rounded_up(rounds * gap, 1)} to ε (neglected) and, by the sampler's finite precision,"
            f" {rounded_up(delta_slack, 1)} to δ (counted)"
        )

    def grid(self, *, code_size: int, sensitivity: float, plan: RoundPlan) -> Grid:
        """The grid on which clients' codes are summed, in steps of 256ths, and the ring of all that is released.

        In 256ths of the finer grid, |Σ_j n_j·g_{t−j}| ≤ |K|·u·S·256·Σ_j n_j, and the noise has a scale of 256·ξ.
        """
        units, scale = self._units(sensitivity) * 2**MEAN_BITS, SCALE * 2**MEAN_BITS
        largest = plan.largest_cohort * units * sensitivity * sum(self.coefficients)
        tail = math.sqrt(2 * (math.log(2) * (WRAP_BITS + 1) + math.log(code_size)))
        bits = max(FEWEST_BITS, math.ceil(math.log2(2 * (largest + tail * scale) + 1)))
        if bits > MOST_BITS:
            raise PrivacyError(
                f"the sum of a round would need {bits} bits, more than {MOST_BITS}: have fewer clients in a round"
                " (raise ⟨separation⟩), or raise ⟨noise-multiplier⟩"
            )
        sigmas = (2.0 ** (bits - 1) - largest) / scale
        wrap = math.log2(2 * code_size) - sigmas**2 / (2 * math.log(2))
        return Grid(units, bits, scale / UNIT, scale / UNIT, wrap)

    def _units(self, sensitivity: float) -> float:
        if not math.isfinite(sensitivity):
            raise PrivacyError("noise needs a bounded code: give the scheme a clip (clip_norm)")
        return SMALLEST_SUM / (sensitivity * self.sigma)

    def code_bits(self, *, code_size: int, sensitivity: float, plan: RoundPlan) -> int | None:
        return self.grid(code_size=code_size, sensitivity=sensitivity, plan=plan).bits

    @property
    def draws_at_once(self) -> bool:
        return True

    def terms(self, codes: Tensor, *, code_size: int, sensitivity: float, plan: RoundPlan) -> Tensor:
        """u·code in 256ths, cut towards zero: int64, so sums are exact."""
        return fixed_point(codes, self._units(sensitivity))

    def around(self, total: Tensor, *, shares: int, sensitivity: float, plan: RoundPlan, rng: Stream) -> Tensor:
        """The sum as clients send it, mod 2^b: none of them adds noise."""
        bits = self.grid(code_size=total.shape[-1], sensitivity=sensitivity, plan=plan).bits
        residues: Tensor = total & (2**bits - 1)
        return residues

    def estimated(
        self, total: Tensor, memory: dict[str, Tensor], *, sensitivity: float, plan: RoundPlan, rng: Stream
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """(ĝ_t in units of the code, what is remembered now), from the sum of a round: its residues mod 2^b."""
        if total.is_floating_point():
            raise TypeError("integer noise is summed in integers: the sum must be one too")
        bits = self.grid(code_size=len(total), sensitivity=sensitivity, plan=plan).bits
        sums = self._known(SUMS, memory, total)
        drawn = self._released(self.combined(total, sums), bits, rng)
        estimates = self._known(ESTIMATES, memory, drawn)
        estimate = self.inverted(drawn, estimates)
        kept = {SUMS: _pushed(sums, total), ESTIMATES: _pushed(estimates, estimate)} if self.bands > 1 else {}
        return (estimate / self._units(sensitivity)).float(), kept

    def _released(self, mean: Tensor, bits: int, rng: Stream) -> Tensor:
        """y_t on the clients' grid: noise first, mod 2^b, and lifted last. `mean` counts mod 2^b, in 256ths."""
        whole = bits - MEAN_BITS
        drawn = noisy_residues(mean & (2**bits - 1), SCALE, whole, StreamSource(rng, mean.device), whole=False)
        return _lifted(drawn, whole).double().div_(UNIT)

    def _known(self, name: str, memory: dict[str, Tensor], like: Tensor) -> Tensor:
        """What is remembered of the last b − 1 rounds; zeros before the first one."""
        return memory[name] if memory else like.new_zeros((self.bands - 1, len(like)))

    def combined(self, exact: Tensor, sums: Tensor) -> Tensor:
        """Σ_j n_j·g_{t−j}, in 256ths of the finer grid. int64 overflows mod 2^64, which changes no residue."""
        total = self.coefficients[0] * exact
        for units, earlier in zip(self.coefficients[1:], sums, strict=True):
            total += units * earlier
        return total

    def inverted(self, released: Tensor, estimates: Tensor) -> Tensor:
        """ĝ_t = y_t − Σ_{j≥1} c_j·ĝ_{t−j}: from what is released alone."""
        estimate = released.clone()
        for factor, earlier in zip(self.factors[1:], estimates, strict=True):
            estimate -= factor * earlier
        return estimate

    def read(self, total: Tensor, *, sensitivity: float, plan: RoundPlan) -> Tensor:
        grid = self.grid(code_size=total.shape[-1], sensitivity=sensitivity, plan=plan)
        return _lifted(total, grid.bits).double().div_(grid.units).float()

    def delta_slack(self, *, code_size: int, num_draws: float, sensitivity: float, plan: RoundPlan) -> float:
        return num_draws * draw_total_variation(SCALE)

    def at_once_slack(self, *, code_size: int, num_draws: float, sensitivity: float, plan: RoundPlan) -> float:
        """No client draws a share, so there is none from which the draw could be far."""
        return self.delta_slack(code_size=code_size, num_draws=num_draws, sensitivity=sensitivity, plan=plan)

    def counted(self, *, sensitivity: float, largest_cohort: int) -> Counted:
        return Counted(self.sigma, SCALE, added_by="server", bands=self.factors)

    def share(self, code: Tensor, *, sensitivity: float, plan: RoundPlan, rng: Stream) -> NoReturn:
        raise PrivacyError("correlated noise is added by the server: no client has a share of it")

    def released(self, total: Tensor, **about: Any) -> NoReturn:
        raise PrivacyError("correlated noise needs the sums of earlier rounds: use estimated")

    def for_votes(self, noise_multiplier: float | None) -> NoReturn:
        raise ConfigError("⟨noise-bands⟩ is for rounds that train: votes are of another kind; leave one of them out")

    def for_cells(self, noise_multiplier: float | None) -> NoReturn:
        raise ConfigError("⟨noise-bands⟩ is for rounds that train: leave out ⟨evaluate-every⟩")


def _lifted(residues: Tensor, bits: int) -> Tensor:
    """The integers between −2^(bits−1) and 2^(bits−1) whose residues mod 2^bits these are."""
    half = 2 ** (bits - 1)
    lifted: Tensor = ((residues + half) & (2**bits - 1)) - half
    return lifted


def _pushed(kept: Tensor, newest: Tensor) -> Tensor:
    """The newest in front, the oldest gone."""
    moved = kept.roll(1, 0)
    moved[0] = newest
    return moved
