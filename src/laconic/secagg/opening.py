"""From the members' reveals to the seeds: one Lagrange basis for all of them, and every seed checked.

A member that sends wrong pads makes seeds fail their check. Then the server looks for t members whose shares of one
such seed pass it, leaves out whoever is not on the polynomial of those, and starts again.
"""

from __future__ import annotations

import random

import numpy as np

from laconic.errors import PrivacyError
from laconic.secagg.crypto.shamir import PRIME, evaluate, from_limbs, reconstruct
from laconic.secagg.shares import Dealing, check_value
from laconic.secagg.terms import SumPlan

_SEARCHES = 300


class RoundAborted(PrivacyError):
    """The round cannot be opened, or must not. Nothing of it was opened."""


def open_seeds(
    plan: SumPlan, wanted: dict[int, list[int]], dealings: dict[int, Dealing], reveals: dict[int, np.ndarray]
) -> list[bytes]:
    """The wanted secrets of each dealer, in order, from the members' pads (secrets, 16)."""
    corrections = np.concatenate([dealings[j].corrections(plan, places) for j, places in wanted.items()], axis=1)
    checks = [dealings[j].check(place) for j, places in wanted.items() for place in places]
    owners = [j for j, places in wanted.items() for _ in places]
    implied = plan.threshold - 1

    def shares(member: int, rows: slice = slice(None)) -> np.ndarray:
        own = reveals[member][rows]
        place = plan.point[member] - 1
        return own if place < implied else (own + corrections[place - implied, rows]) % PRIME

    members = list(reveals)
    while len(members) >= plan.threshold:
        chosen = members[: plan.threshold]
        points = tuple(plan.point[member] for member in chosen)
        seeds = from_limbs(reconstruct(points, np.stack([shares(member) for member in chosen])))
        wrong = next((i for i, seed in enumerate(seeds) if not _passes(plan, seed, checks[i])), None)
        if wrong is None:
            return [seed for seed in seeds if seed is not None]
        row = {member: shares(member, slice(wrong, wrong + 1)) for member in members}
        honest = _on_one_polynomial(plan, row, checks[wrong])
        if not honest:
            raise RoundAborted(f"a secret of client {owners[wrong]} cannot be opened: its shares contradict each other")
        members = honest
    raise RoundAborted(f"{len(members)} members sent right shares, but it takes {plan.threshold}")


def _on_one_polynomial(plan: SumPlan, row: dict[int, np.ndarray], check: bytes) -> list[int]:
    """The members whose shares of one secret agree with t of them that pass its check; empty if none are found."""
    draw = random.Random(0)
    for _ in range(_SEARCHES if len(row) > plan.threshold else 0):
        some = draw.sample(sorted(row), plan.threshold)
        points, shares = tuple(plan.point[m] for m in some), np.stack([row[m] for m in some])
        if _passes(plan, from_limbs(reconstruct(points, shares))[0], check):
            return [m for m in row if np.array_equal(evaluate(points, shares, plan.point[m]), row[m])]
    return []


def _passes(plan: SumPlan, seed: bytes | None, check: bytes) -> bool:
    return seed is not None and check_value(plan, seed) == check
