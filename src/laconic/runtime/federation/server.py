"""The server's side of a round: what it tells each node, and what it makes of their answers."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from laconic.errors import LaconicError, WireError
from laconic.packing import FLOAT32, SIGNS
from laconic.plan import RoundPlan
from laconic.round import downlink_encoding, empty_sum, uplink_encoding
from laconic.runtime import wire
from laconic.runtime.clients import Collected, SimulatedClients
from laconic.runtime.experiment import Experiment
from laconic.runtime.federation.courier import Answers, Courier
from laconic.runtime.federation.entropy import federation_streams, seed_for_tests
from laconic.runtime.federation.members import Members
from laconic.runtime.federation.requests import Fields, UploadRequest, bytes_in
from laconic.runtime.federation.training import write_shared
from laconic.runtime.secure import sum_plan
from laconic.secagg import RoundAborted, ServerRound
from laconic.server.vote import MajorityVote

Notice = Callable[[int, str], None]
"""Told which client did not do as asked, and why."""


class FederatedClients(SimulatedClients):
    """All clients of an experiment, on machines of their own.

    A round is `requests` to the cohort, then `collected` from the answers, which asks again to open a masked sum. No
    round can be repeated exactly: after a restart it is a new attempt, with new noise.
    """

    def __init__(self, experiment: Experiment, members: Members, courier: Courier, *, timeout: float) -> None:
        super().__init__(experiment)
        self.streams = federation_streams(experiment.seed)
        self.environment += f"; federation {secrets.token_hex(8)}"
        self._offer, self._roster = members.offer, members.roster
        self._secagg = members.secagg() if members.offer.masked else None
        self._terms, self._courier, self.timeout = members.terms, courier, timeout
        self.notice: Notice = lambda client, reason: None
        self._round: ServerRound | None = None
        self._told: set[int] = set()
        self._weights = (-1, self.model.initial)
        self._holders: set[int] = set()
        """Who has the weights of the last round."""

    @property
    def about_sum(self) -> str:
        if self._secagg is None:
            return super().about_sum
        lying = " also against a lying server, if the nodes have a list of identities" if self._terms.signed else ""
        return (
            "masked: each node masked its integers before they left it, and the server saw masked vectors and sums"
            f" (honest-but-curious server{lying})"
        )

    @property
    def about_noise(self) -> str:
        seed = seed_for_tests()
        if seed is not None:
            return f"noise was drawn from seed {seed}, for a test: it protects nothing"
        return "every node draws its noise from its operating system's entropy, and the server its own"

    def collect(self, plan: RoundPlan, weights: Tensor) -> Collected:
        requests = self.requests(plan, weights)
        return self.collected(plan, requests, self._courier.ask("upload", requests, timeout=self.timeout))

    # What the nodes are told

    def requests(self, plan: RoundPlan, weights: Tensor) -> dict[int, Fields]:
        """What each node of the cohort is told. Roster and kept coordinates come with its first round."""
        scheme = self._offer.scheme
        if self._secagg is not None:
            self._round = self._secagg.begin(sum_plan(self._terms, scheme, plan, self.code_size))
        shared = write_shared(dict(plan.shared), plan.fingerprint)
        whole, signs = self._weights_message(plan, weights), self._signs_message(plan, weights)
        self._weights = (plan.round, weights)
        requests = {}
        for client in plan.cohort.tolist():
            known = client in self._told
            requests[client] = UploadRequest(
                run=self._offer.run,
                round=plan.round,
                attempt=plan.attempt,
                weights=signs if signs is not None and client in self._holders else whole,
                plan=self._round.plan_for(client) if self._round else b"",
                roster=b"" if known or not self._round else self._roster,
                shared=b"" if known else shared,
            ).to_fields()
        return requests

    def _weights_message(self, plan: RoundPlan, weights: Tensor) -> bytes:
        """The weights that change: all, or those that the codec keeps. The same message for everyone."""
        changing = self._offer.scheme.codec.changing(len(weights), plan)
        values = weights if changing is None else weights[changing.to(weights.device)]
        message = wire.Message("weights", plan.round, plan.attempt, 0, 0.0, plan.fingerprint, values)
        return wire.encode(message, FLOAT32)

    def _signs_message(self, plan: RoundPlan, weights: Tensor) -> bytes | None:
        """The signs of the last change, for nodes that have the weights before it; None if signs do not tell it."""
        rule, (round, before) = self._offer.scheme.rule, self._weights
        if not isinstance(rule, MajorityVote) or downlink_encoding(self._offer.scheme) != SIGNS:
            return None
        signs = torch.sign(weights - before)
        if round != plan.round - 1 or not torch.equal(before + rule.sign_step * signs, weights) or not signs.all():
            return None
        return wire.encode(wire.Message("weights", plan.round, plan.attempt, 0, 0.0, plan.fingerprint, signs), SIGNS)

    # What they answer

    def collected(self, plan: RoundPlan, requests: Mapping[int, Fields], answers: Answers) -> Collected:
        """The sum of the answers, opened if it may be; and the bytes that travelled."""
        result = Collected(empty_sum(self._offer.scheme, self.code_size, self.device))
        result.down = [len(bytes_in(fields, "weights")) for fields in requests.values()]
        for client, reason in answers.missing.items():
            self.notice(client, reason)
        self._holders.clear()
        accept = self._add_plain if self._round is None else self._add_masked
        for client, fields in sorted(answers.given.items()):  # in the order of the cohort: float sums depend on it
            try:
                result.up.append(accept(plan, client, bytes_in(fields, "upload"), result))
            except LaconicError as error:
                self.notice(client, str(error))
                continue
            self._told.add(client)
            self._holders.add(client)
        if self._round is not None:
            self._open(self._round, result)
        return result

    def _add_plain(self, plan: RoundPlan, client: int, data: bytes, result: Collected) -> int:
        scheme = self._offer.scheme
        encoding = uplink_encoding(scheme, self.code_size, plan)
        message = wire.decode(
            data,
            fingerprint=plan.fingerprint,
            round=plan.round,
            attempt=plan.attempt,
            size=self.code_size,
            encoding=encoding,
        )
        if message.client != client:
            raise WireError(f"sent a code of client {message.client}")
        result.total += (message.weight * message.values).to(self.device)
        result.weight += message.weight
        result.messages += 1
        return len(data)

    def _add_masked(self, plan: RoundPlan, client: int, data: bytes, result: Collected) -> int:
        assert self._round is not None
        if self._round.accept_upload(data) != client:
            raise WireError("sent an upload of another client")
        return self._round.plan.ring.packed_size(self.code_size)

    def _open(self, current: ServerRound, result: Collected) -> None:
        """Ask the members to open the sum. If it cannot or must not be opened, nobody counts as having come."""
        try:
            current.close_uploads()
            if current.plan.terms.signed:
                self._ask_members(current, "consent", current.survivors_for_consent(), current.accept_consent)
            self._ask_members(current, "unmask", current.unmask_request(), current.accept_reveal)
            opened = current.open()
        except RoundAborted as aborted:
            result.reason = str(aborted)
            return
        result.total += torch.from_numpy(opened.total.astype("int64")).to(self.device)
        result.messages, result.weight = len(opened.survivors), float(len(opened.survivors))

    def _ask_members(self, current: ServerRound, kind: str, asked: bytes, accept: Callable[[bytes], int]) -> None:
        """Ask the committee, and go on as soon as enough of it have answered."""
        question, answer = {"consent": ("survivors", "consent"), "unmask": ("request", "reveal")}[kind]
        requests: dict[int, Fields] = {m: {"run": self._offer.run, question: asked} for m in current.plan.committee}
        answers = self._courier.ask(kind, requests, timeout=self.timeout, enough=current.plan.threshold)
        for member, given in answers.given.items():
            try:
                accept(bytes_in(given, answer))
            except LaconicError as error:
                self.notice(member, str(error))
        if len(answers.given) < current.plan.threshold:
            for member, reason in answers.missing.items():
                self.notice(member, reason)
