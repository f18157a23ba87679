"""The node: it answers a server's messages, as far as its owner's policy allows.

Every message may be handled by a process of its own: what must be remembered is in the node's folder, and is there
before the answer leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from laconic.errors import LaconicError, PrivacyError, WireError
from laconic.runtime.federation.entropy import TEST_SEED, seed_for_tests
from laconic.runtime.federation.masking import keep_terms, masking
from laconic.runtime.federation.node_folder import NodeFolder
from laconic.runtime.federation.node_log import CONSENTED, JOINED, REFUSED, REVEALED, UPLOADED
from laconic.runtime.federation.requests import Fields, UploadRequest, bytes_in, run_in
from laconic.runtime.federation.roster import beacon_of, read_roster
from laconic.secagg import SecAggClient, SumPlan
from laconic.secagg.keys import PublicKeys

if TYPE_CHECKING:
    from torch import Tensor, nn

    from laconic.data.population import Records
    from laconic.plan import RoundPlan
    from laconic.runtime.federation.offer import Offer
    from laconic.runtime.federation.policy import Policy
    from laconic.runtime.federation.training import LocalTraining


class Node:
    """One node. `model` makes the run's model with its initial weights, `records` loads the data that stay here."""

    def __init__(
        self,
        folder: NodeFolder,
        policy: Policy,
        *,
        model: Callable[[Offer], nn.Module],
        records: Callable[[Offer], Records],
        **options: Any,
    ) -> None:
        self._folder, self._policy = folder, policy
        self._model, self._records, self._options = model, records, options
        self._offered = b""

    def answer(self, kind: str, fields: Mapping[str, Any]) -> Fields:
        """The answer to one message. What is refused, or cannot be done, is an answer too: it says why."""
        steps = {"keys": self.join, "upload": self.upload, "consent": self.consent, "unmask": self.reveal}
        try:
            return steps[kind](fields)
        except LaconicError as error:
            self._note_refusal(kind, fields, str(error))
            return {REFUSED: str(error)}

    def join(self, fields: Mapping[str, Any]) -> Fields:
        """Once per run: accept the offer, and announce a key for the run."""
        from laconic.runtime.federation.offer import read_offer

        data = bytes_in(fields, "offer")
        client, offer = read_offer(data)
        self._offered = offer.run
        if seed_for_tests() is not None and not self._policy.allow_test_seed:
            raise PrivacyError(f"{TEST_SEED} is set on this node: its noise could be repeated; unset it")
        known = self._folder.kept(offer.run, "offer")
        if known is not None and known != data:
            raise PrivacyError("this node has accepted another offer of the same run")
        training = self._training(client, offer)
        training.check_initial()
        self._refuse_if(self._policy.against(offer, training.experiment))
        self._folder.keep(offer.run, "offer", data)
        keys = PublicKeys.signed(offer.run, client, self._folder.agreement(offer.run), self._folder.identity())
        self._folder.log.add(JOINED, offer.run, client=client, scheme=offer.scheme.name, server=offer.server.hex())
        return {"announcement": keys.announcement(offer.run)}

    def upload(self, fields: Mapping[str, Any]) -> Fields:
        """One round: train, protect, and send what the server may see."""
        request = UploadRequest.from_fields(fields)
        client, offer = self._accepted(request.run)
        self._keep_once(offer, client, request)
        if not offer.masked:
            training, plan, code = self._trained(client, offer, request, [client])
            return {"upload": self._logged(training, plan, training.message(plan, code))}
        with masking(self._folder, offer.run) as member:
            sum_plan = member.begin(request.plan)
            if (sum_plan.round, sum_plan.attempt) != (request.round, request.attempt):
                raise WireError("the plan of the sum is of another round than the message")
            training, plan, code = self._trained(client, offer, request, sum_plan.cohort)
            _check_sum(training, plan, sum_plan)
            self._folder.keep(offer.run, "plan", request.plan)
            return {"upload": self._logged(training, plan, member.upload(code.numpy()))}

    def _trained(
        self, client: int, offer: Offer, request: UploadRequest, cohort: Sequence[int]
    ) -> tuple[LocalTraining, RoundPlan, Tensor]:
        """The code of this round, if the policy allows the round."""
        training = self._training(client, offer)
        self._refuse_if(
            self._policy.against_round(
                offer,
                training.experiment,
                round=request.round,
                attempt=request.attempt,
                cohort=len(cohort),
                participations=self._folder.log.participations(offer.run) + 1,
            )
        )
        plan = training.plan(request.round, request.attempt, np.array(cohort), self._shared(offer))
        weights = training.weights(request.weights, plan, lambda: self._weights_of(offer, request.round - 1))
        code = training.code(plan, weights)
        if offer.scheme.downlink == "signs":
            self._folder.keep(offer.run, "weights", request.round.to_bytes(4, "little") + weights.numpy().tobytes())
        return training, plan, code

    def _logged(self, training: LocalTraining, plan: RoundPlan, upload: bytes) -> bytes:
        """The upload, once it is written down that it will be sent."""
        run, accountant = training.offer.run, training.experiment.accountant
        taken = self._folder.log.participations(run) + 1
        self._folder.log.add(
            UPLOADED,
            run,
            round=plan.round,
            attempt=plan.attempt,
            cohort=len(plan.cohort) if training.offer.masked else None,
            participations=taken,
            participant_epsilon=None if accountant is None else accountant.participant_epsilon(taken),
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
        plan = self._folder.kept(run, "plan")
        if not plan:
            raise WireError("this node has no round under way")
        with masking(self._folder, run) as member:
            current = member.begin(plan)
            answer = step(member, bytes_in(fields, asked))
        self._folder.log.add(what, run, round=current.round, attempt=current.attempt)
        return {name: answer}

    def _accepted(self, run: bytes) -> tuple[int, Offer]:
        from laconic.runtime.federation.offer import read_offer

        data = self._folder.kept(run, "offer")
        if data is None:
            raise WireError(f"this node has not joined run {run.hex()[:8]}…")
        return read_offer(data)

    def _training(self, client: int, offer: Offer) -> LocalTraining:
        from laconic.runtime.federation.training import LocalTraining

        return LocalTraining(offer, client, self._model(offer), self._records(offer), **self._options)

    def _keep_once(self, offer: Offer, client: int, request: UploadRequest) -> None:
        """Keep the roster and what is told once; neither may change afterwards."""
        if request.roster:
            entries = {entry.client: entry for entry in read_roster(request.roster)}
            own = self._folder.agreement(offer.run).public_key().public_bytes_raw()
            if client not in entries or entries[client].agreement != own:
                raise WireError("this node's own key is not in the roster")
            allowed = self._policy.identities
            strangers = [c for c, entry in entries.items() if allowed and entry.identity.hex() not in allowed]
            if strangers:
                raise PrivacyError(f"nodes {strangers} of the roster are not among the identities of the policy")
        for name, data in (("roster", request.roster), ("shared", request.shared)):
            known = self._folder.kept(offer.run, name)
            if data and known is not None and known != data:
                raise PrivacyError(f"the server has told this node another {name} before")
            if data and known is None:
                self._folder.keep(offer.run, name, data)
        if request.roster:
            keep_terms(self._folder, client, offer.terms(beacon_of(offer.run, request.roster)))

    def _shared(self, offer: Offer) -> dict[str, Tensor]:
        from laconic.runtime.federation.training import read_shared

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

    def _note_refusal(self, kind: str, fields: Mapping[str, Any], reason: str) -> None:
        run = fields.get("run", self._offered)
        self._folder.log.add(REFUSED, run if isinstance(run, bytes) else b"", message=kind, reason=reason)


def _check_sum(training: LocalTraining, plan: RoundPlan, told: SumPlan) -> None:
    """Refuse a sum that is not the scheme's, or whose noise the cohort cannot carry."""
    from laconic.round import uplink_encoding

    if not plan.viable:
        raise PrivacyError(f"a cohort of {len(plan.cohort)} nodes cannot carry the noise")
    wanted = uplink_encoding(training.offer.scheme, training.code_size, plan).bits
    if (told.bits, told.size) != (wanted, training.code_size):
        raise WireError(
            f"a sum of {told.size} values of {told.bits} bits; the scheme has {training.code_size} of {wanted}"
        )
