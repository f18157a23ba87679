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
from laconic.round import client_weight, downlink_encoding, noise_stream, received, uplink_encoding, weights_encoding
from laconic.streams import Streams
from laconic.train.engines.engine import Trained, Updates

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
        split_seed: int | None = None,
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
        self._work = ClientWork(self._view, split_seed=split_seed)
        self._num_records = self._work.population.size(client)  # those that it trains on
        self.size = self._view.model.size

    @property
    def streams(self) -> Streams:
        """The randomness of this process."""
        return self._view.streams

    def vector(self, plan: RoundPlan, weights: Tensor) -> Tensor:
        """What this node has to say in a round, encoded. It is neither clipped nor noised: that is the guard's.

        Of units inside the node it is the sum of their clipped parts, on the grid: no sum can be clipped afterwards.
        """
        streams = [noise_stream(self.streams, plan, self.client)]

        def encoded(trained: Trained) -> Updates:
            scheme = self.offer.scheme.at(plan.round)
            if scheme.sums_units:
                return Updates(trained.clients, trained.values, trained.num_records)
            codec = scheme.codec
            return Updates(trained.clients, codec.encode(trained.values, plan, streams), trained.num_records)

        device = self._view.device
        every = list(self._work.each(plan, np.array([self.client]), weights.to(device), encoded))
        return every[0].values[0].cpu()

    def code(self, plan: RoundPlan, weights: Tensor) -> Tensor:
        """What this node sends in the clear: floats."""
        device = self._view.device
        every = list(self._work.codes(plan, weights.to(device), np.array([self.client])))
        return every[0].values[0].cpu()

    def own_metrics(self, plan: RoundPlan, weights: Tensor) -> dict[str, float] | None:
        """The metrics on this node's own records, in an evaluation; None otherwise. They are not sent."""
        if not self.offer.scheme.evaluates(plan.round):
            return None
        start = received(self.offer.scheme.at(plan.round), plan, weights.to(self._view.device))
        cells, size = self._work.cells(self.client, start)
        return {"records": size} | self.offer.scheme.evaluations.metrics(cells.numpy())

    def message(self, plan: RoundPlan, code: Tensor) -> bytes:
        """The code in the clear, where nothing is masked."""
        scheme = self.offer.scheme.at(plan.round)
        weight = client_weight(scheme, self._num_records)
        message = wire.Message("code", plan.round, plan.attempt, self.client, weight, plan.fingerprint, code)
        return wire.encode(message, uplink_encoding(scheme, self._view.sizes(plan.round)[0], plan))


def round_plan(offer: Offer, round: int, attempt: int, cohort: np.ndarray, shared: dict[str, Tensor]) -> RoundPlan:
    """The public plan of a round, of which only cohort and attempt have to be told."""
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


def read_weights(
    offer: Offer, plan: RoundPlan, message: bytes, *, initial: Callable[[], Tensor], before: Callable[[], Tensor]
) -> Tensor:
    """All weights, from those that were told. `before` are the weights of the last round, if only signs were."""
    scheme = offer.scheme
    changing = scheme.at(plan.round).codec.changing(offer.size, plan)
    signs = downlink_encoding(scheme) == SIGNS and len(message) == wire.message_size(offer.size, SIGNS)
    count = offer.size if changing is None else len(changing)
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
    weights = initial().clone()
    weights[changing] = values
    return weights
