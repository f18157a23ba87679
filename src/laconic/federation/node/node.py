"""The node: it answers a server's messages, as far as its owner's policy allows.

The process may end at any instant: what must be remembered is in the node's folder, and is there before the answer
leaves. An offer is checked in this order: signature, server, sizes, policy, cost, what its records mean, front end,
model. Records are
read in a round, and nowhere before. If they fail, that has one fixed text, since data may have decided it; the node's
own log has the rest, and the node takes part in nothing more until its owner has looked. So a server that varies its
offers to find out about the records learns one bit at most.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from laconic.errors import LaconicError, PrivacyError, RunFolderError, WireError, one_line
from laconic.federation.agreement import UNCHECKED, check_meaning
from laconic.federation.entropy import refuse_test_seed, seed_for_tests
from laconic.federation.front_ends import kept_front_end, own_front_end
from laconic.federation.node.last_answers import LastAnswers
from laconic.federation.node.masking import keep_terms, masking
from laconic.federation.node.withheld import WITHHELD, RecordsFailed, Withheld, on_own_keys, on_records
from laconic.federation.requests import NONCE, Fields, UploadRequest, bytes_in, run_in
from laconic.figures import rounded_up
from laconic.guard.folder import NodeFolder
from laconic.guard.roster import beacon_of, check_listed, check_roster, read_roster
from laconic.guard.transcript import CONSENTED, JOINED, REFUSED, REVEALED, UPLOADED
from laconic.secagg import Nonces, SecAggClient, SumPlan
from laconic.secagg.crypto.keys import PublicKeys
from laconic.secagg.nonces import StaleNonce
from laconic.secagg.terms import RUN_BYTES

if TYPE_CHECKING:
    from torch import Tensor, nn

    from laconic.data.meaning import Meaning
    from laconic.data.population import Records
    from laconic.federation.node.lifetime import Cost
    from laconic.federation.node.serve.kept_work import KeptWork
    from laconic.federation.node.training import NodeWork
    from laconic.federation.offer import Offer
    from laconic.guard.policy import Policy
    from laconic.plan import RoundPlan

_LONGEST, _LONGEST_KIND = 2000, 30
"""Characters of a reason, and of a kind of message that is none."""


class Node:
    """One node. `model` makes the run's model with its initial weights, `records` loads the data that stay here.

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
        records: Callable[[Offer], Records],
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
        self._nonces = nonces if nonces is not None else Nonces()
        self._model, self._records, self._options = model, records, options
        self._offered = b""

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
            try:
                if kind not in steps:
                    raise WireError("this node answers laconic's messages, and no others")
                refuse_test_seed(self._policy.allow_test_seed)
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
                if isinstance(error, RunFolderError):  # it names files of the owner's, and says what is in them
                    told, detail = WITHHELD, str(error)
                if isinstance(error, RecordsFailed):
                    self._records_failed(fields, error)
            except Exception as error:  # nothing that a server sends may tell it more than this
                told, detail = WITHHELD, f"{type(error).__name__}: {error}"
            self._note_refusal(kind, fields, told, detail)
            return {REFUSED: told}

    def join(self, fields: Mapping[str, Any]) -> Fields:
        """Once per run: accept the offer, and announce a key for the run."""
        from laconic.federation.node import refusals
        from laconic.federation.node.lifetime import Cost
        from laconic.federation.offer import open_offer, verify_offer
        from laconic.federation.weights import check_model

        data = bytes_in(fields, "offer")
        signed = verify_offer(data)
        self._refuse_if(refusals.against_server(self._policy, signed.server))
        client, offer = signed.client, open_offer(signed)
        self._offered = offer.run
        self._refuse_if(refusals.against_sizes(self._policy, offer))
        known = self._folder.kept(offer.run, "offer")
        if known is not None and known != data:
            raise PrivacyError("this node has accepted another offer of the same run")
        self._refuse_if(refusals.against_offer(self._policy, offer))
        planned = Cost.planned(offer)
        self._within_lifetime(offer.run, Cost.planned(offer, offer.spare_rounds))
        check_meaning(offer, self._meaning)
        front_end = None if known is not None else own_front_end(offer, self._front_end, self._front_end_module)
        check_model(self._model(offer), offer)
        if known is None:
            if front_end is not None:
                self._folder.keep(offer.run, "front_end", front_end.to_bytes())
            self._folder.keep(offer.run, "cost", json.dumps(planned.row()).encode())
            self._folder.keep(offer.run, "policy", self._policy.digest)
            self._folder.log.add(
                JOINED,
                offer.run,
                client=client,
                scheme=offer.scheme.name,
                server=offer.server.hex(),
                spare_rounds=offer.spare_rounds,
                cost=planned.row(),
            )
            self._folder.keep(offer.run, "offer", data)
        return {"announcement": self._keys(client, offer).announcement(offer.run)}

    def ready(self, fields: Mapping[str, Any]) -> Fields:
        """Before a round, where the server does not know this node's nonce, which comes with every answer."""
        self._accepted(run_in(fields))
        return {}

    def upload(self, fields: Mapping[str, Any]) -> Fields:
        """One round: train, protect, and send what the server may see."""
        request = UploadRequest.from_fields(fields)
        client, offer = self._accepted(request.run)
        self._keep_once(offer, client, request)
        if not offer.masked:
            training, plan, code, cost, own = self._trained(client, offer, request, [client])
            return {"upload": self._logged(training, plan, cost, training.message(plan, code), own)}
        with masking(self._folder, offer.run, self._nonces) as member:
            sum_plan = member.begin(request.plan)
            if (sum_plan.round, sum_plan.attempt) != (request.round, request.attempt):
                raise WireError("the plan of the sum is of another round than the message")
            if sum_plan.cohort[-1] >= offer.num_clients:
                raise WireError(f"a cohort with client {sum_plan.cohort[-1]}, but the offer is to {offer.num_clients}")
            training, plan, code, cost, own = self._trained(client, offer, request, sum_plan.cohort, sum_plan)
            self._folder.keep(offer.run, "plan", request.plan)
            return {"upload": self._logged(training, plan, cost, member.upload(code.numpy()), own)}

    def _trained(
        self,
        client: int,
        offer: Offer,
        request: UploadRequest,
        cohort: Sequence[int],
        sum_plan: SumPlan | None = None,
    ) -> tuple[NodeWork, RoundPlan, Tensor, Cost, dict[str, float] | None]:
        """The code of this round, if the policy allows the round; what the run has cost with it; and, in an evaluation,
        the node's own metrics, which stay here."""
        from laconic.federation.node import refusals
        from laconic.federation.node.lifetime import Cost

        uploads = [*self._folder.log.uploads(offer.run), (request.round, request.attempt)]
        self._refuse_if(refusals.against_round(self._policy, offer, uploads=uploads, cohort=len(cohort)))
        cost = Cost(**json.loads(self._folder.kept(offer.run, "cost") or b"{}"))
        self._within_lifetime(offer.run, cost.after(uploads))
        training = self._training(client, offer)
        plan = training.plan(request.round, request.attempt, np.array(cohort), self._shared(offer))
        if sum_plan is not None:
            _check_sum(training, plan, sum_plan)
        weights = training.weights(request.weights, plan, lambda: self._weights_of(offer, request.round - 1))
        with on_records():
            code = training.code(plan, weights)
            own = training.own_metrics(plan, weights)
        if offer.scheme.downlink == "signs" or self._keep_weights:
            self._folder.keep(offer.run, "weights", request.round.to_bytes(4, "little") + weights.numpy().tobytes())
        return training, plan, code, cost, own

    def _logged(
        self, training: NodeWork, plan: RoundPlan, cost: Cost, upload: bytes, own: dict[str, float] | None
    ) -> bytes:
        """The upload, once it is written down that it will be sent, with which noise, and what it costs."""
        from laconic.federation.node.lifetime import accountant_of

        run = training.offer.run
        accountant = accountant_of(training.offer, [*self._folder.log.uploads(run), (plan.round, plan.attempt)])
        taken = self._folder.log.participations(run) + 1
        self._folder.log.add(
            UPLOADED,
            run,
            round=plan.round,
            attempt=plan.attempt,
            cohort=len(plan.cohort) if training.offer.masked else None,
            participations=taken,
            unit=cost.unit,
            participant_epsilon=None if accountant is None else accountant.participant_epsilon(taken),
            noise=training.noise_of(plan),
            cost=cost.row(),
            **({} if own is None else {"own_metrics": own}),
            **({"test_seed": True} if seed_for_tests() is not None else {}),
        )
        return upload

    def consent(self, fields: Mapping[str, Any]) -> Fields:
        """Signed mode: sign the one set of survivors."""
        return self._as_member(fields, "survivors", SecAggClient.consent, "consent", CONSENTED)

    def reveal(self, fields: Mapping[str, Any]) -> Fields:
        """Open this member's shares of what the sum of the survivors needs."""
        return self._as_member(fields, "request", SecAggClient.reveal, "reveal", REVEALED)

    def _as_member(
        self, fields: Mapping[str, Any], asked: str, step: Callable[[SecAggClient, bytes], bytes], name: str, what: str
    ) -> Fields:
        run = run_in(fields)
        if self._folder.kept(run, "policy") != self._policy.digest:  # else the offer need not be read, nor torch loaded
            self._accepted(run)
        plan = self._folder.kept(run, "plan")
        if not plan:
            raise WireError("this node has no round under way")
        with masking(self._folder, run, self._nonces) as member:
            current = member.begin(plan)
            answer = step(member, bytes_in(fields, asked))
        self._folder.log.add(what, run, round=current.round, attempt=current.attempt)
        return {name: answer}

    def _with_nonce(self, kind: str, fields: Mapping[str, Any], answer: Fields) -> Fields:
        """An answer of a masked run, with what the next plan must have. It is never kept with the answer."""
        if kind == "upload" and "plan" not in fields:
            return answer
        return answer | {NONCE: self._nonces.current(self._offered if kind == "keys" else run_in(fields))}

    def _accepted(self, run: bytes) -> tuple[int, Offer]:
        """The offer of a run that this node has joined, if its policy still allows it."""
        from laconic.federation.node import refusals
        from laconic.federation.offer import read_offer

        data = self._folder.kept(run, "offer")
        if data is None:
            raise WireError(f"this node has not joined run {run.hex()[:8]}…")
        if not any(row["what"] == JOINED for row in self._folder.log.rows(run)):
            raise Withheld("the log lacks this run, which the node has joined: rows are missing; restore the log")
        client, offer = read_offer(data)
        if self._folder.kept(run, "policy") != self._policy.digest:  # it was changed since
            for reasons in (
                refusals.against_server(self._policy, offer.server),
                refusals.against_sizes(self._policy, offer),
                refusals.against_offer(self._policy, offer),
            ):
                self._refuse_if(reasons)
            roster = self._folder.kept(run, "roster")
            if roster is not None:
                check_listed(read_roster(roster), self._policy.identities)
            self._folder.keep(run, "policy", self._policy.digest)
        return client, offer

    def _training(self, client: int, offer: Offer) -> NodeWork:
        """The node's work on its own records. They are loaded for it, and nowhere before."""
        if self._kept is None:
            return self._begun(client, offer)
        return self._kept.of(offer.run, lambda: self._begun(client, offer))

    def _begun(self, client: int, offer: Offer) -> NodeWork:
        from laconic.federation.node.training import NodeWork

        check_meaning(offer, self._meaning)
        front_end = None
        if offer.front_end is not None:
            file = self._folder.file(offer.run, "front_end")
            front_end = kept_front_end(offer, file, self._front_end_module)
        model = self._model(offer)
        with on_records():
            records = self._records(offer)
            _check_delta(offer, len(records.targets))
            return NodeWork(
                offer,
                client,
                model,
                records,
                front_end=front_end,
                test_seed_allowed=self._policy.allow_test_seed,
                **self._options | self._held_out(offer),
            )

    def _held_out(self, offer: Offer) -> dict[str, float]:
        """Which fraction of its records this node measures on. It stays the same in a run, whatever its settings say
        later: what was trained on is never measured on."""
        from laconic.options.sections import HeldOutOptions

        if not offer.scheme.evaluations.every:
            return {}
        kept = self._folder.kept(offer.run, "held-out")
        if kept is None:
            kept = repr(float(self._options.get("held_out", HeldOutOptions.held_out))).encode()
            self._folder.keep(offer.run, "held-out", kept)
        return {"held_out": float(kept)}

    def _records_failed(self, fields: Mapping[str, Any], error: RecordsFailed) -> None:
        """Wait for the owner, who may mend the records: what was made of the bad ones is not used again."""
        self._folder.call_for_attention(error.detail)
        if self._kept is not None:
            self._kept.drop(run_in(fields))

    def _keys(self, client: int, offer: Offer) -> PublicKeys:
        with on_own_keys():
            agreement, identity = self._folder.agreement(offer.run), self._folder.identity()
        return PublicKeys.signed(offer.context, client, agreement, identity)

    def _within_lifetime(self, run: bytes, cost: Cost) -> None:
        """Refuse what the limits over all runs do not allow, if the run came to cost this much. What other servers were
        given is no server's business, so the reason stays here."""
        from laconic.federation.node import refusals
        from laconic.federation.node.lifetime import logged_costs

        if not self._policy.limits_lifetime:
            return
        try:
            before = logged_costs(self._folder.log.rows())
        except LaconicError as error:
            raise Withheld(str(error)) from None
        reasons = refusals.against_lifetime(self._policy, before, run.hex(), cost)
        if reasons:
            raise Withheld("; ".join(reasons))

    def _check_size(self, fields: Mapping[str, Any]) -> None:
        size = sum(len(value) for value in fields.values() if isinstance(value, bytes | str))
        if size > self._policy.max_message_bytes:
            limit = self._policy.max_message_bytes
            raise WireError(f"a message of {size:,} bytes, more than max_message_bytes {limit:,}")

    def _keep_once(self, offer: Offer, client: int, request: UploadRequest) -> None:
        """Keep the roster and what is told once; neither may change afterwards."""
        if request.roster:
            own, listed = self._keys(client, offer), self._policy.identities
            check_roster(request.roster, offer.context, offer.num_clients, own, listed)
        for name, data in (("roster", request.roster), ("shared", request.shared)):
            known = self._folder.kept(offer.run, name)
            if data and known is not None and known != data:
                raise PrivacyError(f"the server has told this node another {name} before")
            if data and known is None:
                self._folder.keep(offer.run, name, data)
        if request.roster:
            keep_terms(self._folder, client, offer.terms(beacon_of(offer.run, request.roster)))

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

    def _note_refusal(self, kind: str, fields: Mapping[str, Any], reason: str, detail: str | None) -> None:
        run = fields.get("run", self._offered)
        named = run if isinstance(run, bytes) and len(run) == RUN_BYTES else b""
        more = {} if detail is None else {"detail": one_line(detail, _LONGEST)}
        self._folder.log.add_refusal(named, message=one_line(kind, _LONGEST_KIND), reason=reason, **more)


def _check_delta(offer: Offer, num_records: int) -> None:
    """Refuse a δ that allows one of this node's records to be published. Only the node knows how many it has."""
    if offer.scheme.record_level and offer.budget is not None and offer.budget.delta * num_records >= 1:
        raise PrivacyError(
            f"δ {rounded_up(offer.budget.delta)} is one over this node's {num_records} records or more: it allows one"
            " of them to be published; lower max_delta in the policy"
        )


def _check_sum(training: NodeWork, plan: RoundPlan, told: SumPlan) -> None:
    """Refuse a sum that is not the scheme's, or whose noise the cohort cannot carry."""
    from laconic.round import uplink_encoding

    if not plan.viable:
        raise PrivacyError(f"a cohort of {len(plan.cohort)} nodes cannot carry the noise")
    size = training.code_size(plan)
    wanted = uplink_encoding(training.offer.scheme.at(plan.round), size, plan).bits
    if (told.bits, told.size) != (wanted, size):
        raise WireError(f"a sum of {told.size} values of {told.bits} bits; the scheme has {size} of {wanted}")
