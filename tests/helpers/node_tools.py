"""What the tests of nodes share: three nodes without a carrier, and an offer with why a policy refuses it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from torch import nn

from conftest import make_population
from laconic import schemes
from laconic.federation.node import refusals as node_refusals
from laconic.federation.node.node import Node
from laconic.federation.offer import Offer
from laconic.federation.populations import FarRecords
from laconic.federation.requests import Answers, Fields
from laconic.federation.server.members import invite
from laconic.federation.server.remote_clients import RemoteClients
from laconic.federation.weights import initial_weights, weights_digest
from laconic.guard import limits as limits_of
from laconic.guard.folder import NodeFolder
from laconic.guard.ledger import Price
from laconic.guard.policy import Policy
from laconic.guard.transcript import UPLOADED
from laconic.planning import plan_round
from laconic.privacy.accounting.budget import Budget
from laconic.privacy.accounting.sampling import Poisson
from laconic.secagg.attempts import Nonces

TRAIN = {"local_lr": 0.1, "local_steps": 1}
SCHEME = schemes.fl_std_dp(clip_norm=0.5, noise_multiplier=4.0, **TRAIN)
OFFER = Offer(
    run=bytes(16),
    server=bytes(range(32)),
    scheme=SCHEME,
    sampler=Poisson(sampling_rate=1.0),
    num_clients=5,
    rounds=4,
    budget=Budget(delta=1e-5),
    public_seed=0,
    model="logistic",
    input_shape=(6,),
    num_classes=3,
    size=21,
    initial="0" * 32,
)


def refusals(offer: Offer = OFFER, **limits: Any) -> str:
    if any("epsilon" in name for name in limits):
        limits = {"max_delta": 1e-5} | limits
    policy = Policy(**limits)
    checks = (limits_of.against_server(policy, offer.server), limits_of.against_contract(policy, offer.contract))
    return "; ".join([*checks[0], *checks[1], *node_refusals.against_offer(policy, offer)])


def round_refusals(policy: Policy, offer: Offer, *, uploads: Sequence[tuple[int, int]], cohort: int) -> list[str]:
    """Why the last of these uploads is refused, by the guard and for what an outsider would learn."""
    contract = offer.contract
    rows = [
        {"what": UPLOADED, "round": one, "attempt": at, "price": Price.of(contract, contract.release(one)).row()}
        for one, at in uploads[:-1]
    ]
    told = limits_of.against_upload(policy, contract, rows, uploads[-1], cohort)
    outside = 1 <= uploads[-1][0] <= offer.rounds
    return [*told, *(node_refusals.against_round(policy, offer, uploads=uploads) if outside else [])]


SERVER = Ed25519PrivateKey.generate()
SIZES = [8, 7, 6]


def model() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return nn.Linear(6, 3)


def make_offer(**changes: Any) -> Offer:
    weights = initial_weights(model())
    offer = Offer(
        run=secrets.token_bytes(16),
        server=SERVER.public_key().public_bytes_raw(),
        scheme=schemes.fl_std_dp(clip_norm=0.5, noise_multiplier=1.0, local_lr=0.1, local_steps=2),
        sampler=Poisson(sampling_rate=1.0),
        num_clients=len(SIZES),
        rounds=5,
        budget=Budget(delta=1e-5),
        public_seed=4,
        model="own",
        input_shape=(6,),
        num_classes=3,
        size=len(weights),
        initial=weights_digest(weights),
    )
    return replace(offer, **changes)


class DirectCourier:
    """Nodes in this process, asked directly."""

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes

    def ask(self, kind: str, requests: Mapping[int, Fields], *, timeout: float, enough: int | None = None) -> Answers:
        answers = Answers()
        for client, fields in requests.items():
            answers.add(client, self.nodes[client].answer(kind, fields))
        return answers


class Small:
    """Three nodes and a server, with no carrier between them."""

    def __init__(self, path: Path, policy: Policy = Policy(), **changes: Any) -> None:  # noqa: B008 - it is frozen
        self.path, self.policy, self.population = path, policy, make_population(SIZES)
        self.offer = make_offer(**changes)
        self.processes = [Nonces() for _ in SIZES]
        """What each node's process has in memory."""
        self.courier = DirectCourier([self.node(number) for number in range(len(SIZES))])

    def node(self, number: int) -> Node:
        """The node, as its process makes it for each message."""
        return Node(
            NodeFolder(self.path / f"node-{number}"),
            self.policy,
            nonces=self.processes[number],
            model=lambda offer: model(),
            records=lambda offer: self.population.records(number),
        )

    def restart(self, number: int) -> None:
        """The node's process ends, and another one takes its place."""
        self.processes[number] = Nonces()
        self.courier.nodes[number] = self.node(number)

    def join(self) -> RemoteClients:
        members, answers = invite(self.offer, [0, 1, 2], SERVER, self.courier, 1.0)
        assert members is not None, answers.missing
        self.members = members
        return self.server(answers)

    def server(self, joined: Answers | None = None) -> RemoteClients:
        """The server of the members, as it is after they have joined, or after it was started again."""
        far = FarRecords(len(SIZES), self.population.records(0))
        experiment = self.offer.experiment(model(), far, seed=4)
        return RemoteClients(experiment, self.members, self.courier, timeout=1.0, joined=joined)

    def plan(self, clients: RemoteClients, round: int = 1, attempt: int = 0) -> Any:
        return plan_round(
            self.offer.scheme,
            self.offer.sampler,
            streams=clients.streams,
            round=round,
            attempt=attempt,
            num_clients=len(SIZES),
            max_dropouts=self.offer.max_dropouts,
        )
