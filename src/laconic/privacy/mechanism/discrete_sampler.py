"""Draws from DG(μ, ξ) for real means and any scale, fast and with a stated distance from the exact distribution.

Two facts make it fast. Where θ(ξ) = 2·exp(−2π²ξ²)/(1 − exp(−6π²ξ²)) (thesis Lemma 1),
  DG(μ, ξ₁) + k·DG(0, ξ₂) is DG(μ, √(ξ₁² + k²ξ₂²)) up to a factor 1 ± 3θ(s), s = ξ₁ξ₂/√(ξ₁² + k²ξ₂²), at every point:
completing the square leaves a sum of exp(−(a − c)²/2s²) over integers a, which is √(2π)·s·(1 ± θ(s)) for every c. So a
real mean is drawn with a small scale, from one of 256 tables, and most of the noise with an integer mean, from one
table; and a large scale is put together from small ones. A mean is a multiple of 1/256: values are cut towards zero
before anything is drawn, which cannot lengthen a clipped code.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from laconic.parts import positive
from laconic.privacy.mechanism.discrete_table import TABLE_TOTAL_VARIATION, discrete_tables

if TYPE_CHECKING:
    from torch import Tensor

    from laconic.streams import Stream

MEAN_BITS = 8
_SMALL, _LARGE = 2.0, 1024.0


def theta_gap(scale: float) -> float:
    """θ(ξ): how far Σ exp(−(x − μ)²/2ξ²) over the integers is from √(2π)·ξ, relatively, at most (thesis Lemma 1)."""
    r = math.exp(-2 * math.pi**2 * scale**2)
    return 2 * r / (1 - r**3)


def fixed_point(mean: Tensor, units: float = 1.0) -> Tensor:
    """mean·units in 256ths (int64), cut towards zero."""
    fixed: Tensor = (mean.double() * (units * 2**MEAN_BITS)).long()
    return fixed


def draw_discrete_gaussian(mean: Tensor, scale: float, stream: Stream, *, integer_mean: bool = False) -> Tensor:
    """Integers (int64) from DG(mean, scale), one per entry of `mean`, which is cut to multiples of 1/256."""
    if not integer_mean:
        return draw_around(fixed_point(mean), scale, stream)
    positive(scale=scale)
    whole: Tensor = mean.long()
    return whole + _centred(scale, mean.numel(), stream, mean.device).reshape(mean.shape)


def draw_around(fixed: Tensor, scale: float, stream: Stream) -> Tensor:
    """Integers (int64) from DG(fixed / 256, scale), one per entry of `fixed` (int64)."""
    positive(scale=scale)
    count, device, flat = fixed.numel(), fixed.device, fixed.reshape(-1)
    small = scale if scale < 2 * _SMALL else _SMALL
    tables = discrete_tables(small, 2**MEAN_BITS, str(device))
    drawn = tables.draw(flat & (2**MEAN_BITS - 1), count, stream.fork("fraction"), device)
    drawn.add_(flat >> MEAN_BITS)
    if small != scale:
        drawn.add_(_centred(math.sqrt(scale**2 - small**2), count, stream, device))
    return drawn.reshape(fixed.shape)


def _centred(scale: float, count: int, stream: Stream, device: object) -> Tensor:
    """DG(0, scale); a large scale is k·DG(0, 100) + DG(0, the rest), again and again."""
    step, rest = _split(scale)
    if step == 0:
        return discrete_tables(scale, 1, str(device)).draw(None, count, stream.fork("whole"), device)
    coarse = discrete_tables(100.0, 1, str(device)).draw(None, count, stream.fork(f"coarse {step}"), device)
    return step * coarse + _centred(rest, count, stream, device)


def _split(scale: float) -> tuple[int, float]:
    """(k, ξ₁) with scale² = ξ₁² + k²·100² and ξ₁ ≥ 3k; k = 0 where one table serves."""
    if scale <= _LARGE:
        return 0, scale
    step = math.floor(scale / math.sqrt(100.0**2 + 9))
    return step, math.sqrt(scale**2 - (step * 100.0) ** 2)


def draw_gap(scale: float, *, integer_mean: bool = False) -> float:
    """How far one draw's probability of any value is from DG's, relatively, at most: the 3θ(s) of every addition."""
    return sum(3 * theta_gap(s) for s in _additions(scale, integer_mean=integer_mean))


def draw_total_variation(scale: float, *, integer_mean: bool = False) -> float:
    """At most how far, in total variation, one draw is from that: each table that it takes is cut and rounded.

    `scale` is meant as a float: where a draw is put together, its scale is that up to a float's rounding, 2^−52 of it.
    """
    return (1 + len(_additions(scale, integer_mean=integer_mean))) * TABLE_TOTAL_VARIATION


def sum_total_variation(scale: float, count: int) -> float:
    """At most how far, in total variation, the sum of so many DG(μ_k, scale) is from DG(Σμ_k, scale·√count).

    The distribution of X₁ + X₂ at z is that of DG(μ₁ + μ₂, √(ξ₁² + ξ₂²)) times S(z), a sum of exp(−(a − c)²/2s²) over
    integers a, up to a constant. S varies by a factor r = (1 + θ(s))/(1 − θ(s)) at most, and s ≥ scale/√2 for each of
    count − 1 additions. A ratio within 1/R … R everywhere, R = r^(count − 1), is a distance of (R − 1)/2 at most.
    """
    gap = theta_gap(scale / math.sqrt(2))
    return math.expm1((count - 1) * (math.log1p(gap) - math.log1p(-gap))) / 2


def _additions(scale: float, *, integer_mean: bool) -> list[float]:
    """The s = ξ₁ξ₂/√(ξ₁² + k²ξ₂²) of every addition by which a draw is put together."""
    found = []
    if not integer_mean:
        if scale < 2 * _SMALL:
            return []
        rest = math.sqrt(scale**2 - _SMALL**2)
        found.append(_SMALL * rest / scale)
        scale = rest
    while (split := _split(scale))[0]:
        rest = split[1]
        found.append(100.0 * rest / scale)
        scale = rest
    return found
