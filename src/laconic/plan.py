"""The plan of a round: everything public that clients and server must agree on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True, kw_only=True)
class RoundPlan:
    """One attempt at one round.

    `cohort` are the announced clients; `noise_shares` is how many of their noise shares must be in the sum for it to
    be opened (announced minus tolerated dropouts and colluders); `planned_cohort` is the public denominator.
    `run_seed` and `round_seed` are public: codecs draw their shuffles and subsets from them.
    """

    round: int
    attempt: int
    cohort: np.ndarray
    planned_cohort: float
    noise_shares: int
    run_seed: int
    round_seed: int
    fingerprint: str
    shared: Mapping[str, Any] = field(default_factory=dict)
    """What clients were told once, before their first round (the kept coordinates of FL-TOP)."""

    @property
    def viable(self) -> bool:
        """Whether the sum may be opened at all: there are enough clients for the noise and the sum."""
        return len(self.cohort) > 0 and self.noise_shares >= 1
