"""The outcome of a round, predicted from its dropouts: without keys, masks or messages.

A simulation that sums in the clear uses this, so that it loses the same rounds, for the same reasons, as a masked one.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from laconic.secagg.terms import SumPlan


class Vanishes(IntEnum):
    """When a client drops out."""

    BEFORE_UPLOAD = 1
    BEFORE_CONSENT = 2
    """After its upload; the same as the next one where there are no consents."""
    BEFORE_UNMASK = 3
    DURING_UNMASK = 4
    """It has computed its answer, but the answer is lost."""


def foretell(plan: SumPlan, vanishing: Mapping[int, Vanishes]) -> tuple[tuple[int, ...], str]:
    """(whose vectors are in the sum, "") or ((), the reason why nothing is opened), as `InProcessFederation.run`."""

    def present(clients: tuple[int, ...], stage: Vanishes) -> tuple[int, ...]:
        return tuple(client for client in clients if vanishing.get(client, stage + 1) > stage)

    survivors = present(plan.cohort, Vanishes.BEFORE_UPLOAD)
    if len(survivors) < plan.min_cohort:
        return (), f"{len(survivors)} uploads, but a sum of fewer than {plan.min_cohort} is not opened"
    if not plan.connected(survivors):
        return (), "the survivors fall apart into groups without a common mask"
    consenting = len(present(plan.committee, Vanishes.BEFORE_CONSENT))
    if plan.terms.signed and consenting < plan.threshold:
        return (), f"{consenting} members signed the survivors, but it takes {plan.threshold}"
    answering = len(present(plan.committee, Vanishes.DURING_UNMASK))
    if answering < plan.threshold:
        return (), f"{answering} members answered, but it takes {plan.threshold} to open the sum"
    return survivors, ""
