"""Small federations whose every message the tests can see, bend and lose; and a server that opens what it can."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from laconic.secagg import messages
from laconic.secagg.client import SecAggClient
from laconic.secagg.crypto.shamir import PRIME, from_limbs, reconstruct
from laconic.secagg.server import SecAggServer, ServerRound
from laconic.secagg.shares import check_value, secrets_to_open
from laconic.secagg.terms import SumPlan, Terms

FINGERPRINT = "5a" * 16


def make_terms(**options: Any) -> Terms:
    return Terms(**{"run": b"r" * 16, "offer": b"o" * 32, "fingerprint": FINGERPRINT, "beacon": b"b" * 32, **options})


def make_plan(terms: Terms, cohort: Iterable[int] = range(5), **options: Any) -> SumPlan:
    """A plan whose nonces no client has drawn: `Federation.begin` puts in those of its clients."""
    plan = SumPlan(
        **{"terms": terms, "round": 1, "attempt": 0, "bits": 13, "size": 6, "cohort": tuple(cohort), **options}
    )
    return plan if plan.nonces else plan.with_nonces({})


def identity_of(client: int) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(client.to_bytes(32, "little"))


def public_identities(clients: Iterable[int]) -> dict[int, bytes]:
    return {client: identity_of(client).public_key().public_bytes_raw() for client in clients}


class Federation:
    """Server and clients of a run, registered. A client has the same vector in every round."""

    def __init__(self, terms: Terms, clients: Iterable[int], *, identities: Mapping[int, bytes] | None = None) -> None:
        self.terms = terms
        self.server = SecAggServer(terms, identities=identities)
        self.clients = {
            number: SecAggClient(number, terms, identity=identity_of(number), identities=identities)
            for number in clients
        }
        for client in self.clients.values():
            self.server.register(client.announce())

    def begin(self, plan: SumPlan) -> ServerRound:
        """An attempt with the current nonces of the clients."""
        cohort = {client: self.clients[client] for client in plan.cohort if client in self.clients}
        return self.server.begin(plan.with_nonces({number: client.nonce for number, client in cohort.items()}))

    def vector(self, client: int, plan: SumPlan) -> np.ndarray:
        return np.random.default_rng(client).integers(-(2**62), 2**62, plan.size)

    def plain_sum(self, clients: Iterable[int], plan: SumPlan) -> list[int]:
        return [
            sum(column) % 2**plan.bits for column in zip(*(self.vector(c, plan).tolist() for c in clients), strict=True)
        ]

    def uploads(self, round: ServerRound, clients: Iterable[int] | None = None) -> dict[int, bytes]:
        """Every client begins; the given ones (or all) upload. The server has accepted nothing yet."""
        plan = round.plan
        for client in plan.cohort:
            self.clients[client].begin(round.plan_for(client))
        given = plan.cohort if clients is None else clients
        return {client: self.clients[client].upload(self.vector(client, plan)) for client in given}

    def upload_all(self, round: ServerRound, clients: Iterable[int] | None = None) -> dict[int, bytes]:
        data = self.uploads(round, clients)
        for upload in data.values():
            round.accept_upload(upload)
        return data

    def reveal_all(self, round: ServerRound, members: Iterable[int] | None = None) -> dict[int, bytes]:
        if round.plan.terms.signed:
            survivors = round.survivors_for_consent()
            for member in round.plan.committee:
                round.accept_consent(self.clients[member].consent(survivors))
        request = round.unmask_request()
        given = round.plan.committee if members is None else members
        data = {member: self.clients[member].reveal(request) for member in given}
        for reveal in data.values():
            round.accept_reveal(reveal)
        return data


def started(
    cohort: Iterable[int] = range(5), plan: Mapping[str, Any] | None = None, **terms: Any
) -> tuple[Federation, ServerRound]:
    """A federation and its first round."""
    agreed = make_terms(**terms)
    clients = tuple(cohort)
    federation = Federation(agreed, clients)
    return federation, federation.begin(make_plan(agreed, clients, **(plan or {})))


def openable(
    plan: SumPlan, uploads: Iterable[bytes], reveals: Iterable[tuple[tuple[int, ...], bytes]]
) -> dict[tuple[int, int], bytes]:
    """All seeds that a server can compute from uploads and from (survivors, reveal) pairs: (dealer, place) → seed.

    It interpolates whatever t points it has for a secret, whoever was asked with whichever survivors.
    """
    dealings = {
        message.sender: dealing for message, _, dealing in (messages.read_upload(data, plan) for data in uploads)
    }
    points: dict[tuple[int, int], dict[int, np.ndarray]] = defaultdict(dict)
    for survivors, data in reveals:
        wanted = [(dealer, place) for dealer, places in secrets_to_open(plan, survivors).items() for place in places]
        message, pads = messages.read_reveal(data, plan, len(wanted))
        point = plan.point[message.sender]
        for (dealer, place), pad in zip(wanted, pads, strict=True):
            if dealer in dealings:
                corrected = point - plan.threshold
                correction = dealings[dealer].corrections(plan)[corrected, place] if corrected >= 0 else 0
                points[dealer, place][point] = (pad + correction) % PRIME
    seeds = {}
    for secret, known in points.items():
        if len(known) >= plan.threshold:
            some = dict(list(known.items())[: plan.threshold])
            (seed,) = from_limbs(reconstruct(tuple(some), np.stack([*some.values()]))[None])
            assert seed is not None
            assert check_value(plan, seed) == dealings[secret[0]].check(secret[1])
            seeds[secret] = seed
    return seeds


def pair_places(plan: SumPlan, client: int) -> dict[int, int]:
    """Neighbour → the place of their common seed among the client's secrets."""
    return {other: 1 + i for i, other in enumerate(plan.neighbours(client))}
