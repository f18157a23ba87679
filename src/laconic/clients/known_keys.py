"""Which keys the clients of a masked run have: they keep them when the server is started again.

A simulation that goes on makes new keys, and its messages bring again what clients would still have. Those bytes were
counted before, and are not counted again: the ledger of a resumed run is that of an uninterrupted one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from laconic.secagg import SumPlan
from laconic.secagg.crypto.keys import ANNOUNCEMENT_BYTES, ENTRY_BYTES


class KnownKeys:
    """Whose keys each client has: from before the run was resumed, and from this process."""

    def __init__(self) -> None:
        self._before: dict[int, set[int]] = defaultdict(set)
        self._now: dict[int, set[int]] = defaultdict(set)

    def recall(self, plan: SumPlan, uploading: Iterable[int]) -> None:
        """A round that was finished before."""
        _learn(self._before, plan, uploading)

    def counted_before(self, plan: SumPlan, uploading: Iterable[int]) -> dict[str, int]:
        """Bytes of a round, by kind, that a resumed simulation sends again; call it once for each round."""
        if not self._before:
            return {}
        announced = [client for client in plan.cohort if client in self._before and client not in self._now]
        passed_on = sum(
            len((plan.contacts(client) - self._now.get(client, set()) - {client}) & self._before.get(client, set()))
            for client in plan.cohort
        )
        _learn(self._now, plan, uploading)
        return {"keys_up": ANNOUNCEMENT_BYTES * len(announced), "keys_down": ENTRY_BYTES * passed_on}


def _learn(known: dict[int, set[int]], plan: SumPlan, uploading: Iterable[int]) -> None:
    """Whoever is in the cohort has announced its keys; whoever has uploaded has those of its contacts."""
    for client in plan.cohort:
        _ = known[client]
    for client in uploading:
        known[client] |= plan.contacts(client)
