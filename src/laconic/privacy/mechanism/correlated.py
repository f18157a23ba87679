"""Noise that is correlated over rounds (DP-FTRL family): which noise with which, and integers that the server adds.

The sums of T rounds are g = (g_1 … g_T). The matrix C is lower triangular, Toeplitz and has b bands: C_ts = c_{t−s} for
0 ≤ t − s < b, with c_0 = 1 and 0 ≤ c_j ≤ 1. Released is y = C·g + z with independent noise z of scale σ·S, and from it
the estimate C⁻¹·y = g + C⁻¹·z of the sums. The iterates are A·g up to a factor, and their noise is A·C⁻¹·z. A is the
workload: of a server with momentum ρ, A_ts = a_{t−s} with a_k = 1 + ρ + … + ρ^k.

*Cost.* A client that takes part in every B-th round, b ≤ B, moves y by the columns of C at its rounds, and these have
no row in common. So it moves y by at most S·√(Σ ‖C_t‖²) over its rounds t. The first group has the most of it:

    after n rounds, k = ⌈n/B⌉:   sensitivity² = (k − 1)·N_b + N_i,   N_i = Σ_{j<i} c_j²,   i = min(b, n − (k − 1)·B)

*Gain.* A·C⁻¹ is Toeplitz, too; its coefficients d are those of the power series a(x)/c(x). The mean squared noise of
the iterates is Σ_k (1 − k/T)·d_k² times (σ·S)², and σ grows with the sensitivity. Their product is minimised, starting
from the square root of the workload, 1/√((1 − x)(1 − ρx)), cut off after b terms (Kalinin and Lampert 2024). Bands and
a minimum separation are those of Choquette-Choo et al. (2023); McKenna (2024) optimises banded Toeplitz matrices so.

The noise is *central*: clients send clipped codes without noise, and the server sees their sums before it adds any. So
its ε holds against adversaries that see no more than what is released, and not against the server.

In round t the server has the sum g_t and remembers the last b − 1 sums. It releases integers around a combination of
them, and an estimate of g_t can be computed from that and earlier estimates:

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

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from laconic.errors import ConfigError, PrivacyError
from laconic.figures import rounded_up
from laconic.guard.noise import MEAN_BITS, draw_gap, draw_total_variation, noisy_residues, theta_gap
from laconic.parts import below_one, decided, positive, positive_int
from laconic.privacy.mechanism.discrete_gaussian import StreamSource, fixed_point
from laconic.privacy.mechanism.gaussian import Counted, Noise
from laconic.privacy.mechanism.grid import FEWEST_BITS, SMALLEST_SUM, SMOOTHING, WRAP_BITS, Grid

if TYPE_CHECKING:
    from torch import Tensor

    from laconic.plan import RoundPlan
    from laconic.streams import Stream


UNIT = 1 << 10
"""Coefficients are multiples of 1/1024, so that integer sums have integer combinations."""
MOST_BANDS = 64
MOST_ROUNDS = 1_000_000
"""For which bands are chosen: every try has numbers of all rounds."""


Coefficients = Sequence[float] | np.ndarray


def column_norms(coefficients: Coefficients) -> np.ndarray:
    """N_0 … N_b: the squared norm of a column of which so many rows are there."""
    return np.concatenate([[0.0], np.cumsum(np.square(np.asarray(coefficients, dtype=np.float64)))])


def sensitivity_squared(coefficients: Coefficients, rounds: int, separation: int) -> float:
    """By how much one client moves the first so many rows, squared and in units of S²."""
    if len(coefficients) > separation:
        raise ConfigError(
            f"{len(coefficients)} bands overlap where a client takes part every {separation} rounds: lower"
            " ⟨noise-bands⟩, or raise ⟨separation⟩"
        )
    if rounds < 1:
        return 0.0
    norms, before = column_norms(coefficients), math.ceil(rounds / separation) - 1
    return float(before * norms[-1] + norms[min(len(coefficients), rounds - before * separation)])


def workload(rounds: int, momentum: float = 0.0) -> np.ndarray:
    """a_0 … a_{T−1}: how a round's sum counts in the iterate so many rounds later."""
    return np.cumsum(momentum ** np.arange(rounds, dtype=np.float64))


def square_root(bands: int, momentum: float = 0.0) -> np.ndarray:
    """The first coefficients of 1/√((1 − x)(1 − ρx))."""
    counts = np.arange(1, bands, dtype=np.float64)
    root = np.concatenate([[1.0], np.cumprod((2 * counts - 1) / (2 * counts))])
    product: np.ndarray = np.convolve(root, root * momentum ** np.arange(bands, dtype=np.float64))[:bands]
    return product


def noise_in_iterates(coefficients: Coefficients, rounds: int, momentum: float = 0.0) -> np.ndarray:
    """d_0 … d_{T−1}: the coefficients of A·C⁻¹."""
    from scipy.signal import lfilter

    found: np.ndarray = lfilter([1.0], np.asarray(coefficients, dtype=np.float64), workload(rounds, momentum))
    return found


def mean_error(coefficients: Coefficients, *, rounds: int, separation: int, momentum: float = 0.0) -> float:
    """The root mean squared noise of the iterates, at the σ that makes up for the sensitivity: what is minimised."""
    noise = noise_in_iterates(coefficients, rounds, momentum)
    mean = float(np.square(noise) @ (1 - np.arange(rounds) / rounds))
    return math.sqrt(mean * sensitivity_squared(coefficients, rounds, separation))


def last_error(coefficients: Coefficients, *, rounds: int, separation: int, momentum: float = 0.0) -> float:
    """The noise of the last iterate alone."""
    noise = noise_in_iterates(coefficients, rounds, momentum)
    return math.sqrt(float(noise @ noise) * sensitivity_squared(coefficients, rounds, separation))


@functools.lru_cache(maxsize=64)
def choose_bands(*, bands: int, separation: int, rounds: int, momentum: float = 0.0) -> tuple[int, ...]:
    """c_0 … c_{b−1} in 1024ths, the first 1024: those with the least mean error that were found.

    There are fewer than `bands` where the last ones would be 0. It is never worse than independent noise.

    Args:
        bands: b, over how many rounds noise is correlated; at most 64.
        separation: B, the rounds from one participation of a client to its next; at least b.
        rounds: T.
        momentum: ρ of the server.

    Returns:
        The coefficients of a `CorrelatedGaussian`.

    Examples:
        >>> laconic.choose_bands(bands=4, separation=20, rounds=100)
        (1024, 724, 621, 538)

    References:
        docs/maths.md#correlated-noise; Kalinin and Lampert (2024).
    """
    positive_int(bands=bands, separation=separation, rounds=rounds)
    below_one(momentum=momentum)
    if bands > min(separation, MOST_BANDS):
        raise ConfigError(
            f"⟨noise-bands⟩ {bands} must be at most ⟨separation⟩ {separation}, so that no two participations of a"
            f" client meet in one release, and at most {MOST_BANDS}: lower ⟨noise-bands⟩"
        )
    if rounds > MOST_ROUNDS:
        raise ConfigError(f"⟨noise-bands⟩ is for at most {MOST_ROUNDS:,} rounds: lower ⟨rounds⟩, or leave it out")
    start = np.clip(square_root(bands, momentum), 0.0, 1.0)
    found = _descended(start, rounds, separation, momentum)
    tried = [_rounded(one) for one in (found, start, [1.0])]

    def error(units: tuple[int, ...]) -> float:
        return mean_error([n / UNIT for n in units], rounds=rounds, separation=separation, momentum=momentum)

    return min(tried, key=error)


def _rounded(coefficients: Coefficients) -> tuple[int, ...]:
    units = [round(float(value) * UNIT) for value in coefficients]
    while units[-1] == 0:
        units.pop()
    return tuple(units)


def _descended(start: np.ndarray, rounds: int, separation: int, momentum: float) -> np.ndarray:
    """Where L-BFGS ends: log of the mean squared noise plus log of the squared sensitivity, within 0 ≤ c_j ≤ 1.

    ∂d_k/∂c_j = −e_{k−j} with e = d/c, as d = a/c.
    """
    from scipy.optimize import minimize
    from scipy.signal import lfilter

    bands, weights = len(start), 1 - np.arange(rounds) / rounds
    if bands == 1:
        return start
    before = math.ceil(rounds / separation) - 1
    counted = before + (np.arange(bands) < rounds - before * separation)

    def objective(free: np.ndarray) -> tuple[float, np.ndarray]:
        c = np.concatenate([[1.0], free])
        with np.errstate(over="ignore", invalid="ignore"):
            noise = noise_in_iterates(c, rounds, momentum)
            twice = lfilter([1.0], c, noise)
            weighted = weights * noise
            mean, cost = float(weighted @ noise), float(counted @ c**2)
            if not (math.isfinite(mean) and np.isfinite(twice).all()):
                return 1e30, np.zeros(bands - 1)
            down = np.array([weighted[j:] @ twice[: rounds - j] if j < rounds else 0.0 for j in range(1, bands)])
            return math.log(mean) + math.log(cost), -2 * down / mean + 2 * (counted * c)[1:] / cost

    bounds = [(0.0, 1.0)] * (bands - 1)
    ended = minimize(objective, start[1:], jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 200})
    return np.concatenate([[1.0], ended.x])


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
