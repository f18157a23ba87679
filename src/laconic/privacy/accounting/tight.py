"""The tight ε of many equal releases: in closed form for a Gaussian, by its loss distribution for a sampled one.

Some releases of other kinds may come besides, as votes and evaluations do.

dp-accounting makes the loss distribution of one release, pessimistically on a grid of 1e-4, one for each direction (a
client's code goes, or comes). It asks for the inverse of the loss one point at a time, a hundred thousand times for one
σ: seconds, and a calibration tries several. The same formulas on whole arrays give the same bits in an eighth of the
time.

`composed_loss` composes the distribution, fast enough for a figure in every round. Where rounding would show,
dp-accounting composes it as well, at about a tenth of a second a figure.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from laconic.privacy.accounting.composed_loss import ComposedLoss, Loss
from laconic.privacy.accounting.record_events import RecordEvent

if TYPE_CHECKING:
    from dp_accounting import DpEvent
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution


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
    """The same by dp-accounting's own composition."""
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
