"""Draws from DG(μ, ξ) where the tensors are: the sampler of `laconic.guard.noise` with a stream's words."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any, NamedTuple

from laconic.guard.noise import MEAN_BITS, Tables, draw_around, draw_centred, exact_tables, theta_gap

if TYPE_CHECKING:
    from torch import Tensor

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

    return exact_tables(scale, num_means).mapped(lambda array: torch.from_numpy(array).to(device))


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
