"""The server's side of a round: what it tells each node, and what it makes of their answers."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor

from laconic.audience import Sentence
from laconic.clients import wire
from laconic.clients.base import Clients, Collected
from laconic.clients.secure_sums import sum_plan
from laconic.errors import LaconicError, WireError
from laconic.experiment.about import about_sum
from laconic.experiment.experiment import Experiment
from laconic.experiment.identity import environment_of
from laconic.federation.entropy import federation_streams, seed_for_tests
from laconic.federation.requests import Answers, Courier, Fields, UploadRequest, bytes_in, fields_bytes
from laconic.federation.server.members import Members
from laconic.federation.weights import write_shared
from laconic.packing import SIGNS
from laconic.plan import RoundPlan
from laconic.round import downlink_encoding, empty_sum, uplink_encoding, weights_encoding
from laconic.secagg.crypto.keys import ANNOUNCEMENT_BYTES, ENTRY_BYTES
from laconic.secagg.server import Opened, ServerRound
from laconic.secagg.shares import RoundAborted
from laconic.secagg.terms import NONCE_BYTES, claim

Notice = Callable[[int, str], None]
"""Told which client did not do as asked, and why."""


class RemoteClients(Clients):
    """All clients of an experiment, on machines of their own.

    A round is `requests` to the cohort, then `collected` from the answers, which asks again to open a masked sum. No
    round can be repeated exactly: after a restart it is a new attempt, with new noise. `joined` is the exchange in
    which the members joined, if it was just now: it counts in the first round.
    """

    replays = False

    def __init__(
        self,
        experiment: Experiment,
        members: Members,
        courier: Courier,
        *,
        timeout: float,
        joined: Answers | None = None,
    ) -> None:
        super().__init__(experiment, federation_streams(experiment.seed))
        self.environment = environment_of(self.device, f"federation {secrets.token_hex(8)}")
        self._offer, self._roster = members.offer, members.roster
        self._secagg = members.secagg() if members.offer.masked else None
        self._terms, self._courier, self.timeout = members.terms, courier, timeout
        self.notice: Notice = lambda client, reason: None
        self._rounds: list[ServerRound | None] = []
        """The sums of the round, one for each group; None where a group may not be opened. Empty: nothing is masked."""
        self._sum_of: dict[int, ServerRound] = {}
        """In which of them each node is."""
        self._told: set[int] = set()
        """Who has the roster."""
        self._shared: dict[int, bytes] = {}
        """What each node was told once: nothing before a vote, and the kept coordinates after it."""
        self._single: list[tuple[float, Tensor]] = []
        """What each node of the round counts, and its code, for an aggregator that looks at single ones."""
        self._weights = (-1, self.model.initial)
        self._holders: set[int] = set()
        """Who has the weights of the last round."""
        self._nonces = {} if joined is None else dict(joined.nonces)
        """The nonce of each node for the next plan, if an answer since the last plan had one."""
        self._unready: dict[int, str] = {}
        """Who is in the cohort of the round and not asked for an upload, and why."""
        self._readied = Answers()
        """Of the exchange before the round, if there was one."""
        announcement = ANNOUNCEMENT_BYTES + NONCE_BYTES
        self._announced = len(members.roster) // ENTRY_BYTES * announcement if joined is not None else 0
        self._joining = {} if joined is None else {"keys_up": joined.overhead_up, "keys_down": joined.overhead_down}

    @property
    def about_sum(self) -> str:
        if self._secagg is None:
            return about_sum(self.experiment)
        return (
            "masked: every node masked its integers before they left it, and this server saw masked residues and the"
            f" sums; the sums are secure against {claim(signed=self._terms.signed)}"
        )

    @property
    def assumed(self) -> list[Sentence]:
        seed = seed_for_tests()
        if seed is not None:
            text = "noise was drawn from {}, for a test: it protects nothing"
            return [Sentence(text.format(f"seed {seed}"), outsider=text.format("the seed"))]
        return [Sentence.public(text) for text in self._assumed()]

    def _assumed(self) -> list[str]:
        """What is assumed of the nodes: all of it is in the offer, or a rule for every node."""
        if self._offer.scheme.record_level:
            return [
                "every node draws its records and its noise from the entropy of its operating system, adds the whole"
                " noise of its steps itself, and logs its own ε: this server sees single codes and cannot check it",
                "how many records a node has is not known here; each node refuses a δ of one over its own number or"
                " more. A record that several nodes hold is protected that many times less",
            ]
        inside = [
            f"every node draws its {self._offer.scheme.unit}s by coins from the entropy of its operating system, clips"
            " the part of each by itself and logs its own ε: this server sees sums and cannot check it"
        ]
        return [
            *(inside if self._offer.scheme.sums_units else []),
            "every node draws its noise from the entropy of its operating system, and so does the server",
            "whether a node vanishes does not depend on its data, and whether a round is lost after the uploads does"
            " not depend on who is in it",
        ]

    @property
    def needed(self) -> int:
        """How many nodes must be there for a round to make sense: no larger share is missing than may drop out."""
        clients, offer = self._offer.num_clients, self._offer
        if not offer.masked:
            return 1
        planned = offer.sampler.planned_cohort(clients, offer.scheme.groups)
        return math.ceil(clients * (1 - offer.max_dropouts / planned))

    def collect(self, plan: RoundPlan, weights: Tensor) -> Collected:
        requests = self.requests(plan, weights)
        return self.collected(plan, requests, self._courier.ask("upload", requests, timeout=self.timeout))

    # What the nodes are told

    def requests(self, plan: RoundPlan, weights: Tensor) -> dict[int, Fields]:
        """What each node of the cohort is told. Roster and kept coordinates come with its first round."""
        scheme = self._offer.scheme
        if self._secagg is not None:
            begin = self._secagg.begin
            plans = [sum_plan(self._terms, scheme, one, self.model.size) if one.viable else None for one in plan.sums]
            nonces = self._ready(client for one in plans if one is not None for client in one.cohort)
            self._rounds = [None if one is None else begin(one.with_nonces(nonces)) for one in plans]
            self._sum_of = {client: one for one in self._rounds if one is not None for client in one.plan.cohort}
            self._sum_of = {client: one for client, one in self._sum_of.items() if client not in self._unready}
        shared = write_shared(dict(plan.shared), plan.fingerprint)
        whole, signs = self._weights_message(plan, weights), self._signs_message(plan, weights)
        self._weights = (plan.round, weights)
        requests = {}
        for client in sorted(self._sum_of) if self._secagg is not None else plan.cohort.tolist():
            requests[client] = UploadRequest(
                run=self._offer.run,
                round=plan.round,
                attempt=plan.attempt,
                weights=signs if signs is not None and client in self._holders else whole,
                plan=b"" if self._secagg is None else self._sum_of[client].plan_for(client),
                roster=b"" if client in self._told or self._secagg is None else self._roster,
                shared=b"" if self._shared.get(client) == shared else shared,
            ).to_fields()
        return requests

    def _ready(self, cohort: Iterable[int]) -> dict[int, bytes]:
        """The nonces of the cohort, each for one plan. Nodes that were not heard of since their last plan are asked."""
        nonces = {client: self._nonces.pop(client, None) for client in cohort}
        unknown = [client for client, nonce in nonces.items() if nonce is None]
        self._readied = Answers()
        if unknown:
            with self.clock("ready"):
                asked: dict[int, Fields] = {client: {"run": self._offer.run} for client in unknown}
                self._readied = self._courier.ask("ready", asked, timeout=self.timeout)
            self._readied.overhead_down += fields_bytes(asked.values())
        given = self._readied.given.keys() & self._readied.nonces.keys()
        self._unready = {
            client: self._readied.missing.get(client, "sent no nonce") for client in unknown if client not in given
        }
        known = nonces | {client: self._readied.nonces[client] for client in given}
        return {client: nonce for client, nonce in known.items() if nonce is not None}

    def _weights_message(self, plan: RoundPlan, weights: Tensor) -> bytes:
        """The weights that change: all, or those that the codec keeps. The same message for everyone."""
        changing = self._offer.scheme.at(plan.round).codec.changing(len(weights), plan)
        values = weights if changing is None else weights[changing.to(weights.device)]
        message = wire.Message("weights", plan.round, plan.attempt, 0, 0.0, plan.fingerprint, values)
        return wire.encode(message, weights_encoding(self._offer.scheme))

    def _signs_message(self, plan: RoundPlan, weights: Tensor) -> bytes | None:
        """The signs of the last change, for nodes that have the weights before it; None if signs do not tell it."""
        rule, (round, before) = self._offer.scheme.rule, self._weights
        if rule.same_step is None or downlink_encoding(self._offer.scheme) != SIGNS:
            return None
        signs = torch.sign(weights - before)
        if round != plan.round - 1 or not torch.equal(before + rule.same_step * signs, weights) or not signs.all():
            return None
        return wire.encode(wire.Message("weights", plan.round, plan.attempt, 0, 0.0, plan.fingerprint, signs), SIGNS)

    # What they answer

    def collected(self, plan: RoundPlan, requests: Mapping[int, Fields], answers: Answers) -> Collected:
        """The sum of the answers, opened if it may be; and the bytes that travelled."""
        result = Collected(empty_sum(self._offer.scheme, plan, self.sizes(plan.round)[0], self.device))
        result.groups = [0] * len(plan.groups) if plan.groups else None
        result.down = [len(bytes_in(fields, "weights")) for fields in requests.values()]
        result.transport = self._joining
        self._joining = {}
        self._count_transport("upload", answers, result)
        if self._readied.overhead_down:
            self._count_transport("ready", self._readied, result)
        answers.missing |= self._unready
        self._nonces |= answers.nonces
        self._notice_all(answers)
        self._holders.clear()
        self._single.clear()
        accept = self._add_plain if self._secagg is None else self._add_masked
        for client, fields in sorted(answers.given.items()):  # in the order of the cohort: float sums depend on it
            try:
                accept(plan, client, bytes_in(fields, "upload"), result)
            except LaconicError as error:
                self.notice(client, str(error))
                continue
            self._told.add(client)
            self._shared[client] = bytes_in({"shared": b""} | requests[client], "shared")
            self._holders.add(client)
        if self._secagg is not None:
            self._count_secagg(requests, answers, result)
            self._unmask_all(result)
        elif not result.messages:
            result.lost = "no node sent a code"
        if self._single:
            result.counts = torch.tensor([weight for weight, _ in self._single], device=self.device)
            result.total = torch.stack([values for _, values in self._single]).to(self.device)
        return result

    def _add_plain(self, plan: RoundPlan, client: int, data: bytes, result: Collected) -> None:
        code_size = self.sizes(plan.round)[0]
        message = wire.decode(
            data,
            fingerprint=plan.fingerprint,
            round=plan.round,
            attempt=plan.attempt,
            size=code_size,
            encoding=uplink_encoding(self._offer.scheme.at(plan.round), code_size, plan),
        )
        if message.client != client:
            raise WireError(f"sent a code of client {message.client}")
        if self._offer.scheme.weighting == "uniform" and message.weight != 1:
            raise WireError(f"wants to count as {message.weight:g} nodes, but every node counts as one")
        if self._offer.scheme.aggregator.sums:
            result.total += (message.weight * message.values).to(self.device)
        else:
            self._single.append((message.weight, message.values))
        result.weight += message.weight
        result.messages += 1
        result.up.append(len(data))

    def _add_masked(self, plan: RoundPlan, client: int, data: bytes, result: Collected) -> None:
        current = self._sum_of[client]
        if current.accept_upload(data) != client:
            raise WireError("sent an upload of another client")
        result.up.append(current.plan.ring.packed_size(self.sizes(plan.round)[0]))

    def _unmask_all(self, result: Collected) -> None:
        """Open one sum after the other. What is lost in one group does not touch another."""
        reasons = []
        for number, current in enumerate(self._rounds):
            if current is None:
                continue
            opened = self._unmask(current, result)
            if isinstance(opened, str):
                reasons.append(opened)
                continue
            total = result.total if result.groups is None else result.total[number]
            total += torch.from_numpy(opened.total.astype("int64")).to(self.device)
            result.messages += len(opened.survivors)
            if result.groups is not None:
                result.groups[number] = len(opened.survivors)
        result.weight = float(result.messages)
        if not result.messages and reasons:
            result.lost = reasons[0] if result.groups is None else f"no group was opened; the first: {reasons[0]}"

    def _unmask(self, current: ServerRound, result: Collected) -> Opened | str:
        """Ask the members to open the sum. If it cannot or must not be opened: why."""
        try:
            current.close_uploads()
            if current.plan.terms.signed:
                self._ask_members(current, "consent", current.survivors_for_consent(), result)
            self._ask_members(current, "unmask", current.unmask_request(), result)
            return current.open()
        except RoundAborted as aborted:
            return str(aborted)

    def _ask_members(self, current: ServerRound, kind: str, asked: bytes, result: Collected) -> None:
        """Ask the committee, and go on as soon as enough of it have answered."""
        question, answer = {"consent": ("survivors", "consent"), "unmask": ("request", "reveal")}[kind]
        accept = {"consent": current.accept_consent, "unmask": current.accept_reveal}[kind]
        requests: dict[int, Fields] = {m: {"run": self._offer.run, question: asked} for m in current.plan.committee}
        with self.clock(kind):
            answers = self._courier.ask(kind, requests, timeout=self.timeout, enough=current.plan.threshold)
        self._count_transport(kind, answers, result)
        self._nonces |= answers.nonces
        result.secagg["unmask_down"] += fields_bytes(requests.values())
        result.secagg["unmask_up"] += fields_bytes(answers.given.values())
        for member, given in answers.given.items():
            try:
                accept(bytes_in(given, answer))
            except LaconicError as error:
                self.notice(member, str(error))
        if len(answers.given) < current.plan.threshold:
            self._notice_all(answers)

    # What is counted and told

    def _count_secagg(self, requests: Mapping[int, Fields], answers: Answers, result: Collected) -> None:
        """The bytes of the masked sum beside the masked vectors: the same kinds as in a simulation."""
        told = [fields for fields in requests.values() if "roster" in fields]
        result.secagg = {
            "keys_up": self._announced + fields_bytes(self._readied.given.values()),
            "keys_down": sum(len(bytes_in(fields, "roster")) for fields in told),
            "plan_down": sum(len(bytes_in(fields, "plan")) for fields in requests.values()),
            "shares_up": fields_bytes(answers.given.values()) - sum(result.up),
            "unmask_down": 0,
            "unmask_up": 0,
        }
        self._announced = 0

    def _count_transport(self, kind: str, answers: Answers, result: Collected) -> None:
        for way, size in ((f"{kind}_up", answers.overhead_up), (f"{kind}_down", answers.overhead_down)):
            result.transport[way] = result.transport.get(way, 0) + size

    def _notice_all(self, answers: Answers) -> None:
        for client, reason in answers.missing.items():
            self.notice(client, reason)
