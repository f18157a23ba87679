"""A server that lies and clients that side with it, as objects that drive unchanged nodes through every message.

`World` holds honest nodes (the project's own `Node`, each with its folder) and the adversary's means: the server's key,
the identities of the colluding clients, and everything that was ever sent.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from torch import nn

from conftest import make_population
from laconic import schemes
from laconic.clients import wire
from laconic.data.population import PooledPopulation
from laconic.federation.node.node import Node
from laconic.federation.offer import Offer, open_offer, sign_offer, verify_offer
from laconic.federation.populations import Held
from laconic.federation.requests import NONCE, REFUSED, Fields, UploadRequest
from laconic.federation.weights import initial_weights, weights_digest
from laconic.guard.folder import NodeFolder
from laconic.guard.policy import Policy
from laconic.guard.roster import beacon_of
from laconic.privacy.accounting.budget import Budget
from laconic.privacy.accounting.sampling import Poisson
from laconic.secagg import messages
from laconic.secagg.attempts import Nonces
from laconic.secagg.crypto.keys import PublicKeys, RunKey
from laconic.secagg.terms import SumPlan, Terms

SERVER = Ed25519PrivateKey.from_private_bytes(b"server".ljust(32, b"."))
RUN = b"the run, 16 bytes"[:16]


@functools.cache
def model() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return nn.Linear(6, 3)


@functools.cache
def make_offer(clients: int, *, dropouts: int, colluders: int) -> Offer:
    weights = initial_weights(model())
    return Offer(
        run=RUN,
        server=SERVER.public_key().public_bytes_raw(),
        scheme=schemes.fl_std_dp(clip_norm=0.5, noise_multiplier=1.0, local_lr=0.1, local_steps=1),
        sampler=Poisson(sampling_rate=0.9),
        num_clients=clients,
        rounds=20,
        budget=Budget(delta=1e-5),
        max_dropouts=dropouts,
        max_colluders=colluders,
        consistency="signed",
        public_seed=4,
        model="own",
        input_shape=(6,),
        num_classes=3,
        size=len(weights),
        initial=weights_digest(weights),
    )


def identity_of(client: int) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(f"identity {client}".encode().ljust(32, b"."))


def node_of(identity: Ed25519PrivateKey) -> int:
    """Whose identity it is."""
    secret = identity.private_bytes_raw()
    return int(secret.removeprefix(b"identity ").rstrip(b"."))


def name_of(client: int) -> str:
    return identity_of(client).public_key().public_bytes_raw().hex()


@dataclass
class Entry:
    """An entry of a roster, with the truth about it: the key, if it is the adversary's."""

    keys: PublicKeys
    private: RunKey | None = None
    owned: bool = True
    """Whether whoever announced the key has it."""


@dataclass
class Told:
    """A roster with the offer that it is told with."""

    offer: Offer
    entries: tuple[Entry, ...]

    @property
    def data(self) -> bytes:
        return b"".join(entry.keys.entry() for entry in self.entries)

    @property
    def terms(self) -> Terms:
        return self.offer.terms(beacon_of(self.offer.run, self.data))


@dataclass
class Attempt:
    """A plan, and all that was got for it."""

    told: Told
    plan: SumPlan
    uploads: dict[int, bytes] = field(default_factory=dict)
    consents: dict[tuple[int, ...], dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))
    reveals: list[tuple[tuple[int, ...], bytes]] = field(default_factory=list)


class World:
    """Honest nodes 0 … n − c − 1, and the last c clients colluding with the server."""

    def __init__(self, path: Path, *, clients: int = 6, dropouts: int = 1, colluders: int = 1, **policy: Any) -> None:
        self.path, self.clients = path, clients
        self.honest = tuple(range(clients - colluders))
        self.colluders = tuple(range(clients - colluders, clients))
        self.offer = make_offer(clients, dropouts=dropouts, colluders=colluders)
        told = make_population([4] * clients)
        self.population = PooledPopulation(told.pool, told._rows, patients=np.arange(4 * clients) // 2)
        self.policy = Policy(
            **{
                "secure_aggregation": "signed",
                "identities": tuple(name_of(client) for client in range(clients)),
                "servers": (self.offer.server.hex(),),
                "min_cohort": clients - dropouts - colluders - 1,
                "min_colluders": colluders,
            }
            | policy
        )
        self.announced: dict[tuple[int, bytes], PublicKeys] = {}
        self.attempts: list[Attempt] = []
        self.delivered = 0
        self.sent: list[tuple[int, str, Fields]] = []
        self.processes = {client: Nonces() for client in self.honest}
        """What each node's process has in memory."""
        self.nonces: dict[tuple[int, bytes], bytes] = {}
        """The last nonce that each node has told, by run."""
        for client in self.honest:
            folder = path / f"node-{client}"
            folder.mkdir(parents=True, mode=0o700)
            (folder / "identity.key").write_bytes(identity_of(client).private_bytes_raw())
            (folder / "identity.key").chmod(0o600)

    # Nodes

    def node(self, client: int) -> Node:
        """The node, as its process makes it for each message."""
        return Node(
            self.folder(client),
            self.policy,
            nonces=self.processes[client],
            model=lambda offer: model(),
            records=lambda offer: Held.at(self.population, client),
        )

    def folder(self, client: int) -> NodeFolder:
        return NodeFolder(self.path / f"node-{client}")

    def send(self, client: int, kind: str, fields: Fields) -> Fields:
        """Deliver one message to an honest node."""
        self.delivered += 1
        self.sent.append((client, kind, fields))
        answer = self.node(client).answer(kind, fields)
        if NONCE in answer:
            run = open_offer(verify_offer(fields["offer"])).run if kind == "keys" else fields["run"]  # type: ignore[arg-type]
            self.nonces[client, run] = bytes(answer[NONCE])  # type: ignore[arg-type]
        return answer

    def restart(self, client: int) -> None:
        """The node's process ends, and another one takes its place."""
        self.processes[client] = Nonces()

    # Joining

    def invite(self, client: int, offer: Offer | None = None, number: int | None = None) -> str:
        """Offer a run to a node under some number; the reason if it refuses."""
        offer, number = offer or self.offer, client if number is None else number
        answer = self.send(client, "keys", {"offer": sign_offer(offer, number, SERVER)})
        if REFUSED in answer:
            return str(answer[REFUSED])
        keys = PublicKeys.from_announcement(bytes(answer["announcement"]), offer.run)  # type: ignore[arg-type]
        self.announced[number, offer.to_bytes()] = keys
        return ""

    def invite_all(self, offer: Offer | None = None) -> None:
        for client in self.honest:
            reason = self.invite(client, offer)
            assert not reason, reason

    def entry(self, offer: Offer, client: int) -> Entry:
        """What an honest node announced, if need be for another offer; or a proper entry of a colluder."""
        elsewhere = [keys for (number, _), keys in self.announced.items() if number == client]
        keys = self.announced.get((client, offer.to_bytes()), *elsewhere[-1:])
        return self.colluding(offer, client) if keys is None else Entry(keys)

    def colluding(self, offer: Offer, client: int, *, identity: int | None = None, key: RunKey | None = None) -> Entry:
        """An entry that the adversary makes itself, signed by one of its identities and by the key."""
        private = key or _key_of(client)
        signer = identity_of(self.colluders[0] if identity is None else identity)
        if identity is None and client in self.colluders:
            signer = identity_of(client)
        return Entry(PublicKeys.signed(offer.context, client, private, signer), private=private)

    def copied(self, offer: Offer, client: int, key: bytes, identity: int | None = None) -> Entry:
        """An entry with somebody else's public key. The identity signs it; the key cannot."""
        mine = self.colluding(offer, client, identity=identity)
        signer = identity_of(self.colluders[0] if identity is None else identity)
        if identity is None and client in self.colluders:
            signer = identity_of(client)
        copy = PublicKeys.signed(offer.context, client, _Borrowed(key), signer)  # type: ignore[arg-type]
        return Entry(replace(copy, possession=mine.keys.possession), owned=False)

    def told(self, offer: Offer | None = None, *changed: Entry) -> Told:
        """The roster of an offer, with some entries in place of the usual ones."""
        offer = offer or self.offer
        entries = {client: self.entry(offer, client) for client in range(offer.num_clients)}
        entries |= {entry.keys.client: entry for entry in changed}
        return Told(offer, tuple(entries[client] for client in sorted(entries)))

    # Rounds

    def attempt(
        self, told: Told | None = None, *, round: int = 1, attempt: int = 0, cohort: Sequence[int] = (), **changes: Any
    ) -> Attempt:
        """A plan for nodes that were told this roster, with the nonces that they have told last."""
        told = told or self.told()
        offer = told.offer
        some = tuple(cohort) or tuple(range(offer.num_clients))
        values = {"bits": self._bits(offer, len(some)), "size": offer.size} | changes
        plan = SumPlan(terms=told.terms, round=round, attempt=attempt, cohort=some, **values)
        nonces = {client: nonce for (client, run), nonce in self.nonces.items() if run == offer.run}
        self.attempts.append(Attempt(told, plan.with_nonces(nonces)))
        return self.attempts[-1]

    @functools.lru_cache(maxsize=64)  # noqa: B019 - a world is as short-lived as a test
    def _bits(self, offer: Offer, cohort: int) -> int:
        from laconic.round import uplink_encoding

        plan = replace(offer.mechanism.typical_plan(), cohort=np.arange(cohort))
        return uplink_encoding(offer.scheme, offer.mechanism.code_size, plan).bits

    def request(self, attempt: Attempt, told: Told | None = None) -> Fields:
        plan, scheme = attempt.plan, attempt.told.offer.scheme
        weights = wire.Message(
            "weights", plan.round, plan.attempt, 0, 0.0, scheme.fingerprint, initial_weights(model())
        )
        from laconic.round import weights_encoding

        return UploadRequest(
            run=attempt.told.offer.run,
            round=plan.round,
            attempt=plan.attempt,
            weights=wire.encode(weights, weights_encoding(scheme)),
            plan=messages.write_plan(plan, ()),
            roster=(told or attempt.told).data,
        ).to_fields()

    def ask_upload(self, attempt: Attempt, client: int, told: Told | None = None) -> str:
        answer = self.send(client, "upload", self.request(attempt, told))
        if REFUSED in answer:
            return str(answer[REFUSED])
        attempt.uploads[client] = bytes(answer["upload"])  # type: ignore[arg-type]
        return ""

    def ask_consent(self, attempt: Attempt, client: int, survivors: Sequence[int]) -> str:
        survivors = tuple(survivors)
        asked = messages.write_survivors(attempt.plan, survivors)
        answer = self.send(client, "consent", {"run": attempt.told.offer.run, "survivors": asked})
        if REFUSED in answer:
            return str(answer[REFUSED])
        attempt.consents[survivors][client] = bytes(answer["consent"])[-64:]  # type: ignore[arg-type]
        return ""

    def ask_reveal(self, attempt: Attempt, client: int, survivors: Sequence[int]) -> str:
        survivors, plan = tuple(survivors), attempt.plan
        signed = dict(attempt.consents[survivors])
        for colluder in self.colluders:  # who signs whatever the server wants
            if colluder in plan.point:
                frame = messages.write_consent(plan, colluder, survivors)
                signed[colluder] = messages.signed(identity_of(colluder), frame)[-64:]
        asked = messages.write_unmask(plan, survivors, signed)
        answer = self.send(client, "unmask", {"run": attempt.told.offer.run, "request": asked})
        if REFUSED in answer:
            return str(answer[REFUSED])
        attempt.reveals.append((survivors, bytes(answer["reveal"])))  # type: ignore[arg-type]
        return ""

    def whole_round(self, attempt: Attempt, survivors: Sequence[int] = ()) -> list[str]:
        """Ask everybody for everything, with one survivor set; all refusals."""
        some = tuple(survivors) or attempt.plan.cohort
        honest = [client for client in self.honest if client in attempt.plan.position]
        reasons = [self.ask_upload(attempt, client) for client in honest if client in some]
        reasons += [self.ask_consent(attempt, client, some) for client in honest]
        reasons += [self.ask_reveal(attempt, client, some) for client in honest]
        return [reason for reason in reasons if reason]


class _Borrowed:
    """A public key without its secret, where a `RunKey` is wanted."""

    def __init__(self, public: bytes) -> None:
        self.public = public

    def sign(self, statement: bytes) -> bytes:
        return bytes(64)


@functools.cache
def _key_of(client: int) -> RunKey:
    return RunKey(f"run key of {client}".encode().ljust(32, b"."))
