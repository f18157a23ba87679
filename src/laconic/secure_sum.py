"""How the codes of a cohort become their sum, and what the server sees of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from laconic.parts import Part


@dataclass(frozen=True, kw_only=True)
class SumProtocol(Part):
    """Base of the ways to sum."""

    hides_single_codes: ClassVar[bool]
    """Whether the server learns the sum and nothing else. Noise shares are worthless without it."""
    statement: ClassVar[str]


@dataclass(frozen=True, kw_only=True)
class PlainSum(SumProtocol):
    """Every code reaches the server in the clear."""

    hides_single_codes: ClassVar[bool] = False
    statement: ClassVar[str] = "none: the server sees every client's code"


@dataclass(frozen=True, kw_only=True)
class SimulatedSecureSum(SumProtocol):
    """The sum that secure aggregation would give, computed in the open: for simulations on one machine only."""

    hides_single_codes: ClassVar[bool] = True
    statement: ClassVar[str] = (
        "simulated: this process summed the codes itself; the ε holds for a deployment in which secure aggregation"
        " shows the server nothing but the sum"
    )
