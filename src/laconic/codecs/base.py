"""What a codec is, and the one that changes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from laconic.parts import Part
from laconic.plan import RoundPlan


@dataclass(frozen=True, kw_only=True)
class Codec(Part):
    """Update (..., n) → code (..., m) → update (n). Leading axes are clients."""

    linear: ClassVar[bool] = True
    """Whether the code of a sum is the sum of the codes (only sign is not)."""

    def code_size(self, size: int) -> int:
        """m for a model of n weights."""
        raise NotImplementedError

    def support(self, size: int, plan: RoundPlan) -> Tensor | None:
        """The coordinates that are trained; None means all."""
        return None

    def encode(self, update: Tensor, plan: RoundPlan) -> Tensor:
        raise NotImplementedError

    def decode(self, code: Tensor, size: int, plan: RoundPlan) -> Tensor:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Identity(Codec):
    """The update itself: m = n."""

    def code_size(self, size: int) -> int:
        return size

    def encode(self, update: Tensor, plan: RoundPlan) -> Tensor:
        return update

    def decode(self, code: Tensor, size: int, plan: RoundPlan) -> Tensor:
        return code
