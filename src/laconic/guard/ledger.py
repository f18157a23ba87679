"""What uploads cost, by the transcript alone: every upload by its own price, composed in closed form.

An upload is a Gaussian mechanism, whose noise multiplier z is in its price. Gaussians compose exactly: with z_1, z_2, …
they are one with 1/z² = Σ 1/z_i², and

    δ(ε) = Φ(μ/2 − ε/μ) − e^ε·Φ(−μ/2 − ε/μ),  μ = 1/z                            (Balle and Wang 2018, Theorem 8).

A unit that is drawn with the rate q by coins that stay secret adds, to the order α, the Rényi divergence of a
Poisson-sampled Gaussian (Mironov, Talwar and Zhang 2019, Eq. 10, for whole α),

    R_α ≤ log(Σ_k C(α, k)·(1 − q)^(α−k)·q^k·e^{(k² − k)/(2z²)}) / (α − 1),

and ε = min_α ΣR_α + log(1 − 1/α) − log(δα)/(α − 1) (Canonne, Kamath and Steinke 2020, Proposition 12). That is an upper
bound, by some per cent; the tight figure, which needs loss distributions, is computed outside and only shown.

All of it is against a server that knows when the node took part. Sampling of nodes is counted nowhere: what an outsider
learns is less, and never more.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from laconic.errors import RunFolderError
from laconic.guard.contract import CLIENT, PATIENT, RECORD, SMOOTHING, UNITS, Contract, Release
from laconic.guard.noise import draw_gap, draw_total_variation

PARTS_OF = {CLIENT: (PATIENT, RECORD), PATIENT: (RECORD,), RECORD: ()}
"""What is a part of each unit: it is protected with it, if less well."""
_ORDERS = (*range(2, 64), *range(64, 129, 4), 160, 192, 256, 512, 1024)
_ACCURACY = 1e-12
_AS_GOOD_AS_NONE = 1e-100
"""A noise multiplier whose square would soon be no float."""


@dataclass(frozen=True)
class Seen:
    """What shows one unit: `count` Gaussians with this noise multiplier, the unit drawn with probability `rate`."""

    noise_multiplier: float
    rate: float = 1.0
    count: int = 1


@dataclass(frozen=True)
class Price:
    """The price of an upload: what it shows of a unit, by its name; nothing bounds it for units that are not there.

    `delta` is what the finite precision of the sampler adds to δ.
    """

    seen: Mapping[str, Seen]
    delta: float = 0.0

    @classmethod
    def of(cls, contract: Contract, release: Release, rounds: int = 1) -> Self:
        """The price in this kind of round. A unit with parts at several nodes is in all `rounds` since the last."""
        times = rounds if release.owners > 1 else 1  # of any kind: in all but this one other nodes had the unit
        prices = [one.price for one in contract.releases] if times > 1 else [release.price]
        z, rate, count = min(z for z, _, _ in prices), max(rate for _, rate, _ in prices), release.price[2]
        if z < _AS_GOOD_AS_NONE:
            return cls({})
        own, steps = contract.unit, release.steps
        seen = {own: Seen(z, rate, count * times)}
        if steps is not None:
            draws = draw_total_variation(steps.scale) + draw_gap(steps.scale)
            return cls(seen, steps.count * steps.size * draws)
        # One record more or less can turn a code around: two codes within the bound differ by twice the bound at most.
        turned = math.sqrt(release.scale**2 - SMOOTHING**2) / (2 * release.units * release.sensitivity)
        seen |= {part: Seen(min(turned, z)) for part in PARTS_OF[own]}
        share, whole = release.scale / math.sqrt(contract.largest_cohort), release.whole
        draws = draw_total_variation(share, integer_mean=whole) + draw_gap(share, integer_mean=whole)
        return cls(seen, times * contract.largest_cohort * release.code_size * draws)

    def row(self) -> dict[str, Any]:
        """As values of JSON."""
        return {"delta": self.delta} | {unit: asdict(seen) for unit, seen in self.seen.items()}

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """The price in a row of the log; the cost that older versions wrote is read as the dearest that it can be."""
        try:
            if "price" in row:
                price = row["price"]
                return cls({unit: Seen(**price[unit]) for unit in UNITS if unit in price}, float(price["delta"]))
            cost = row["cost"]
            if cost["noise_multiplier"] is None:
                return cls({})
            noise = (cost["noise_multiplier"], cost.get("evaluation_noise_multiplier"))
            least, own = min(z for z in noise if z is not None), cost.get("unit", CLIENT)
            seen = {own: Seen(least, float(cost.get("record_rate", 1)), int(cost.get("local_steps", 1)))}
            return cls(seen | {part: Seen(least / 2) for part in PARTS_OF[own]}, float(cost["delta"]))
        except (KeyError, TypeError, ValueError, AttributeError):
            raise RunFolderError(
                f"the log's row of run {str(row.get('run'))[:8]}… does not say what the upload costs (an older version"
                " wrote it, or it is damaged): limits over a lifetime need a log of this version; keep the old folder"
                " and begin a new one, or drop the lifetime limits"
            ) from None


def composed(prices: Iterable[Price], delta: float, unit: str = CLIENT) -> float:
    """ε of one unit over all these uploads, at this δ; infinite where nothing bounds it."""
    every = list(prices)
    if not every:
        return 0.0
    left = delta - math.fsum(price.delta for price in every)
    some = [price.seen[unit] for price in every if unit in price.seen]
    if left <= 0 or len(some) < len(every):
        return math.inf
    if all(one.rate == 1 for one in some):
        return gaussian_epsilon(math.sqrt(math.fsum(one.count / one.noise_multiplier**2 for one in some)), left)
    return min(_renyi(some, order) + _converted(order, left) for order in _ORDERS)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The least ε with δ(ε) ≤ δ, from above."""
    if delta >= 1:
        return 0.0
    low, high = 0.0, mu * mu / 2 + mu * math.sqrt(-2 * math.log(delta))
    if mu > 1e6 or _log_delta(low, mu) <= math.log(delta):
        return high if mu > 1e6 else low
    while high - low > _ACCURACY * high:
        middle = (low + high) / 2
        low, high = (low, middle) if _log_delta(middle, mu) <= math.log(delta) else (middle, high)
    return high


def _log_delta(epsilon: float, mu: float) -> float:
    first, second = _log_normal(mu / 2 - epsilon / mu), epsilon + _log_normal(-mu / 2 - epsilon / mu)
    return first + math.log(-math.expm1(min(second - first, -1e-300)))


def _log_normal(x: float) -> float:
    """log Φ(x)."""
    if x > -30:
        return math.log(math.erfc(-x / math.sqrt(2)) / 2)
    y = 1 / (x * x)
    return -x * x / 2 - math.log(-x * math.sqrt(2 * math.pi)) + math.log1p(-y + 3 * y**2 - 15 * y**3 + 105 * y**4)


def _renyi(some: list[Seen], order: int) -> float:
    counts: dict[tuple[float, float], int] = {}
    for one in some:
        key = (one.noise_multiplier, one.rate)
        counts[key] = counts.get(key, 0) + one.count
    return math.fsum(count * _divergence(*key, order) for key, count in counts.items())


@functools.lru_cache(maxsize=4096)  # every round of a run asks for the same ones
def _divergence(z: float, rate: float, order: int) -> float:
    if rate == 1:
        return order / (2 * z * z)
    terms = [
        math.lgamma(order + 1) - math.lgamma(k + 1) - math.lgamma(order - k + 1)
        + (order - k) * math.log1p(-rate) + k * math.log(rate) + (k * k - k) / (2 * z * z)
        for k in range(order + 1)
    ]  # fmt: skip
    most = max(terms)
    return (most + math.log(math.fsum(math.exp(term - most) for term in terms))) / (order - 1)


def _converted(order: int, delta: float) -> float:
    return math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)
