"""The node: it answers a server's messages, as far as its owner's policy allows.

The guard decides, and holds the keys. The node does around it what takes more code than one would want to believe: it
checks what the offer means, loads records, and trains. It also checks the limits on what an outsider learns, which need
an accountant. The process may end at any instant: what must be remembered is in the node's folder, and is there before
the answer leaves.

Records are read in a round that is charged, and nowhere before. If they cannot be used, the guard sends noise alone,
and the owner is told: the server learns nothing of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from laconic.errors import DataError, LaconicError, PrivacyError, RunFolderError, WireError, one_line
from laconic.federation.entropy import TEST_SEED, StreamWords, federation_streams, refuse_test_seed, seed_for_tests
from laconic.federation.front_ends import kept_front_end, own_front_end
from laconic.federation.node.kept import LastAnswers
from laconic.federation.offer import UNCHECKED, check_meaning, check_patients
from laconic.federation.requests import NONCE, Fields, UploadRequest, bytes_in, run_in
from laconic.figures import rounded_up
from laconic.guard.contract import CLIENT
from laconic.guard.folder import NodeFolder
from laconic.guard.guard import Guard
from laconic.guard.transcript import JOINED, MEASURED, REFUSED
from laconic.guard.withheld import WITHHELD, RecordsFailed, Withheld, on_records
from laconic.secagg.attempts import Nonces, StaleNonce
from laconic.secagg.terms import RUN_BYTES

if TYPE_CHECKING:
    from torch import Tensor, nn

    from laconic.data.meaning import Meaning
    from laconic.data.population import Records
    from laconic.federation.node.kept import KeptWork
    from laconic.federation.node.lifetime import Cost
    from laconic.federation.node.training import NodeWork
    from laconic.federation.offer import Offer
    from laconic.federation.populations import Held
    from laconic.guard.noise import Source
    from laconic.guard.policy import Policy
    from laconic.plan import RoundPlan

_LONGEST, _LONGEST_KIND = 2000, 30
"""Characters of a reason, and of a kind of message that is none."""
_SECRET_BYTES = 32


class Node:
    """One node. `model` makes the run's model with its initial weights, `records` loads the data that stay here, and
    `of_patients` says whether these tell whose each is (None: only loading them does).

    `kept` has the work of the runs under way, where a process answers more than one message, and `nonces` are those of
    the process. `meaning` is what the node's records mean, `front_end` the owner's copy of a front end that cannot be
    made from a seed, and `front_end_module` the factory of a module that the owner allows in one. With `keep_weights`
    the newest weights of each run stay in the folder, for the owner's own predictions.
    """

    def __init__(
        self,
        folder: NodeFolder,
        policy: Policy,
        *,
        model: Callable[[Offer], nn.Module],
        records: Callable[[Offer], Records | Held],
        of_patients: bool | None = None,
        kept: KeptWork | None = None,
        nonces: Nonces | None = None,
        meaning: Meaning | str | None = UNCHECKED,
        front_end: Path | None = None,
        front_end_module: str | None = None,
        keep_weights: bool = False,
        **options: Any,
    ) -> None:
        self._meaning, self._front_end, self._keep_weights = meaning, front_end, keep_weights
        self._front_end_module = front_end_module
        self._folder, self._policy, self._kept = folder, policy, kept
        self._model, self._records, self._options = model, records, options
        self._of_patients = of_patients
        self._offered = b""
        self._work: NodeWork | None = None
        self._guard = Guard(
            folder,
            policy,
            nonces if nonces is not None else Nonces(),
            sources=self._repeatable if policy.allow_test_seed and os.environ.get(TEST_SEED) else None,
        )

    def _repeatable(self, round: int, attempt: int, client: int) -> Source:
        """The words of a client's noise where a test makes a federation repeatable."""
        streams = federation_streams(0) if self._work is None else self._work.streams
        return StreamWords(streams.stream(*streams.of_run("noise", round, attempt, client)))

    def answer(self, kind: str, fields: Mapping[str, Any]) -> Fields:
        """The answer to one message. What is refused, or cannot be done, is an answer too: it says why."""
        steps = {
            "keys": self.join,
            "ready": self.ready,
            "upload": self.upload,
            "consent": self.consent,
            "unmask": self.reveal,
        }
        with self._folder.alone():
            past: str | None = None
            try:
                if kind not in steps:
                    raise WireError("this node answers laconic's messages, and no others")
                refuse_test_seed(self._policy.allow_test_seed)
                self._folder.take_over()
                if self._folder.copied is not None:
                    raise Withheld(self._folder.copied)
                self._check_size(fields)
                if kind in ("keys", "upload") and self._folder.attention is not None:
                    raise Withheld(f"its owner must look at attention.txt first: {self._folder.attention}")
                last = LastAnswers(self._folder, self._policy.digest)
                answer = last.known(kind, fields)
                if answer is None:
                    answer = steps[kind](fields)
                    last.keep(kind, fields, answer)
                return self._with_nonce(kind, fields, answer)
            except StaleNonce as error:
                self._note_refusal(kind, fields, str(error), None)
                return self._with_nonce(kind, fields, {REFUSED: str(error)})
            except LaconicError as error:
                told, detail = one_line(error, _LONGEST), getattr(error, "detail", None)
                past = getattr(error, "past", None)
                if isinstance(error, RunFolderError):  # it names files of the owner's, and says what is in them
                    told, detail = WITHHELD, str(error)
            except Exception as error:  # nothing that a server sends may tell it more than this
                told, detail = WITHHELD, f"{type(error).__name__}: {error}"
            self._note_refusal(kind, fields, told, detail, past)
            return {REFUSED: told}

    def join(self, fields: Mapping[str, Any]) -> Fields:
        """Once per run: accept the offer, and announce a key for the run."""
        from laconic.federation.node import refusals
        from laconic.federation.node.lifetime import Cost
        from laconic.federation.offer import open_offer
        from laconic.federation.weights import check_model

        data = bytes_in(fields, "offer")
        signed, contract = self._guard.read(data)
        self._offered, offer = contract.run, open_offer(signed)
        self._refuse_if(refusals.against_offer(self._policy, offer))
        planned = Cost.planned(offer)
        if not self._has_joined(offer.run):
            self._within_lifetime(offer, planned, Cost.planned(offer, offer.spare_rounds))
        check_meaning(offer, self._meaning)
        check_patients(offer, self._of_patients)
        joined = self._folder.kept(offer.run, "offer") is not None
        front_end = None if joined else own_front_end(offer, self._front_end, self._front_end_module)
        check_model(self._model(offer), offer)
        if front_end is not None:
            self._folder.keep(offer.run, "front_end", front_end.to_bytes())
        announcement = self._guard.join(data, cost=planned.row())
        self._folder.keep(offer.run, "policy", self._policy.digest)
        self._folder.keep(offer.run, "offer", data)
        return {"announcement": announcement}

    def ready(self, fields: Mapping[str, Any]) -> Fields:
        """Before a round, where the server does not know this node's nonce, which comes with every answer."""
        self._accepted(run_in(fields))
        return {}

    def upload(self, fields: Mapping[str, Any]) -> Fields:
        """One round: read the request, charge it, train, and send what the server may see.

        Until the charge is on the disk nothing that depends on a record happens. Afterwards something is sent in any
        case: the guard's noise alone, if the records cannot be used.
        """
        from laconic.federation.node.training import round_plan

        request = UploadRequest.from_fields(fields)
        client, offer = self._accepted(request.run)
        check_meaning(offer, self._meaning)
        self._keep_shared(offer, request)
        cost = self._affordable(offer, request)
        weights = self._told_weights(offer, request)
        ticket = self._guard.charge(
            request.run,
            request.round,
            request.attempt,
            plan=request.plan,
            roster=request.roster,
            cost=cost.row(),
            **({"test_seed": True} if seed_for_tests() is not None else {}),
        )
        plan = round_plan(offer, request.round, request.attempt, np.array(ticket.cohort), self._shared(offer))
        code = self._code(client, offer, plan, weights)
        if code is None and offer.scheme.record_level:
            code = self._no_records(client, offer, plan, weights)
        if offer.scheme.downlink == "signs" or self._keep_weights:
            self._folder.keep(offer.run, "weights", request.round.to_bytes(4, "little") + weights.numpy().tobytes())
        if not offer.masked:
            if code is None:
                raise Withheld(
                    "its own records could not be used, and nothing hides that where codes are sent as they are"
                )
            training, own = code
            return {"upload": training.message(plan, own)}
        return {"upload": self._guard.send(ticket, None if code is None else code[1].numpy())}

    def _code(self, client: int, offer: Offer, plan: RoundPlan, weights: Tensor) -> tuple[NodeWork, Tensor] | None:
        """What training makes of the weights; None if the records cannot be used, of which the owner is told."""
        try:
            training = self._training(client, offer)
            with on_records():
                code = training.vector(plan, weights) if offer.masked else training.code(plan, weights)
                own = training.own_metrics(plan, weights)
        except RecordsFailed as error:
            self._records_failed(offer, error)
            return None
        # One sum first: it is finite nearly always, and a fraction of the work.
        if offer.masked and not (bool(code.sum().isfinite()) or bool(code.isfinite().all())):
            self._folder.note_records(
                f"round {plan.round}: training gave numbers that are not finite, by the records or by the weights"
            )
        if own is not None:
            self._folder.log.add(MEASURED, offer.run, round=plan.round, attempt=plan.attempt, own_metrics=own)
        return training, code

    def _no_records(self, client: int, offer: Offer, plan: RoundPlan, weights: Tensor) -> tuple[NodeWork, Tensor]:
        """What a node without any records sends where each adds the whole noise by itself: noise alone."""
        import torch

        from laconic.data.population import Records
        from laconic.federation.node.training import NodeWork
        from laconic.federation.populations import Held

        nothing = Held(Records(torch.zeros(0, *offer.head_shape), torch.zeros(0, dtype=torch.int64)))
        training = NodeWork(offer, client, self._model(offer), nothing, test_seed_allowed=self._policy.allow_test_seed)
        return training, training.code(plan, weights)

    def _affordable(self, offer: Offer, request: UploadRequest) -> Cost:
        """What the run is planned to cost, if the limits on what an outsider learns leave room for this upload."""
        from laconic.federation.node import refusals
        from laconic.federation.node.lifetime import Cost

        self._guard.check_tries(offer.server)
        rows = self._folder.log.rows(offer.run)
        cost = Cost(**next(row["cost"] for row in rows if row["what"] == JOINED))
        uploads = [*self._folder.log.uploads(offer.run), (request.round, request.attempt)]
        if 1 <= request.round <= offer.rounds:
            self._refuse_if(refusals.against_round(self._policy, offer, uploads=uploads))
            self._within_lifetime(offer, cost, cost.after(uploads))
        return cost

    def _told_weights(self, offer: Offer, request: UploadRequest) -> Tensor:
        """All weights from which this round starts. No record is needed to know them."""
        from laconic.federation.node.training import read_weights, round_plan
        from laconic.federation.weights import initial_weights

        plan = round_plan(offer, request.round, request.attempt, np.array([0]), self._shared(offer))
        return read_weights(
            offer,
            plan,
            request.weights,
            initial=lambda: initial_weights(self._model(offer)),
            before=lambda: self._weights_of(offer, request.round - 1),
        )

    def consent(self, fields: Mapping[str, Any]) -> Fields:
        """Signed mode: sign the one set of survivors."""
        return {"consent": self._guard.consent(run_in(fields), bytes_in(fields, "survivors"))}

    def reveal(self, fields: Mapping[str, Any]) -> Fields:
        """Open this member's shares of what the sum of the survivors needs."""
        return {"reveal": self._guard.reveal(run_in(fields), bytes_in(fields, "request"))}

    def _with_nonce(self, kind: str, fields: Mapping[str, Any], answer: Fields) -> Fields:
        """An answer of a masked run, with what the next plan must have. It is never kept with the answer."""
        if kind == "upload" and "plan" not in fields:
            return answer
        return answer | {NONCE: self._guard.nonce(self._offered if kind == "keys" else run_in(fields))}

    def _accepted(self, run: bytes) -> tuple[int, Offer]:
        """The offer of a run that this node has joined, if its policy still allows it."""
        from laconic.federation.node import refusals
        from laconic.federation.offer import read_offer

        data = self._folder.kept(run, "offer")
        if data is not None and not self._has_joined(run):
            raise Withheld("the log lacks this run, which the node has joined: rows are missing; restore the log")
        _, contract = self._guard.joined(run)
        if data is None:
            raise WireError(f"this node has not joined run {run.hex()[:8]}…")
        client, offer = read_offer(data)
        if offer.digest != contract.digest:
            raise Withheld("the kept offer is not the one that the log says this node has joined: restore both")
        if self._folder.kept(run, "policy") != self._policy.digest:  # it was changed since
            self._refuse_if(refusals.against_offer(self._policy, offer))
            self._folder.keep(run, "policy", self._policy.digest)
        return client, offer

    def _has_joined(self, run: bytes) -> bool:
        return any(row["what"] == JOINED for row in self._folder.log.rows(run))

    def _training(self, client: int, offer: Offer) -> NodeWork:
        """The node's work on its own records. They are loaded for it, and nowhere before."""
        if self._kept is None:
            work = self._begun(client, offer)
        else:
            work = self._kept.of(offer.digest, lambda: self._begun(client, offer))
        self._work = work
        return work

    def _begun(self, client: int, offer: Offer) -> NodeWork:
        from laconic.federation.node.training import NodeWork
        from laconic.federation.populations import Held

        with on_records():
            front_end = None
            if offer.front_end is not None:
                file = self._folder.file(offer.run, "front_end")
                front_end = kept_front_end(offer, file, self._front_end_module)
            held = Held.of(self._records(offer))
            _check_number(offer, len(held.records.targets), self._policy.max_records)
            _check_kind(offer, quantities=held.records.targets.is_floating_point())
            return NodeWork(
                offer,
                client,
                self._model(offer),
                held,
                front_end=front_end,
                test_seed_allowed=self._policy.allow_test_seed,
                **self._options | self._held_out(offer),
            )

    def _held_out(self, offer: Offer) -> dict[str, Any]:
        """Which fraction of its records this node measures on, and the secret by which units are chosen. They stay the
        same in a run, even if its settings change later: what was trained on is never measured on."""
        from laconic.options.sections import HeldOutOptions

        if not offer.scheme.evaluations.every:
            return {}
        kept = self._folder.kept(offer.run, "held-out")
        if kept is None:
            kept = repr(float(self._options.get("held_out", HeldOutOptions.held_out))).encode()
            self._folder.keep(offer.run, "held-out", kept)
        if not offer.scheme.sums_units or seed_for_tests() is not None:
            return {"held_out": float(kept)}
        secret = self._folder.kept(offer.run, "held-out-coins")
        if secret is None:
            secret = os.urandom(_SECRET_BYTES)
            self._folder.keep(offer.run, "held-out-coins", secret)
        return {"held_out": float(kept), "split_seed": int.from_bytes(secret, "little")}

    def _records_failed(self, offer: Offer, error: RecordsFailed) -> None:
        """Tell the owner, who may mend the records: what was made of the bad ones is not used again."""
        self._folder.note_records(error.detail)
        if self._kept is not None:
            self._kept.drop(offer.digest)

    def _within_lifetime(self, offer: Offer, planned: Cost, cost: Cost) -> None:
        """Refuse what an outsider would learn over all runs, if the run came to cost this much. What other servers
        were given is no server's business, so the reason stays here."""
        from laconic.federation.node import refusals
        from laconic.federation.node.lifetime import group_of, logged_costs

        if not self._policy.limits_lifetime:
            return
        try:
            before = logged_costs(self._folder.log.rows())
        except LaconicError as error:
            raise Withheld(str(error)) from None
        reasons = refusals.against_lifetime(self._policy, before, group_of(offer.run.hex(), planned.row()), cost)
        if reasons:
            raise Withheld("; ".join(reasons), past=offer.server.hex())

    def _check_size(self, fields: Mapping[str, Any]) -> None:
        size = sum(len(value) for value in fields.values() if isinstance(value, bytes | str))
        if size > self._policy.max_message_bytes:
            limit = self._policy.max_message_bytes
            raise WireError(f"a message of {size:,} bytes, more than max_message_bytes {limit:,}")

    def _keep_shared(self, offer: Offer, request: UploadRequest) -> None:
        """Keep what is told once, if it can be read; it may not change afterwards."""
        from laconic.federation.weights import read_shared

        known = self._folder.kept(offer.run, "shared")
        if request.shared and known is not None and known != request.shared:
            raise PrivacyError("the server has told this node another shared before")
        if request.shared and known is None:
            read_shared(request.shared, offer)
            self._folder.keep(offer.run, "shared", request.shared)

    def _shared(self, offer: Offer) -> dict[str, Tensor]:
        from laconic.federation.weights import read_shared

        return read_shared(self._folder.kept(offer.run, "shared") or b"", offer)

    def _weights_of(self, offer: Offer, round: int) -> Tensor:
        """The weights that this node had in the last round, to which only signs are added."""
        import torch

        kept = self._folder.kept(offer.run, "weights")
        if kept is None or int.from_bytes(kept[:4], "little") != round:
            raise WireError(f"this node lacks the weights of round {round}: send it all of them")
        return torch.from_numpy(np.frombuffer(kept[4:], dtype=np.float32).copy())

    def _refuse_if(self, reasons: list[str]) -> None:
        if reasons:
            raise PrivacyError("; ".join(reasons))

    def _note_refusal(
        self, kind: str, fields: Mapping[str, Any], reason: str, detail: str | None, past: str | None = None
    ) -> None:
        run = fields.get("run", self._offered)
        named = run if isinstance(run, bytes) and len(run) == RUN_BYTES else b""
        more = {} if detail is None else {"detail": one_line(detail, _LONGEST)}
        values = {"message": one_line(kind, _LONGEST_KIND), "reason": reason} | more
        if past is None:
            self._folder.log.add_refusal(named, **values)
        else:  # these are counted
            self._folder.log.add(REFUSED, named, **values, past=past)


def _check_kind(offer: Offer, *, quantities: bool) -> None:
    """Refuse classes where a quantity is learnt, and the other way round: another loss would be taken for them."""
    if quantities != (offer.num_classes == 1):
        own, theirs = ("quantities", "classes") if quantities else ("classes", "quantities")
        raise DataError(
            f"this node's targets are {own}, and the run learns {theirs}: write 1.0 for 1 in quantities, and declare"
            " classes in the policy (1 for quantities), and such offers are refused"
        )


def _check_number(offer: Offer, count: int, most: int | None) -> None:
    """Refuse to use more records than are declared, and a δ that allows one of them to be published.

    Only the owner is told: how many records a node has is none of a server's business.
    """
    if most is not None and count > most:
        raise DataError(f"this node has {count} records, and its policy declares max_records {most}")
    if offer.scheme.unit != CLIENT and offer.budget is not None and offer.budget.delta * count >= 1:
        raise DataError(
            f"δ {rounded_up(offer.budget.delta)} is one over this node's {count} records or more: it allows one of them"
            " to be published; declare max_records in the policy, and such offers are refused"
        )
