"""The secrets of an upload, shared with the committee; every share encrypted so that only its member can open it.

The dealer and each member have a common key for the attempt. Its keystream gives one uniform pad (16 field elements)
for each secret. The first t − 1 members' shares *are* their pads: the polynomial goes through them. For each other
member the upload has a correction, share − pad: the share under a one-time pad. So the server keeps the encrypted
shares, members receive nothing and keep nothing, and a member opens one share by revealing one pad.

A check value for each secret (8 bytes of its hash) lets the server see whether what it opened is right.

*Opening.* One Lagrange basis serves all seeds, and every seed is checked. A member that sends wrong pads makes seeds
fail their check. Then the server looks for t members whose shares of one such seed pass it, leaves out those not
on the polynomial of those, and starts again.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from laconic.errors import PrivacyError, WireError
from laconic.packing import pack, packed_size, unpack
from laconic.secagg.crypto import labels
from laconic.secagg.crypto.labels import labelled
from laconic.secagg.crypto.masks import keystream
from laconic.secagg.crypto.shamir import (
    ELEMENT_BITS,
    LIMBS,
    PRIME,
    complete,
    evaluate,
    from_limbs,
    reconstruct,
    to_limbs,
)
from laconic.secagg.terms import SumPlan

CHECK_BYTES = 8
SHARE_BYTES = packed_size(LIMBS, ELEMENT_BITS)
_ALTERNATING = np.array([1, -1] * 4)
_PAD_BYTES = 16 * LIMBS  # 128 keystream bits for an element: the bias of the remainder is below 2^-110


@dataclass(frozen=True)
class Dealing:
    """What a dealer hands to the server: check values (secrets × 8 bytes) and packed corrections."""

    checks: bytes
    packed: bytes

    def check(self, secret: int) -> bytes:
        return self.checks[CHECK_BYTES * secret : CHECK_BYTES * (secret + 1)]

    def corrections(self, plan: SumPlan, places: Sequence[int] | None = None) -> np.ndarray:
        """(members without an implied share, secrets, 16), of all secrets or of some."""
        packed = np.frombuffer(self.packed, dtype=np.uint8).reshape(num_corrected(plan), num_secrets(plan), SHARE_BYTES)
        some = packed if places is None else packed[:, places]
        return unpack_elements(some.tobytes(), some.size // SHARE_BYTES * LIMBS).reshape(*some.shape[:2], LIMBS)


def num_secrets(plan: SumPlan) -> int:
    """The self-mask seed and a seed for each neighbour."""
    return 1 + plan.degree


def num_corrected(plan: SumPlan) -> int:
    """How many members have no implied share."""
    return len(plan.committee) - plan.threshold + 1


def pads(keys: list[bytes], count: int) -> np.ndarray:
    """The pads of each key for `count` secrets (keys, count, 16): 128-bit words mod 65537, where 2^16 ≡ −1."""
    streams = np.concatenate([keystream(key, count * _PAD_BYTES) for key in keys])
    words = streams.view("<u2").reshape(len(keys), count, LIMBS, 8).astype(np.int64)
    elements: np.ndarray = words @ _ALTERNATING % PRIME
    return elements


def deal(plan: SumPlan, seeds: list[bytes], keys: list[bytes]) -> Dealing:
    """Share the seeds with the committee, whose keys are given in its order."""
    all_pads = pads(keys, len(seeds))
    implied = plan.threshold - 1
    shares = complete(to_limbs(seeds), all_pads[:implied], len(keys))
    checks = b"".join(check_value(plan, seed) for seed in seeds)
    return Dealing(checks, pack_elements((shares - all_pads[implied:]) % PRIME))


def check_value(plan: SumPlan, seed: bytes) -> bytes:
    return hashlib.sha256(labelled(labels.CHECK, plan.hash, seed)).digest()[:CHECK_BYTES]


def secrets_to_open(plan: SumPlan, survivors: Collection[int]) -> dict[int, list[int]]:
    """The secrets that are opened of each surviving dealer: its self-mask seed, and what it shares with the absent.

    Never the seed that two survivors share, which hides them both.
    """
    present = set(survivors)
    return {
        dealer: [0, *(1 + i for i, other in enumerate(plan.neighbours(dealer)) if other not in present)]
        for dealer in sorted(present)
    }


def pack_elements(elements: np.ndarray) -> bytes:
    return pack(elements, ELEMENT_BITS)


def unpack_elements(data: bytes | memoryview, count: int) -> np.ndarray:
    elements = unpack(data, count, ELEMENT_BITS).astype(np.int64)
    if count and int(elements.max()) >= PRIME:
        raise WireError("a share is no element of the field")
    return elements


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
