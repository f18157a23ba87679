"""The tight ε of many equal releases: in closed form for a Gaussian, by its loss distribution for a sampled one.

Some releases of other kinds may come besides, as votes and evaluations do.

dp-accounting makes the loss distribution of one release, pessimistically on a grid of 1e-4, one for each direction (a
client's code goes, or comes). It asks for the inverse of the loss one point at a time, a hundred thousand times for one
σ: seconds, and a calibration tries several. The same formulas on whole arrays give the same bits in an eighth of the
time.

A loss distribution is composed with itself by a sum over few frequencies in place of a convolution, fast enough for a
figure in every round. Where rounding would show, dp-accounting composes it as well, at about a tenth of a second a
figure.

One round's privacy loss is n·h with probability p(n), and infinite with probability p∞. After t rounds

    δ(ε) = 1 − (1 − p∞)^t + Σ over n·h > ε of (1 − e^(ε − n·h))·P(n),    P = p convolved with itself t times,

and ε is where this is δ. P's tail is wanted with a small *relative* error, so p is tilted until the tail is where the
bulk is: p_s(n) = p(n)·e^(s·n·h)/M(s) with M(s) = Σ p(n)·e^(s·n·h). That tilts P alike, with M(s)^t for M(s).

**It is an upper bound.** F_k = Σ p_s(n)·z_k^(−n), z_k = e^(2πi·k/N), is the FFT of p_s wrapped around N points. The
inverse FFT of F^t is P_s wrapped around, Σ_r P_s(n + r·N), which is never less than P_s(n). All weights below are
positive, so for j·h ≤ ε < (j+1)·h

    Σ_{n>j} (1 − e^(ε−n·h))·P(n)  ≤  M(s)^t/N · Σ_k F_k^t · Σ_{n>j} (e^(−s·n·h) − e^(ε−(s+1)·n·h))·z_k^n

for every s > 0 and N. The inner sums are geometric series. (This is the trapezoidal rule for the inverse Laplace
transform along Re = s.) As F is smooth, |F_k|^t is negligible for all but few k.

**How much is too much.** With L = N·h the right side exceeds the left one by the sum over r = 1, 2, … of
e^(s·r·L)·δ(ε + r·L) + e^(−s·r·L)·δ(ε − r·L). For ε ≥ 0, Chernoff's bound is δ(ε + r·L) ≤ M(s')^t·e^(−s'·r·L) for
every s' > s. L is so large that each of the two is at most 1e-9·δ for r = 1, and far less for the others.

**Rounding counts, too.** Each output of an FFT is a sum over a tree with log₂ N levels, and the moduli in a level add
up to Σ p_s = 1. With less than 7 units of roundoff a level (Higham 2002, Theorem 24.2), F_k is off by 8·u·log₂ N at
most, and F_k^t by t times as much, for |F_k| ≤ 1. This, the errors of p_s, of the powers and of the sum, and the
frequencies left out are bounded in `_tail`, times the moduli of the geometric series, and added to δ(ε). Where that
would raise ε by more than a twenty-thousandth, there is no answer.

So ε is never below that of the given distribution, and hardly above it.

**Releases of other kinds** may come besides, g convolved with itself v times: votes, evaluations. All of this holds
for the product F^t·G^v, with M(s)^t·M_g(s)^v for M(s)^t. |G_k| ≤ 1, so frequencies that are negligible without it stay
so. Several kinds are several such factors.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from laconic.privacy.accounting.record_sampling import RecordEvent

if TYPE_CHECKING:
    from dp_accounting import DpEvent
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution


_ORDERS = 2.0 ** np.arange(-3, 16.5, 0.5)
_WRAPPED = 1e-9
_LEFT_OUT = 1e-15
_UNIT_ROUNDOFF = 2.0**-53
_TOLERANCE = 5e-5


@dataclass(frozen=True, eq=False)
class Loss:
    """One round's privacy loss: `numbers`·`interval`, or infinite."""

    numbers: np.ndarray
    log_probabilities: np.ndarray
    interval: float
    infinity: float

    def tilted(self, order: float) -> tuple[np.ndarray, float]:
        """ln p(n) + s·n·h for every n, and ln M(s)."""
        exponents = self.log_probabilities + order * self.interval * self.numbers
        top = float(exponents.max())
        return exponents, top + math.log(float(np.exp(exponents - top).sum()))

    @functools.cached_property
    def log_moments(self) -> np.ndarray:
        """ln M(s) for the orders s."""
        return np.array([self.tilted(order)[1] for order in _ORDERS])


@dataclass(frozen=True, eq=False)
class _Transformed:
    """A tilted loss, wrapped around so many points: its FFT, ln M(s), its mean, and how far the FFT may be off."""

    spectrum: np.ndarray
    log_moment: float
    mean: float
    roundoffs: float

    @classmethod
    def of(cls, loss: Loss, tilt: float, size: int) -> _Transformed:
        from scipy import fft

        exponents, log_moment = loss.tilted(tilt)
        probabilities = np.exp(exponents - log_moment)
        # The FFT, the wrapping, the exponents of p_s, and the power.
        magnitude = np.abs(tilt * loss.interval * loss.numbers) + np.abs(loss.log_probabilities)
        tilting = 3 * (float(probabilities @ magnitude) + abs(log_moment))
        return cls(
            spectrum=fft.rfft(np.bincount(loss.numbers % size, probabilities, size)),
            log_moment=log_moment,
            mean=float(probabilities @ loss.numbers) * loss.interval,
            roundoffs=8 * math.log2(size) + len(loss.numbers) / size + tilting + 16,
        )


class ComposedLoss:
    """δ and ε of a loss after any number of rounds above most/2 and up to `most`, near one δ.

    `others` are other losses, on the same grid, and how often each came besides.
    """

    def __init__(self, loss: Loss, most: int, delta: float, others: tuple[tuple[Loss, int], ...] = ()) -> None:
        from scipy import fft

        self._loss, self._delta = loss, delta
        moments = most * loss.log_moments
        for other, times in others:
            assert other.interval == loss.interval
            moments = moments + times * other.log_moments
        self._tilt, length = _tilt_and_length(moments, delta)
        self._size = size = int(fft.next_fast_len(max(64, math.ceil(length / loss.interval)), real=True))
        transformed = _Transformed.of(loss, self._tilt, size)
        self._log_moment, self._mean, spectrum = transformed.log_moment, transformed.mean, transformed.spectrum
        # The largest modulus from each frequency on.
        reach = np.maximum.accumulate(np.abs(spectrum)[::-1])[::-1]
        kept = int(np.count_nonzero(reach > _LEFT_OUT ** (1 / (most // 2 + 1))))
        with np.errstate(divide="ignore"):  # ln 0 is meant
            self._decay = -np.log(reach[:kept])
            self._log_modulus = np.log(np.abs(spectrum[:kept]))
        self._angle = np.angle(spectrum[:kept])
        self._come_besides(others, kept)

        weights = np.full(kept, 2 / size)
        weights[np.arange(kept) % (size / 2) == 0] /= 2
        turn = 2j * math.pi / size * np.arange(kept)
        step, next_step = self._tilt * loss.interval, (self._tilt + 1) * loss.interval
        slope = -weights / np.expm1(turn - next_step)
        end = slope * math.exp(-step) * np.expm1(-loss.interval) * np.exp(turn) / np.expm1(turn - step)
        self._series = np.stack([end, slope])
        # At least the sum of |end| + h·|slope| over all frequencies, by Parseval and Cauchy-Schwarz.
        squares, next_squares = (-1.01 / math.expm1(-2 * x) for x in (step, next_step))
        self._moduli = loss.interval * (squares + math.sqrt(next_squares))
        self._roundoffs_a_round = transformed.roundoffs

    def _come_besides(self, others: tuple[tuple[Loss, int], ...], kept: int) -> None:
        """What comes besides, all of it together: ln M_g(s)^v, its mean, its errors, ln(1 − g∞)^v and ln G^v."""
        self._other_log_moment = self._other_mean = self._other_roundoffs = self._other_log_finite = 0.0
        self._other_log_modulus, self._other_angle = np.zeros(kept), np.zeros(kept)
        for loss, count in others:
            transformed = _Transformed.of(loss, self._tilt, self._size)
            self._other_log_moment += count * transformed.log_moment
            self._other_mean += count * transformed.mean
            self._other_roundoffs += count * transformed.roundoffs
            self._other_log_finite += count * math.log1p(-loss.infinity)
            with np.errstate(divide="ignore"):
                self._other_log_modulus += count * np.log(np.abs(transformed.spectrum[:kept]))
            self._other_angle += count * np.angle(transformed.spectrum[:kept])

    def delta(self, count: int, epsilon: float) -> float:
        """At most this δ at the ε."""
        cell = int(epsilon / self._loss.interval)
        at_end, slope, error = self._tail(count, cell)
        return at_end + error - slope * math.expm1(epsilon - (cell + 1) * self._loss.interval)

    def epsilon(self, count: int) -> float | None:
        """The least ε ≥ 0 for which δ is met; None if rounding leaves it open.

        In the cell j·h ≤ ε < (j+1)·h, δ(ε) is a straight line in e^ε. Newton's method on ln δ finds the cell.
        """
        interval, delta = self._loss.interval, self._delta
        finite = delta - self._infinite(count)
        if finite <= 0:
            return math.inf
        moment = count * self._log_moment + self._other_log_moment
        chernoff = max(0.0, (moment + _log_weight(self._tilt) - math.log(finite)) / self._tilt)
        low, high = 0, int(chernoff / interval) + 1
        guess = min(count * self._mean + self._other_mean, chernoff)
        while low <= high:
            cell = min(max(low, int(guess / interval)), high)
            end = (cell + 1) * interval
            at_end, slope, error = self._tail(count, cell)
            at_start = at_end + error - slope * math.expm1(-interval)
            if at_start <= delta:
                high = cell - 1
            elif error > _TOLERANCE * end * slope:  # an error e moves ε by e/slope
                if not at_end - error > delta:
                    return None
                low = cell + 1
            elif at_end + error > delta:
                low = cell + 1
            else:
                return end + math.log1p((at_end + error - delta) / slope)
            if at_start > 0 and slope > 0:
                guess = end - interval + math.log(at_start / delta) * at_start / slope
            if not low * interval <= guess <= (high + 1) * interval:
                # Not far to the left of what suffices: the tilt is wrong there.
                guess = max((low + high) * interval / 2, high * interval - 4 / self._tilt)
        return low * interval

    def _infinite(self, count: int) -> float:
        return -math.expm1(count * math.log1p(-self._loss.infinity) + self._other_log_finite)

    def _tail(self, count: int, cell: int) -> tuple[float, float, float]:
        """a, b and a bound of their errors, with which δ(ε) ≤ a + b·(1 − e^(ε − end)) + error in the cell."""
        kept = int(np.searchsorted(self._decay, -math.log(_LEFT_OUT) / count))
        turns = np.arange(kept) * (cell + 1) % self._size
        phases = count * self._angle[:kept] + (2 * math.pi / self._size) * turns + self._other_angle[:kept]
        powers = np.exp(count * self._log_modulus[:kept] + self._other_log_modulus[:kept] + 1j * phases)
        at_end, slope = (self._series[:, :kept] * powers).sum(axis=1).real  # pairwise, as the error bound needs it

        tilting = self._tilt * (cell + 1) * self._loss.interval
        exponent = count * self._log_moment + self._other_log_moment - tilting
        if exponent > 600:
            return 0.0, 0.0, math.inf
        scale = math.exp(exponent)
        roundoffs = count * self._roundoffs_a_round + self._other_roundoffs + 4 * tilting + 200
        error = _UNIT_ROUNDOFF * roundoffs + _LEFT_OUT
        return self._infinite(count) + scale * float(at_end), scale * float(slope), scale * error * self._moduli


def _tilt_and_length(log_moments: np.ndarray, delta: float) -> tuple[float, float]:
    """The tilt s, and its L, from ln M(s)^t of all rounds.

    Rounding errors weigh e^excess times as much as at the tilt of the best Chernoff bound. Twice the length is worth it
    if they become 256 times smaller.
    """
    tilts = _ORDERS[:-1]  # each has an s' above it
    moments = log_moments[:-1] + _log_weight(tilts) - math.log(delta)
    excess = moments - tilts * np.min(moments / tilts)
    room = -math.log(_WRAPPED * delta)
    gaps = _ORDERS - tilts[:, None]
    with np.errstate(divide="ignore"):
        beyond = np.where(gaps > 0, (np.maximum(log_moments, 0.0) + room) / gaps, math.inf).min(axis=1)
    lengths = np.maximum(room / tilts, beyond)
    chosen = int(np.argmin(np.log(lengths) + excess / 8))
    return float(tilts[chosen]), float(lengths[chosen])


def _log_weight(order: Any) -> Any:
    """ln max (1 − e^(−x))·e^(−s·x) over x = loss − ε > 0: Chernoff's bound is M(s)^t·e^(−s·ε) times that maximum."""
    return order * np.log(order / (order + 1)) - np.log1p(order)


def sampled_gaussian(noise_multiplier: float, sampling_rate: float) -> PrivacyLossDistribution:
    """What `from_gaussian_mechanism` returns for a sampling rate below 1, pessimistic and on a grid of 1e-4."""
    from dp_accounting.pld import privacy_loss_distribution as pld
    from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, GaussianPrivacyLoss

    class AtOnce(GaussianPrivacyLoss):  # type: ignore[misc]
        """The delta of many ε at once; anything else, and any point out of the ordinary, is left to the original."""

        def get_delta_for_epsilon(self, epsilon: Any) -> Any:
            points, added = np.asarray(epsilon, dtype=float), self.adjacency_type == AdjacencyType.ADD
            edge = -math.log1p(-sampling_rate) if added else math.log1p(-sampling_rate)
            inside = points < edge if added else points > edge
            cutoffs = _inverse(points[inside], noise_multiplier, sampling_rate, added) if points.ndim else None
            if cutoffs is None:
                return super().get_delta_for_epsilon(epsilon)
            deltas = np.zeros_like(points) if added else -np.expm1(points)
            lower = np.exp(points[inside] + self.mu_lower_log_cdf(cutoffs))
            deltas[inside] = self.mu_upper_cdf(cutoffs) - lower
            return np.clip(deltas, 0, 1)

    def one_direction(direction: Any) -> Any:
        loss = AtOnce(noise_multiplier, sampling_prob=sampling_rate, adjacency_type=direction)
        return pld._create_pld_pmf_from_monotone_privacy_loss(loss, use_connect_dots=True)

    return pld._pld_for_subsampled_mechanism(one_direction, sampling_rate)


def _inverse(points: np.ndarray, noise_multiplier: float, rate: float, added: bool) -> np.ndarray | None:
    """The largest outputs at which the loss is at least so large; None where a point is too close to the edge."""
    edge = -math.log(1 - rate) if added else math.log(1 - rate)
    if np.any(np.abs(points - edge) <= 1e-9 * np.maximum(np.abs(points), abs(edge))):
        return None
    a, b, c = 1 / rate, -points if added else points, 1 - 1 / rate
    larger, smaller = b + np.log(a), np.log(-c)
    if np.any(smaller >= larger):
        return None
    unsampled = np.where(b == 0, np.log(a + c), larger + np.log1p(-np.exp(smaller - larger)))
    cutoffs: np.ndarray = (1.0 if added else 0.0) + (-0.5 - (-unsampled if added else unsampled) * noise_multiplier**2)
    return cutoffs


Release = tuple["DpEvent | RecordEvent", int]
"""An event, and how often it is released."""
Releases = tuple[Release, ...]
_LARGEST_MU = 1e6


@functools.lru_cache(maxsize=4096)
def tight_epsilon(event: DpEvent | RecordEvent, count: int, delta: float, *others: Release) -> float:
    """ε of `count` independent releases of a Gaussian, a Poisson-sampled one, or a round of those.

    `others` are releases of other events besides, all sampled if this one is.
    """
    from dp_accounting import GaussianDpEvent

    if isinstance(event, GaussianDpEvent):
        multiplier = event.noise_multiplier / math.sqrt(count)
        for other, times in others:
            assert isinstance(other, GaussianDpEvent), "all are sampled, or none is"
            multiplier = (multiplier**-2 + times / other.noise_multiplier**2) ** -0.5
        return gaussian_epsilon(multiplier, delta)
    # Composed for the next power of two, so that ε does not depend on what was asked before.
    directions = _composed(event, 1 << (count - 1).bit_length(), delta, others)
    largest = 0.0
    for direction in directions:
        if largest < math.inf and not direction.delta(count, largest) <= delta:
            found = direction.epsilon(count)
            if found is None:
                return _convolved(event, count, delta, others)
            largest = max(largest, found)
    return largest


def _convolved(event: DpEvent | RecordEvent, count: int, delta: float, others: Releases) -> float:
    """The composed loss by dp-accounting's own composition."""
    composed = _distribution(event).self_compose(count)
    for other, times in others:
        composed = composed.compose(_distribution(other).self_compose(times))
    return float(composed.get_epsilon_for_delta(delta))


def gaussian_epsilon(noise_multiplier: float, delta: float) -> float:
    """The ε at which δ = Φ(μ/2 − ε/μ) − e^ε·Φ(−μ/2 − ε/μ), μ = 1/σ (Balle and Wang 2018, Theorem 8).

    `count` releases with σ are one with σ/√count: both have a normally distributed privacy loss, of variance count/σ².
    """
    from scipy.optimize import brentq
    from scipy.special import log_ndtr

    mu = 1 / noise_multiplier
    enough = mu * mu / 2 + mu * math.sqrt(-2 * math.log(delta))  # by the moments of the loss
    if mu > _LARGEST_MU:  # next to no noise: floats cannot tell better
        return enough

    def excess(epsilon: float) -> float:
        with_client = float(log_ndtr(mu / 2 - epsilon / mu))
        without = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
        return with_client + math.log(-math.expm1(min(without - with_client, -1e-300))) - math.log(delta)

    if excess(0.0) <= 0:
        return 0.0
    accuracy = 1e-12 * enough + 1e-14
    return float(brentq(excess, 0.0, enough, xtol=accuracy)) + 2 * accuracy


@functools.lru_cache(maxsize=32)
def _composed(event: DpEvent | RecordEvent, most: int, delta: float, others: Releases) -> tuple[ComposedLoss, ...]:
    besides = [(_losses(other), times) for other, times in others]
    return tuple(
        ComposedLoss(loss, most, delta, tuple((losses[way], times) for losses, times in besides))
        for way, loss in enumerate(_losses(event))
    )


@functools.lru_cache(maxsize=16)
def _losses(event: DpEvent | RecordEvent) -> tuple[Loss, ...]:
    """The loss in each direction. The one for a code that goes first: it mostly decides."""
    distribution = _distribution(event)
    masses = [m.to_dense_pmf() for m in (distribution._pmf_remove, distribution._pmf_add)]
    losses = []
    for mass in masses:
        possible = np.flatnonzero(mass._probs > 0)
        log_probabilities = np.log(mass._probs[possible])
        losses.append(
            Loss(mass._lower_loss + possible, log_probabilities, mass._discretization, float(mass._infinity_mass))
        )
    return tuple(losses)


@functools.lru_cache(maxsize=16)
def _distribution(event: DpEvent | RecordEvent) -> PrivacyLossDistribution:
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
    from dp_accounting.pld import privacy_loss_distribution as pld

    if isinstance(event, RecordEvent):
        return event.distribution([_distribution(part) for part in event.parts])
    if isinstance(event, GaussianDpEvent):
        return pld.from_gaussian_mechanism(event.noise_multiplier)
    if isinstance(event, PoissonSampledDpEvent) and isinstance(event.event, GaussianDpEvent):
        return sampled_gaussian(event.event.noise_multiplier, event.sampling_probability)
    raise ValueError(f"no privacy loss distribution for {event}")
