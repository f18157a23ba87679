"""Which noise is correlated with which: the banded matrix of a run, what it costs and what it gains.

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
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from laconic.errors import ConfigError
from laconic.parts import below_one, positive_int

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
    """The same of the last iterate alone."""
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
