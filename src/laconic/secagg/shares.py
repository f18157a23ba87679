"""The secrets of an upload, shared with the committee; every share encrypted so that only its member can open it.

The dealer and each member have a common key for the attempt. Its keystream gives one uniform pad (16 field elements)
for each secret. The first t − 1 members' shares *are* their pads: the polynomial goes through them. For each other
member the upload has a correction, share − pad: the share under a one-time pad. So the server keeps the encrypted
shares, members receive nothing and keep nothing, and a member opens one share by revealing one pad.

A check value for each secret (8 bytes of its hash) lets the server see whether what it opened is right.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from laconic.errors import WireError
from laconic.packing import pack, packed_size, unpack
from laconic.secagg.crypto import labels
from laconic.secagg.crypto.labels import labelled
from laconic.secagg.crypto.masks import keystream
from laconic.secagg.crypto.shamir import ELEMENT_BITS, LIMBS, PRIME, complete, to_limbs
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
    """By surviving dealer, which of its secrets are opened: its self-mask seed, and what it shares with the absent.

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
