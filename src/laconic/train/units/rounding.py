"""A unit's code, clipped and put on the grid of the noise; and arithmetic that has the same bits in every order.

Float64 adds whole numbers exactly up to 2⁵³, so sums and products of whole numbers below that do not depend on the
order, on the number of threads or on the machine. All else is done entry by entry with operations that IEEE 754 rounds
correctly: +, −, ×, ÷, √ and rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from laconic.errors import ConfigError
from laconic.guard.noise import MEAN_BITS

MARGIN = 1 - 2.0**-40
"""More than the roundings of a few operations in float64."""
_PIECE = 1 << 14
TINY = 1e-290
"""Below every norm that matters: what something is divided by is at least this."""


class UnitGrid(NamedTuple):
    """S and the grid: one unit of the code is F = `steps` whole numbers."""

    clip_norm: float
    grid_units: float

    @property
    def steps(self) -> float:
        """F, in 256ths of the units of the noise's grid."""
        return self.grid_units * float(2**MEAN_BITS)

    @property
    def largest(self) -> float:
        """S·F: the largest norm of a unit on the grid."""
        return self.clip_norm * self.steps

    def check(self, size: int) -> None:
        """Refuse a grid on which codes of so many values would be mostly rounding."""
        least = 8 * math.sqrt(size)
        if self.largest < least:
            raise ConfigError(
                f"the grid is too coarse for single units: a code of norm {self.clip_norm:g} has {self.largest:.3g}"
                f" steps on it, and codes of {size} values take {least:.3g} or more; use more --bits"
            )


def on_grid(codes: Tensor, grid: UnitGrid) -> Tensor:
    """Clipped codes (units, m) as whole numbers in float64: of norm S·F at most, rounding included.

    A code that is not finite becomes zeros. What comes of one row does not depend on the others.

    *Why the norm holds.* `norms` gives n⁺ ≥ ‖c‖. The factor is f = min(F, (S·F − √m/2)/n⁺), so ‖f·c‖ ≤ S·F − √m/2.
    Rounding to the nearest moves each entry by ½ at most, so the vector by √m/2.
    """
    size = codes.shape[-1]
    grid.check(size)
    found = norms(codes)
    factor = factors(found, grid.steps, grid.largest - math.sqrt(size) / 2)
    # where(), not a product: 0 × NaN would stay NaN.
    return (codes.double() * factor).round_().where(found.isfinite(), 0.0)


def factors(found: Tensor, steps: float, target: float | Tensor) -> Tensor:
    """min(steps, target/norm), a little less for the roundings of float64; 0 where the norm is not finite, or the
    target is below 0."""
    allowed = target / found.clamp(min=TINY)
    return allowed.clamp_(max=steps).mul_(MARGIN).clamp_(min=0.0).where(found.isfinite(), 0.0)


def norms(rows: Tensor) -> Tensor:
    """(count, 1) float64: an upper bound of every row's norm, a little above it; NaN or infinity if the row has one.

    The entries are scaled by the largest and rounded to b bits, so that the sum of their squares is exact. Rounding
    moves the scaled row by √m/2 at most, which is added.
    """
    size = rows.shape[-1]
    if not size:
        return torch.zeros(len(rows), 1, dtype=torch.float64, device=rows.device)
    if size == 1:
        return rows.double().abs()
    one = 2.0 ** ((52 - math.ceil(math.log2(size))) // 2)
    largest = rows.abs().amax(-1, keepdim=True).double()
    scale = largest.clamp(min=TINY)
    scaled = (rows / scale).mul_(one).round_()
    return (scaled.square_().sum(-1, keepdim=True).sqrt_() + math.sqrt(size) / 2) * (scale / one)


def by_pieces(function: Callable[..., Tensor], *rows: Tensor) -> Tensor:
    """function(*rows) for a function of single rows; on a CPU some rows at a time, which stay in a core's cache.

    Below 2¹⁵ numbers torch asks for no other threads, which take longer to come than the work takes.
    """
    count, width = rows[0].shape
    at_once = max(1, _PIECE // max(1, width))
    if rows[0].is_cuda or count <= at_once:
        return function(*rows)
    pieces = (torch.split(values, at_once) for values in rows)
    return torch.cat([function(*some) for some in zip(*pieces, strict=True)])


def whole_sum(values: Tensor, dim: int, bits: int) -> Tensor:
    """Σ values, each rounded to a multiple of 2^−bits: exact, so in any order. |Σ| must be below 2^(53 − bits)."""
    return values.mul(2.0**bits).round_().sum(dim).mul_(2.0**-bits)


_LOG2_E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
"""ln 2 in two parts (fdlibm): a whole number of up to 20 bits times the first is exact."""


def exponential(values: Tensor) -> Tensor:
    """eˣ for x ≤ 0, within 2⁻³⁰ of it, in operations that every machine rounds alike. A NaN stays one.

    Libraries' own exponentials differ by machine, by vector width and by place in the vector, in the last bit.
    """
    x = values.clamp(min=-700.0)
    power = x.mul(_LOG2_E).round_()
    rest = x.sub_(power * _LN2_HIGH).sub_(power * _LN2_LOW)
    result = torch.full_like(rest, 1 / math.factorial(9))
    for degree in range(8, -1, -1):
        result.mul_(rest).add_(1 / math.factorial(degree))
    return result.mul_(power_of_two(power.nan_to_num_(0.0)))


def power_of_two(power: Tensor) -> Tensor:
    """2^power for whole numbers from −1022 to 1023, in float64, exactly."""
    return ((power.long() + 1023) << 52).view(torch.float64)
