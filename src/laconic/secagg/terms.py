"""What is agreed before a run (`Terms`) and before an attempt at a round (`SumPlan`), and what follows from it.

Neighbours, committee and threshold are not sent: everyone computes them from the terms, the cohort and public
randomness, so the server need not be believed about them. The hash of the plan goes into every key of the attempt.

The sizes of committee and neighbourhood follow from what is assumed of the cohort. The committee and the order of the
ring come from public randomness, so among a fixed set of clients that drop out or
collude, the number that fall on given places is hypergeometric (the argument of Bell, Bonawitz, Gascón, Lepoint and
Raykova, "Secure Single-Server Aggregation with (Poly)Logarithmic Overhead", CCS 2020). The tails are summed exactly.

Against whom a secure sum is claimed to hold. The printed statement and every page say it in these words.
`docs/protocol.md` has the theorem behind each, with its assumptions and the tests that stand for them.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property, lru_cache
from math import comb

import numpy as np

from laconic.errors import ConfigError
from laconic.parts import below_one, non_negative_int, one_of, positive_int
from laconic.secagg.crypto import labels
from laconic.secagg.crypto.labels import labelled
from laconic.secagg.crypto.masks import Ring
from laconic.secagg.crypto.shamir import MAX_MEMBERS

CURIOUS = "an honest-but-curious server together with up to max_colluders clients of each cohort"
LYING = "a server that lies, together with up to max_colluders of all its clients"
LYING_NEEDS = 'for nodes whose policy says secure_aggregation = "signed" and lists the identities'


def claim(*, signed: bool) -> str:
    """What may be said of a run, as far as its terms go. What a node's policy adds is the node's own."""
    return f"{LYING}, {LYING_NEEDS}; for all others against {CURIOUS}" if signed else CURIOUS


@lru_cache(maxsize=4096)
def ring_degree(cohort: int, removed: int, security_bits: int) -> int:
    """The least number of neighbours such that the others stay connected when `removed` clients are taken away.

    Clients stand in a ring in random order, and each has the k/2 next ones on either side as neighbours. What is left
    of such a ring falls apart only if at least two runs of k/2 neighbouring places are removed (between two such runs
    every step is at most k/2 long). Two given disjoint runs are removed with probability C(n−k, r−k) / C(n, r), and
    there are fewer than C(n, 2) pairs of them:  k is the least even number with C(n, 2) · P ≤ 2^−security_bits.
    """
    for degree in range(2, cohort - 1, 2):
        if comb(cohort, 2) * _masses(cohort, removed, degree)[degree] <= 2.0**-security_bits:
            return degree
    return cohort - 1


@lru_cache(maxsize=4096)
def committee_size(
    cohort: int,
    dropouts: int,
    colluders: int,
    *,
    signed: bool,
    security_bits: int,
    failure_bits: int,
    certainly: int = 0,
) -> tuple[int, int]:
    """The smallest committee (c, t), drawn at random from the cohort, such that

    fewer than t members answer with probability at most 2^−failure_bits, if `dropouts` clients vanish;
    t members or more collude with probability at most 2^−security_bits, if `colluders` clients do (in signed mode:
    so many that two survivor sets could be signed, 2t ≤ c + colluding members, with that probability);
    and t > c/2. If no smaller one will do, it is the whole cohort.

    In signed mode two sets cannot be signed even if all of `certainly` colluders are members: a server that lies may
    try rounds, attempts and cohorts until the draw suits it.

    Args:
        cohort: n, the clients of an attempt.
        dropouts: how many of them vanish.
        colluders: how many of them collude.
        signed: whether members sign the survivors.
        security_bits: −log₂ of the chance that colluders can open too much.
        failure_bits: −log₂ of the chance that too few members answer.
        certainly: colluders that the server may be able to place.

    Returns:
        (c, t): members, and how many of them open a sum.
    """
    for members in range(1, cohort):
        vanished = _tail(cohort, dropouts, members)
        threshold = members - int(np.argmax(vanished <= 2.0**-failure_bits))
        if 2 * threshold <= members:
            continue
        enough = 2 * threshold - members if signed else threshold
        if signed and enough <= certainly:
            continue
        if _tail(cohort, colluders, members)[enough - 1] <= 2.0**-security_bits:
            return members, threshold
    return cohort, whole_threshold(cohort, dropouts, colluders, signed=signed)


def whole_threshold(cohort: int, dropouts: int, colluders: int, *, signed: bool) -> int:
    """t when the whole cohort is the committee: two thirds, fewer if so many may drop out.

    But always more than half of the members and more than the colluders; in signed mode 2t > n + colluders. Where not
    all can be had, the last two count: the round may then fail, but it does not open.
    """
    least = max(cohort // 2, (cohort + colluders) // 2 if signed else colluders) + 1
    return min(max(min(2 * cohort // 3 + 1, cohort - dropouts), least), cohort)


def _tail(cohort: int, marked: int, drawn: int) -> np.ndarray:
    """P[X > x] for x = 0 … drawn, where X of the drawn are marked: summed from the small end."""
    return np.append(np.cumsum(_masses(cohort, marked, drawn)[::-1])[::-1][1:], 0.0)


def _masses(cohort: int, marked: int, drawn: int) -> np.ndarray:
    """P[X = x] = C(marked, x) · C(n − marked, drawn − x) / C(n, drawn) for x = 0 … drawn."""
    marked = min(marked, cohort)
    x = np.arange(drawn + 1)
    possible = (x <= marked) & (drawn - x <= cohort - marked)
    masses = np.zeros(drawn + 1)
    at = x[possible]
    logs = _log_comb(marked, at) + _log_comb(cohort - marked, drawn - at) - _log_comb(cohort, np.array(drawn))
    masses[possible] = np.exp(logs)
    return masses


def _log_comb(n: int, k: np.ndarray) -> np.ndarray:
    from scipy.special import gammaln  # slow to import, and small cohorts do without it

    logs: np.ndarray = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    return logs


RUN_BYTES, BEACON_BYTES, FINGERPRINT_BYTES, OFFER_BYTES, NONCE_BYTES = 16, 32, 16, 32, 16
NO_OFFER = bytes(OFFER_BYTES)
"""No offer: a simulation, in which one process plays all parties."""
MAX_CLIENT = 2**32 - 2
"""Client numbers travel as 32 bits, and the last one is the server's."""


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What all clients of a run know before it begins, and what no server can change afterwards.

    `offer` is the hash of all that the server offered: clients that were offered different things have different
    terms, and so no mask, share or signature in common. `beacon` is public randomness, fixed after the clients were
    known. `max_dropouts` of a cohort may vanish before their upload: sums of fewer are not opened. `max_colluders` of
    a cohort may side with the server. Cohorts up to `small_cohort` are their own committee, and every two of their
    clients share a mask. Larger ones get a committee and a ring of neighbours, sized for the larger of the two numbers
    above and the two rates.
    """

    run: bytes
    offer: bytes
    fingerprint: str
    beacon: bytes
    consistency: str = "plain"
    max_dropouts: int = 0
    max_colluders: int = 0
    least_cohort: int = 1
    small_cohort: int = 32
    dropout_rate: float = 0.1
    collusion_rate: float = 0.1
    security_bits: int = 40
    failure_bits: int = 20

    def __post_init__(self) -> None:
        if (len(self.run), len(self.offer), len(self.beacon)) != (RUN_BYTES, OFFER_BYTES, BEACON_BYTES):
            raise ConfigError(f"run must have {RUN_BYTES} bytes, offer {OFFER_BYTES} and beacon {BEACON_BYTES}")
        if len(self.fingerprint) != 2 * FINGERPRINT_BYTES or set(self.fingerprint) - set("0123456789abcdef"):
            raise ConfigError(f"fingerprint must be {2 * FINGERPRINT_BYTES} hexadecimal digits: '{self.fingerprint}'")
        one_of(("plain", "signed"), consistency=self.consistency)
        non_negative_int(max_dropouts=self.max_dropouts, max_colluders=self.max_colluders)
        positive_int(least_cohort=self.least_cohort, small_cohort=self.small_cohort)
        positive_int(security_bits=self.security_bits, failure_bits=self.failure_bits)
        below_one(dropout_rate=self.dropout_rate, collusion_rate=self.collusion_rate)

    @property
    def signed(self) -> bool:
        return self.consistency == "signed"

    @cached_property
    def context(self) -> bytes:
        """Names the run and what was offered, before the keys and so the beacon are known."""
        return context_of(self.run, self.offer)

    @cached_property
    def digest(self) -> bytes:
        fields = {name: value.hex() if isinstance(value, bytes) else value for name, value in asdict(self).items()}
        return hashlib.sha256(labelled(labels.TERMS, json.dumps(fields, sort_keys=True).encode())).digest()


def context_of(run: bytes, offer: bytes) -> bytes:
    """What the keys of a run are bound to: 32 bytes."""
    return hashlib.sha256(labelled(labels.CONTEXT, run, offer)).digest()


@dataclass(frozen=True, kw_only=True)
class SumPlan:
    """One attempt at the sum of one round: `size` residues of `bits` bits from each client of the cohort.

    `nonces` are fresh random numbers of the clients, in the order of the cohort (`Nonces`). Without them a plan says
    who masks with whom, but nothing can be masked under it.
    """

    terms: Terms
    round: int
    attempt: int
    bits: int
    size: int
    cohort: tuple[int, ...]
    nonces: tuple[bytes, ...] = ()

    def __post_init__(self) -> None:
        Ring(self.bits)
        positive_int(size=self.size)
        non_negative_int(round=self.round, attempt=self.attempt)
        if max(self.round, self.attempt) >= 2**32 or self.size >= 2**48:
            raise ConfigError(f"round {self.round}, attempt {self.attempt} or size {self.size} is too large to be sent")
        if any(a >= b for a, b in zip(self.cohort, self.cohort[1:], strict=False)):
            raise ConfigError("a cohort is sent in ascending order, and no client is in it twice")
        if self.cohort and not 0 <= self.cohort[0] <= self.cohort[-1] <= MAX_CLIENT:
            raise ConfigError(f"client numbers must be 0 to {MAX_CLIENT}")
        least = max(self.terms.least_cohort, self.terms.max_dropouts + self.terms.max_colluders + 1)
        if not least <= len(self.cohort) <= MAX_MEMBERS:
            raise ConfigError(f"a cohort of {len(self.cohort)} clients, but this run needs {least} to {MAX_MEMBERS}")
        if self.nonces and [len(nonce) for nonce in self.nonces] != [NONCE_BYTES] * len(self.cohort):
            raise ConfigError(f"a plan has a nonce of {NONCE_BYTES} bytes for each client of the cohort")

    def with_nonces(self, nonces: Mapping[int, bytes]) -> SumPlan:
        """The plan under which the clients mask. A client whose nonce is not known is taken for absent."""
        return replace(self, nonces=tuple(nonces.get(client, bytes(NONCE_BYTES)) for client in self.cohort))

    def nonce_of(self, client: int) -> bytes:
        return self.nonces[self.position[client]]

    @property
    def ring(self) -> Ring:
        return Ring(self.bits)

    @property
    def min_cohort(self) -> int:
        """How many uploads must be in a sum that is opened."""
        return len(self.cohort) - self.terms.max_dropouts

    @cached_property
    def hash(self) -> bytes:
        """Binds every key of the attempt to run, offer, roster, round, attempt, scheme, cohort and all parameters.

        With fresh nonces it never repeats, even for a client that has forgotten what it sent: a restored one.
        """
        if not self.nonces:
            raise ConfigError("nothing is masked under a plan without its clients' nonces")
        numbers = np.array([self.round, self.attempt, self.bits, self.size, *self.cohort], dtype="<u8").tobytes()
        return hashlib.sha256(labelled(labels.PLAN, self.terms.digest, numbers, b"".join(self.nonces))).digest()

    @cached_property
    def position(self) -> dict[int, int]:
        """Where each client stands in the cohort."""
        return {client: place for place, client in enumerate(self.cohort)}

    # Who masks with whom, and who opens

    @cached_property
    def committee(self) -> tuple[int, ...]:
        """The members, in the order of their points 1, 2, … in the secret sharing."""
        return tuple(self._shuffled(labels.COMMITTEE)[: self._sizes[0]])

    @cached_property
    def point(self) -> dict[int, int]:
        """Each member's point in the secret sharing."""
        return {member: place + 1 for place, member in enumerate(self.committee)}

    @property
    def threshold(self) -> int:
        """How many members open a secret."""
        return self._sizes[1]

    @cached_property
    def degree(self) -> int:
        """How many neighbours a client has. In signed mode the survivors are whom the server names: no choice of
        `max_dropouts` absent and as many colluding clients may cut the ring."""
        n, terms = len(self.cohort), self.terms
        if n <= terms.small_cohort:
            return n - 1
        dropouts, colluders = self._assumed
        degree = ring_degree(n, dropouts + colluders, terms.security_bits)
        if terms.signed:
            degree = max(degree, 2 * math.ceil((terms.max_dropouts + colluders + 1) / 2))
        return min(degree, n - 1)

    def neighbours(self, client: int) -> tuple[int, ...]:
        """The clients with which this one shares a mask, in ascending order."""
        n, reach = len(self.cohort), self.degree // 2
        if self.degree == n - 1:
            return tuple(other for other in self.cohort if other != client)
        place = self._place[client]
        return tuple(sorted(self._circle[(place + step) % n] for step in range(-reach, reach + 1) if step))

    def contacts(self, client: int) -> set[int]:
        """Whose keys the client needs: its neighbours', the committee's and, as a member, everyone's."""
        if client in self.point:
            return set(self.cohort)
        return {client, *self.neighbours(client), *self.committee}

    def connected(self, survivors: Iterable[int]) -> bool:
        """Whether the survivors hang together through common masks, so that nothing but their whole sum is bare.

        In the ring they do unless two gaps between successive survivors are longer than half the degree.
        """
        if self.degree == len(self.cohort) - 1:
            return True
        places = np.sort([self._place[client] for client in survivors])
        steps = np.diff(places, append=places[0] + len(self.cohort))
        return int((steps > self.degree // 2).sum()) <= 1

    @cached_property
    def _sizes(self) -> tuple[int, int]:
        n, terms = len(self.cohort), self.terms
        if n <= terms.small_cohort:
            return n, whole_threshold(n, terms.max_dropouts, terms.max_colluders, signed=terms.signed)
        return committee_size(
            n,
            *self._assumed,
            signed=terms.signed,
            security_bits=terms.security_bits,
            failure_bits=terms.failure_bits,
            certainly=terms.max_colluders,
        )

    @property
    def _assumed(self) -> tuple[int, int]:
        n, terms = len(self.cohort), self.terms
        return (
            max(terms.max_dropouts, math.ceil(terms.dropout_rate * n)),
            max(terms.max_colluders, math.ceil(terms.collusion_rate * n)),
        )

    @cached_property
    def _circle(self) -> list[int]:
        return self._shuffled(labels.RING)

    @cached_property
    def _place(self) -> dict[int, int]:
        return {client: place for place, client in enumerate(self._circle)}

    def _shuffled(self, label: bytes) -> list[int]:
        """The cohort in an order that follows from public randomness."""
        seed = hashlib.sha256(labelled(label, self.terms.beacon, self.terms.run, self.round, self.attempt)).digest()
        return sorted(self.cohort, key=lambda client: hashlib.sha256(seed + client.to_bytes(4, "little")).digest())
