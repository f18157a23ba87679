"""What the server may see of the codes of a cohort. How a secure sum comes about is a matter of the runtime."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from laconic.parts import Part


@dataclass(frozen=True, kw_only=True)
class SumProtocol(Part):
    """Base of the ways to sum."""

    hides_single_codes: ClassVar[bool]
    """Whether the server learns the sum and nothing else. Noise shares are worthless without it."""


@dataclass(frozen=True, kw_only=True)
class PlainSum(SumProtocol):
    """Every code reaches the server in the clear."""

    hides_single_codes: ClassVar[bool] = False


@dataclass(frozen=True, kw_only=True)
class SecureSum(SumProtocol):
    """The server sees the sum and nothing else: masked by secure aggregation, or simulated on one machine."""

    hides_single_codes: ClassVar[bool] = True
