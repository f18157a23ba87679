"""A whole federation in one process, with every message as bytes: what a simulation with masks calls.

Clients can be made to vanish at any stage. The traffic of every kind of message is counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from laconic.secagg.client import SecAggClient
from laconic.secagg.foretell import Vanishes
from laconic.secagg.messages import plan_bytes
from laconic.secagg.server import SecAggServer, ServerRound
from laconic.secagg.shares import RoundAborted
from laconic.secagg.terms import NONCE_BYTES, SumPlan, Terms


@dataclass
class Traffic:
    """Bytes by kind of message, all clients together. Up is to the server."""

    keys_up: int = 0
    """Announcements, each with the client's first nonce."""
    keys_down: int = 0
    """Other clients' keys, each once."""
    plan_down: int = 0
    payload_up: int = 0
    """The masked vectors alone."""
    shares_up: int = 0
    """What else an upload holds: shares, check values, header, signature; and the next nonce, as in every answer."""
    unmask_down: int = 0
    """Lists of survivors, consents and requests."""
    unmask_up: int = 0
    """Consents and reveals."""


@dataclass(frozen=True)
class RoundOutcome:
    """The opened sum (residues mod 2^bits, uint64) or the reason why there is none."""

    total: np.ndarray | None
    survivors: tuple[int, ...]
    reason: str
    traffic: Traffic = field(default_factory=Traffic)


class InProcessFederation:
    """Server and clients of one run. Clients come into being, and announce their keys, with their first round."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self._server = SecAggServer(terms)
        self._clients: dict[int, SecAggClient] = {}

    def begin(self, plan: SumPlan, vanishing: Mapping[int, Vanishes] | None = None) -> InProcessRound:
        traffic = Traffic()
        for client in plan.cohort:
            if client not in self._clients:
                self._clients[client] = SecAggClient(client, self.terms, identity=Ed25519PrivateKey.generate())
                announcement = self._clients[client].announce()
                traffic.keys_up += len(announcement) + NONCE_BYTES
                self._server.register(announcement)
        members = {client: self._clients[client] for client in plan.cohort}
        fresh = plan.with_nonces({number: client.nonce for number, client in members.items()})
        return InProcessRound(self._server.begin(fresh), members, dict(vanishing or {}), traffic)

    def run(
        self, plan: SumPlan, vectors: Mapping[int, np.ndarray], vanishing: Mapping[int, Vanishes] | None = None
    ) -> RoundOutcome:
        """One attempt from the plan to the sum."""
        attempt = self.begin(plan, vanishing)
        for client in plan.cohort:
            attempt.upload(client, vectors[client])
        return attempt.finish()


class InProcessRound:
    """One attempt: hand in the vectors one after the other, in any order, then finish."""

    def __init__(
        self,
        round: ServerRound,
        clients: dict[int, SecAggClient],
        vanishing: dict[int, Vanishes],
        traffic: Traffic,
    ) -> None:
        self._round, self._clients, self._vanishing, self._traffic = round, clients, vanishing, traffic
        self._informed: set[int] = set()

    def upload(self, client: int, vector: np.ndarray) -> None:
        """The client is told the plan and sends its masked vector, unless it vanishes."""
        plan, traffic = self._round.plan, self._traffic
        message = self._told(client)
        if self._gone(client, Vanishes.BEFORE_UPLOAD):
            return
        self._clients[client].begin(message)
        upload = self._clients[client].upload(vector)
        payload = plan.ring.packed_size(plan.size)
        traffic.payload_up += payload
        traffic.shares_up += len(upload) - payload + NONCE_BYTES
        self._round.accept_upload(upload)

    def finish(self) -> RoundOutcome:
        """Close the uploads and open the sum, or say why not."""
        for client in self._clients:
            if client not in self._informed:  # told the plan, and never heard of
                self._told(client)
        try:
            self._round.close_uploads()
            if self._round.plan.terms.signed:
                self._collect_consents()
            self._collect_reveals()
            opened = self._round.open()
        except RoundAborted as aborted:
            return RoundOutcome(None, (), str(aborted), self._traffic)
        return RoundOutcome(opened.total, opened.survivors, "", self._traffic)

    def _told(self, client: int) -> bytes:
        """The plan, as it is sent to the client."""
        self._informed.add(client)
        message, plan = self._round.plan_for(client), plan_bytes(self._round.plan)
        self._traffic.plan_down += plan
        self._traffic.keys_down += len(message) - plan
        return message

    def _collect_consents(self) -> None:
        request = self._round.survivors_for_consent()
        for member in self._present(Vanishes.BEFORE_CONSENT):
            self._traffic.unmask_down += len(request)
            consent = self._clients[member].consent(request)
            self._traffic.unmask_up += len(consent) + NONCE_BYTES
            self._round.accept_consent(consent)

    def _collect_reveals(self) -> None:
        request = self._round.unmask_request()
        for member in self._present(Vanishes.BEFORE_UNMASK):
            self._traffic.unmask_down += len(request)
            reveal = self._clients[member].reveal(request)
            if not self._gone(member, Vanishes.DURING_UNMASK):
                self._traffic.unmask_up += len(reveal) + NONCE_BYTES
                self._round.accept_reveal(reveal)

    def _present(self, stage: Vanishes) -> list[int]:
        return [member for member in self._round.plan.committee if not self._gone(member, stage)]

    def _gone(self, client: int, stage: Vanishes) -> bool:
        return client in self._vanishing and self._vanishing[client] <= stage
