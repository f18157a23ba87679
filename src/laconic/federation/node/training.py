"""A node's work in a round: put the weights together, train on its own records, encode, clip, add its noise share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from laconic.clients import wire
from laconic.clients.base import ModelView
from laconic.clients.work import ClientWork
from laconic.data.population import Records
from laconic.features.population import in_blocks
from laconic.federation.entropy import federation_streams
from laconic.federation.offer import Offer
from laconic.federation.populations import Held, OwnRecords
from laconic.packing import SIGNS
from laconic.plan import RoundPlan
from laconic.planning import plan_of_sum
from laconic.privacy.mechanism.record_noise import record_grid
from laconic.round import client_weight, downlink_encoding, received, uplink_encoding, weights_encoding
from laconic.streams import Streams
from laconic.train.local import LocalDPSGD

_ENGINE: dict[bool, dict[str, Any]] = {
    False: {"engine": "one-by-one", "workers": 1},
    True: {"engine": "per-record", "allow_large_delta": True},  # the node compares δ with its own records alone
}


class NodeWork:
    """One node's records and model, for one run: the same `ClientWork` as in a simulation, behind the offer."""

    def __init__(
        self,
        offer: Offer,
        client: int,
        model: nn.Module,
        held: Held,
        *,
        front_end: nn.Module | None = None,
        test_seed_allowed: bool = False,
        **options: Any,
    ) -> None:
        self.offer, self.client = offer, client
        records, patients = held
        if front_end is not None:  # once, here: what is kept in memory are the features
            records = Records(in_blocks(front_end, records.inputs, torch.device("cpu")), records.targets)
        self.experiment = offer.experiment(
            model, OwnRecords(offer.num_clients, records, patients), **_ENGINE[offer.scheme.record_level] | options
        )
        streams = federation_streams(offer.public_seed, test_seed_allowed=test_seed_allowed)
        self._view = ModelView(self.experiment, streams)
        self._work = ClientWork(self._view)
        self._num_records = self._work.population.size(client)  # those that it trains on
        self.size = self._view.model.size

    def code_size(self, plan: RoundPlan) -> int:
        """How many values this node sends in a round."""
        return self._view.sizes(plan.round)[0]

    def plan(self, round: int, attempt: int, cohort: np.ndarray, shared: dict[str, Tensor]) -> RoundPlan:
        """The public plan of a round, of which only cohort and attempt have to be told."""
        offer = self.offer
        return plan_of_sum(
            offer.scheme,
            offer.sampler,
            cohort,
            streams=Streams(offer.public_seed),
            round=round,
            attempt=attempt,
            num_clients=offer.num_clients,
            max_dropouts=offer.max_dropouts,
            max_colluders=offer.max_colluders,
            shared=shared,
        )

    def weights(self, message: bytes, plan: RoundPlan, before: Callable[[], Tensor]) -> Tensor:
        """All weights, from those that were told. `before` are the weights of the last round, if only signs were."""
        scheme = self.offer.scheme
        changing = scheme.at(plan.round).codec.changing(self.size, plan)
        signs = downlink_encoding(scheme) == SIGNS and len(message) == wire.message_size(self.size, SIGNS)
        count = self.size if changing is None else len(changing)
        values = wire.decode(
            message,
            fingerprint=plan.fingerprint,
            round=plan.round,
            attempt=plan.attempt,
            size=count,
            encoding=SIGNS if signs else weights_encoding(scheme),
        ).values
        if signs:
            assert scheme.rule.same_step is not None
            return before() + scheme.rule.same_step * values
        if changing is None:
            return values
        weights = self._view.model.initial.clone()
        weights[changing] = values
        return weights

    def code(self, plan: RoundPlan, weights: Tensor) -> Tensor:
        """What this node sends: floats, or residues for a masked sum."""
        device = self._view.device
        every = list(self._work.codes(plan, weights.to(device), np.array([self.client])))
        return every[0].values[0].cpu()

    def own_metrics(self, plan: RoundPlan, weights: Tensor) -> dict[str, float] | None:
        """In an evaluation: what the weights are worth on this node's own records. It leaves nobody; None otherwise."""
        if not self.offer.scheme.evaluates(plan.round):
            return None
        start = received(self.offer.scheme.at(plan.round), plan, weights.to(self._view.device))
        cells, size = self._work.cells(self.client, start)
        return {"records": size} | self.offer.scheme.evaluations.metrics(cells.numpy())

    def noise_of(self, plan: RoundPlan) -> dict[str, float] | None:
        """The noise in this node's code, in units of the code: the scale of its share, and the step of the grid.

        Shares of other nodes make up the promised noise only if these are the same for all of them. Of a scheme that
        protects records, they are those of one local step, in units of a gradient. None: no noise.
        """
        scheme, code_size = self.offer.scheme.at(plan.round), self.code_size(plan)
        if isinstance(scheme.train, LocalDPSGD):
            steps = record_grid(self.size, scheme.train.clip_norm, scheme.train.sigma)
            return {"share": steps.scale / steps.units, "step": 1 / steps.units}
        if not scheme.noise.private:
            return None
        grid = scheme.noise.grid(code_size=code_size, sensitivity=scheme.clip.sensitivity(code_size), plan=plan)
        assert grid is not None, "only integers are masked"
        return {"share": grid.share_scale(plan.noise_shares) / grid.units, "step": 1 / grid.units}

    def message(self, plan: RoundPlan, code: Tensor) -> bytes:
        """The code in the clear, where nothing is masked."""
        scheme = self.offer.scheme.at(plan.round)
        weight = client_weight(scheme, self._num_records)
        message = wire.Message("code", plan.round, plan.attempt, self.client, weight, plan.fingerprint, code)
        return wire.encode(message, uplink_encoding(scheme, self.code_size(plan), plan))
