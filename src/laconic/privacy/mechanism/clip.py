"""Bounding what one client can contribute."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from laconic.errors import ConfigError
from laconic.guard.noise import LARGEST_NORM, SAFE, SMALLEST_NORM, marks_of
from laconic.parts import Part, positive, rate

if TYPE_CHECKING:
    from torch import Tensor

_LONG_ROW = 1 << 15


def check_norm(clip_norm: float) -> None:
    """Refuse a bound S that float32 cannot keep."""
    positive(clip_norm=clip_norm)
    if not SMALLEST_NORM <= clip_norm <= LARGEST_NORM:
        raise ConfigError(
            f"clip_norm must be {SMALLEST_NORM:g} to {LARGEST_NORM:g}, not {clip_norm:g}: float32 cannot hold codes of"
            " other norms exactly enough to bound them"
        )


@dataclass(frozen=True, kw_only=True)
class Clip(Part):
    """Base of the bounds. `bounded` says whether `sensitivity` is finite."""

    @property
    def bounded(self) -> bool:
        return math.isfinite(self.sensitivity(1))

    def __call__(self, code: Tensor) -> Tensor:
        raise NotImplementedError

    def by_blocks(self, code: Tensor) -> Callable[[slice], Tensor]:
        """The same a block of coordinates at a time, for who has no use for all of them at once."""
        clipped = self(code)
        return lambda block: clipped[..., block]

    def sensitivity(self, code_size: int) -> float:
        """The largest L2 norm that one client's code can have."""
        raise NotImplementedError

    @property
    def stated(self) -> tuple[str, float]:
        """(kind, number) as a contract states the bound: `laconic.guard.contract` knows the kinds."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class NoClip(Clip):
    """The code as it is."""

    def __call__(self, code: Tensor) -> Tensor:
        return code

    def sensitivity(self, code_size: int) -> float:
        return math.inf

    @property
    def stated(self) -> tuple[str, float]:
        return "none", 0.0


@dataclass(frozen=True, kw_only=True)
class UnitEntries(Clip):
    """Entries within ±1, as signs are: ‖code‖₂ ≤ √m (thesis section 5.2.1)."""

    def __call__(self, code: Tensor) -> Tensor:
        return code.nan_to_num(0.0).clamp(-1, 1)

    def sensitivity(self, code_size: int) -> float:
        return math.sqrt(code_size)

    @property
    def stated(self) -> tuple[str, float]:
        return "entries", 1.0


@dataclass(frozen=True, kw_only=True)
class Marks(Clip):
    """Entries of 0 and 1, and at most M = ⌈r·m⌉ ones: ‖code‖₂ ≤ √M, without rounding (thesis section 5.4.3).

    Of a code with more ones the first M are left. What is not above 0, a NaN too, is no mark.
    """

    ratio: float

    def __post_init__(self) -> None:
        rate(ratio=self.ratio)

    def __call__(self, code: Tensor) -> Tensor:
        import torch

        marked = code > 0
        allowed = marked.cumsum(-1, dtype=torch.int32) <= marks_of(self.ratio, code.shape[-1])
        return (marked & allowed).to(code.dtype)

    def sensitivity(self, code_size: int) -> float:
        return math.sqrt(marks_of(self.ratio, code_size))

    @property
    def stated(self) -> tuple[str, float]:
        return "marks", self.ratio


def _norms(code: Tensor) -> Tensor:
    """‖code‖₂ in float64, row by row, (…, 1). On a CPU torch makes a copy in float64: of one long row at a time."""
    import torch

    if code.ndim == 2 and not code.is_cuda and code.shape[1] >= _LONG_ROW and len(code):
        return torch.stack([torch.linalg.vector_norm(row, dim=-1, keepdim=True, dtype=torch.float64) for row in code])
    norms: Tensor = torch.linalg.vector_norm(code, dim=-1, keepdim=True, dtype=torch.float64)
    return norms


@dataclass(frozen=True, kw_only=True)
class L2Clip(Clip):
    """code / max(1, ‖code‖₂ / S), row by row (thesis Alg. 10, line 13).

    The scale aims at S·(1 − 2⁻²⁰), so that float32 rounding cannot push a norm above S. A code with a NaN or an
    infinity has no norm; it becomes zero, since anything else would pass unclipped.
    """

    clip_norm: float

    def __post_init__(self) -> None:
        check_norm(self.clip_norm)

    def __call__(self, code: Tensor) -> Tensor:
        return self.by_blocks(code)(slice(None))

    def roots(self, code: Tensor) -> Tensor:
        """By what a row is multiplied twice, (…, 1); NaN for one that has no norm.

        The scale is in two factors: one alone could be so small that float32 holds only a few bits of it.
        """
        target = self.clip_norm * SAFE
        norm = _norms(code)
        root = (target / norm.clamp(min=target)).sqrt().to(code.dtype)
        return root.where(norm.isfinite(), code.new_full((), math.nan))

    def by_blocks(self, code: Tensor) -> Callable[[slice], Tensor]:
        root = self.roots(code)
        finite = root.isfinite()
        all_finite = bool(finite.all())

        def clipped(block: slice) -> Tensor:
            some = (code[..., block] * root).mul_(root)
            # where(), not a product: 0 × NaN would stay NaN.
            return some if all_finite else some.where(finite, code.new_zeros(()))

        return clipped

    def sensitivity(self, code_size: int) -> float:
        return self.clip_norm

    @property
    def stated(self) -> tuple[str, float]:
        return "l2", self.clip_norm
