"""Clients that vanish in a simulation: so many of a cohort, at a stage of the secure sum, by the seed."""

from __future__ import annotations

import numpy as np

from laconic.plan import RoundPlan
from laconic.secagg import Vanishes
from laconic.streams import Streams

BEFORE_UPLOAD = "before-upload"
_STAGES = {stage.name.lower().replace("_", "-"): stage for stage in Vanishes}
STAGES = (*_STAGES, "any")
"""When a client vanishes; 'any' draws one of the others for each."""


def vanishing_clients(plan: RoundPlan, streams: Streams, *, rate: float, stage: str) -> dict[int, Vanishes]:
    """Who of the cohort vanishes in this attempt, and when: each client alike, whoever else does, whatever its data."""
    if rate == 0:
        return {}
    rng = streams.numpy("dropouts", plan.round, plan.attempt)
    gone = plan.cohort[rng.random(len(plan.cohort)) < rate].tolist()
    if stage != "any":
        return dict.fromkeys(gone, _STAGES[stage])
    return dict(zip(gone, (Vanishes(s) for s in rng.integers(1, len(Vanishes) + 1, len(gone)).tolist()), strict=True))


def uploading(plan: RoundPlan, vanishing: dict[int, Vanishes]) -> np.ndarray:
    """The clients of the cohort that come as far as their upload."""
    absent = [client for client, stage in vanishing.items() if stage == Vanishes.BEFORE_UPLOAD]
    return plan.cohort[~np.isin(plan.cohort, absent)]
