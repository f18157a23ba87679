"""The server's side of the protocol: bytes in, bytes out.

once per run     register(announcement)
every attempt    begin(plan) → a ServerRound:
                 plan_for(client) → accept_upload(data) …  close_uploads()
                 survivors_for_consent() → accept_consent(data) …        signed mode only
                 unmask_request() → accept_reveal(data) …  open()

A message that is refused raises `WireError` with the reason and changes nothing. A round that cannot or must not be
opened raises `RoundAborted`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

import numpy as np

from laconic.errors import ConfigError, WireError
from laconic.secagg import messages
from laconic.secagg.crypto.keys import KeyBook, PublicKeys
from laconic.secagg.crypto.masks import add_masks
from laconic.secagg.shares import Dealing, RoundAborted, open_seeds, secrets_to_open
from laconic.secagg.terms import SumPlan, Terms


class SecAggServer:
    """The server of one run: it knows the clients' public keys, and which of them it has passed on to whom."""

    def __init__(self, terms: Terms, *, identities: Mapping[int, bytes] | None = None) -> None:
        self.terms = terms
        self.book = KeyBook(terms.context, identities)
        self.delivered: dict[int, set[int]] = defaultdict(set)
        self._last: tuple[int, int] = (-1, -1)
        self._asked: set[int] = set()
        """Who is in a sum of the last attempt."""

    def register(self, announcement: bytes) -> int:
        """Keep a client's keys; the client is returned. One that announces itself again has forgotten the others."""
        keys = PublicKeys.from_announcement(announcement, self.terms.run)
        self.book.learn(keys)
        self.delivered.pop(keys.client, None)
        return keys.client

    def begin(self, plan: SumPlan) -> ServerRound:
        """Start an attempt. It must be later than all before: clients do not go back.

        One round may have several sums, of groups that have no client in common.
        """
        if plan.terms != self.terms:
            raise ConfigError("the plan has other terms than the server")
        current = (plan.round, plan.attempt)
        if current < self._last or (current == self._last and not self._asked.isdisjoint(plan.cohort)):
            raise ConfigError(f"round {plan.round}, attempt {plan.attempt} is not after {self._last}: number it anew")
        strangers = [client for client in plan.cohort if client not in self.book]
        if strangers:
            raise ConfigError(f"clients {strangers} are in the cohort but have announced no keys")
        self._asked = set(plan.cohort) | (self._asked if current == self._last else set())
        self._last = current
        return ServerRound(self, plan)


class Phase(Enum):
    UPLOADS = "taking uploads"
    CONSENTS = "taking consents"
    REVEALS = "taking reveals"
    CLOSED = "closed"


@dataclass(frozen=True)
class Opened:
    """The sum of the survivors' vectors: residues mod 2^bits, as uint64."""

    total: np.ndarray
    survivors: tuple[int, ...]


class ServerRound:
    """One attempt. Uploads are added up as they come; no single masked vector is kept."""

    def __init__(self, server: SecAggServer, plan: SumPlan) -> None:
        self.plan = plan
        self._server = server
        self._phase = Phase.UPLOADS
        self._total = plan.ring.zeros(plan.size)
        self._dealings: dict[int, Dealing] = {}
        self._pair_checks: dict[tuple[int, int], bytes] = {}
        self._survivors: tuple[int, ...] = ()
        self._consents: dict[int, bytes] = {}
        self._wanted: dict[int, list[int]] = {}
        self._reveals: dict[int, np.ndarray] = {}

    def plan_for(self, client: int) -> bytes:
        """The plan, with the keys that this client needs and may not have yet."""
        new = self.plan.contacts(client) - self._server.delivered[client] - {client}
        return messages.write_plan(self.plan, [self._server.book[other] for other in sorted(new)])

    def accept_upload(self, data: bytes) -> int:
        """Add a client's masked vector to the sum and keep its shares; the client is returned."""
        self._expect(Phase.UPLOADS)
        plan = self.plan
        message, vector, dealing = messages.read_upload(data, plan)
        client = message.sender
        if client in self._dealings:
            raise WireError(f"client {client} has uploaded already")
        message.verify(self._server.book)
        checks = self._pair_checks_of(client, dealing)
        for pair, check in checks.items():
            if self._pair_checks.get(pair, check) != check:
                raise WireError(
                    f"clients {pair[0]} and {pair[1]} have different seeds: one has a wrong key of the other"
                )
        self._pair_checks |= checks
        self._dealings[client] = dealing
        self._total += plan.ring.unpack(vector, plan.size)
        self._server.delivered[client] |= plan.contacts(client)
        return client

    def close_uploads(self) -> None:
        """The clients that have uploaded by now are the survivors; with too few of them the round is over."""
        self._expect(Phase.UPLOADS)
        plan, survivors = self.plan, tuple(sorted(self._dealings))
        self._phase = Phase.CLOSED
        if len(survivors) < plan.min_cohort:
            raise RoundAborted(f"{len(survivors)} uploads, but a sum of fewer than {plan.min_cohort} is not opened")
        if not plan.connected(survivors):
            raise RoundAborted("the survivors fall apart into groups without a common mask")
        self._survivors = survivors
        self._wanted = secrets_to_open(plan, survivors)
        self._phase = Phase.CONSENTS if plan.terms.signed else Phase.REVEALS

    def survivors_for_consent(self) -> bytes:
        """Signed mode: what every member is asked to sign."""
        self._expect(Phase.CONSENTS)
        return messages.write_survivors(self.plan, self._survivors)

    def accept_consent(self, data: bytes) -> int:
        self._expect(Phase.CONSENTS)
        message, survivors = messages.read_consent(data, self.plan)
        member = message.sender
        if member not in self.plan.point:
            raise WireError(f"client {member} is not in the committee")
        if member in self._consents:
            raise WireError(f"client {member} has consented already")
        if survivors != self._survivors:
            raise WireError(f"client {member} has signed other survivors")
        message.verify(self._server.book)
        self._consents[member] = message.signature
        return member

    def unmask_request(self) -> bytes:
        """What every member is asked to open."""
        if self._phase is Phase.CONSENTS:
            threshold = self.plan.threshold
            if len(self._consents) < threshold:
                self._phase = Phase.CLOSED
                raise RoundAborted(f"{len(self._consents)} members signed the survivors, but it takes {threshold}")
            self._consents = dict(list(self._consents.items())[:threshold])
            self._phase = Phase.REVEALS
        self._expect(Phase.REVEALS)
        return messages.write_unmask(self.plan, self._survivors, self._consents)

    def accept_reveal(self, data: bytes) -> int:
        self._expect(Phase.REVEALS)
        message, pads = messages.read_reveal(data, self.plan, sum(map(len, self._wanted.values())))
        if message.sender in self._reveals:
            raise WireError(f"client {message.sender} has revealed already")
        message.verify(self._server.book)
        self._reveals[message.sender] = pads
        return message.sender

    def open(self) -> Opened:
        """Take the masks off the sum."""
        self._expect(Phase.REVEALS)
        self._phase = Phase.CLOSED
        plan = self.plan
        if len(self._reveals) < plan.threshold:
            raise RoundAborted(f"{len(self._reveals)} members answered, but it takes {plan.threshold} to open the sum")
        seeds = iter(open_seeds(plan, self._wanted, self._dealings, self._reveals))
        added: list[bytes] = []
        subtracted: list[bytes] = []
        for client, places in self._wanted.items():
            neighbours = plan.neighbours(client)
            for place in places:
                was_added = place == 0 or neighbours[place - 1] > client
                (added if was_added else subtracted).append(next(seeds))
        add_masks(self._total, plus=subtracted, minus=added)
        return Opened(plan.ring.reduced(self._total), self._survivors)

    def _pair_checks_of(self, client: int, dealing: Dealing) -> dict[tuple[int, int], bytes]:
        return {
            (min(client, other), max(client, other)): dealing.check(1 + i)
            for i, other in enumerate(self.plan.neighbours(client))
        }

    def _expect(self, phase: Phase) -> None:
        if self._phase is not phase:
            raise WireError(f"not now: the round is {self._phase.value}")
