"""The secure sums of a run: their terms and plans, which every runtime shares, and those of a simulation.

`simulated` adds the clients' integers in the open; `masked` sends every vector through the protocol, as bytes, in this
process. Both lose the same clients, open the same sums and abort the same rounds.

Clients of a masked run keep the keys that they have when the server is started again. A simulation that goes on makes
new keys, and its messages bring again what clients would still have. Those bytes were counted before, and are not
counted again: the ledger of a resumed run is that of an uninterrupted one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from laconic.errors import PrivacyError
from laconic.experiment.experiment import Experiment
from laconic.experiment.mechanism import uploading, vanishing_clients
from laconic.plan import RoundPlan
from laconic.round import uplink_encoding
from laconic.scheme import Scheme
from laconic.secagg.crypto.keys import ANNOUNCEMENT_BYTES, ENTRY_BYTES
from laconic.secagg.foretell import Vanishes, foretell
from laconic.secagg.session import InProcessFederation, InProcessRound
from laconic.secagg.terms import NO_OFFER, NONCE_BYTES, SumPlan, Terms
from laconic.streams import Streams


class KnownKeys:
    """Whose keys each client has: from before the run was resumed, and from this process."""

    def __init__(self) -> None:
        self._before: dict[int, set[int]] = defaultdict(set)
        self._now: dict[int, set[int]] = defaultdict(set)

    def recall(self, plan: SumPlan, uploading: Iterable[int]) -> None:
        """A round that was finished before."""
        _learn(self._before, plan, uploading)

    def counted_before(self, plan: SumPlan, uploading: Iterable[int]) -> dict[str, int]:
        """Bytes of a round, by kind, that a resumed simulation sends again; call it once for each round."""
        if not self._before:
            return {}
        announced = [client for client in plan.cohort if client in self._before and client not in self._now]
        passed_on = sum(
            len((plan.contacts(client) - self._now.get(client, set()) - {client}) & self._before.get(client, set()))
            for client in plan.cohort
        )
        _learn(self._now, plan, uploading)
        return {"keys_up": (ANNOUNCEMENT_BYTES + NONCE_BYTES) * len(announced), "keys_down": ENTRY_BYTES * passed_on}


def _learn(known: dict[int, set[int]], plan: SumPlan, uploading: Iterable[int]) -> None:
    """A client in the cohort has announced its keys; one that has uploaded has those of its contacts."""
    for client in plan.cohort:
        _ = known[client]
    for client in uploading:
        known[client] |= plan.contacts(client)


def sum_terms(scheme: Scheme, plan: RoundPlan, *, run: bytes, beacon: bytes, consistency: str = "plain") -> Terms:
    """The terms of a simulation's secure sums; any of its rounds' plans will do, they agree in what matters here."""
    return Terms(
        run=run,
        offer=NO_OFFER,
        fingerprint=scheme.fingerprint,
        beacon=beacon,
        consistency=consistency,
        max_dropouts=plan.max_dropouts,
        max_colluders=plan.max_colluders,
        least_cohort=plan.least_cohort,
    )


def sum_plan(terms: Terms, scheme: Scheme, plan: RoundPlan, size: int) -> SumPlan:
    """One attempt at the sum of a round that may be opened (`RoundPlan.viable`), for a model of so many weights.

    The clients' nonces are still to be put in.
    """
    scheme = scheme.at(plan.round)
    code_size = scheme.codec.code_size(size)
    if not plan.viable:
        raise PrivacyError(f"round {plan.round}: a cohort of {len(plan.cohort)} clients cannot carry the noise")
    return SumPlan(
        terms=terms,
        round=plan.round,
        attempt=plan.attempt,
        bits=uplink_encoding(scheme, code_size, plan).bits,
        size=code_size,
        cohort=tuple(plan.cohort.tolist()),
    )


@dataclass(frozen=True)
class Opened:
    """The sum of a round, or why there is none; and the bytes of a masked one, by kind."""

    total: Tensor | None
    reason: str = ""
    traffic: dict[str, int] = field(default_factory=dict)


class SecureSums:
    """The secure sums of one simulated run."""

    def __init__(self, experiment: Experiment, streams: Streams, size: int) -> None:
        self._experiment, self._streams, self._size = experiment, streams, size
        # From the seed, so that a resumed run has the same committees and loses the same rounds. Keys are always new.
        run, beacon = streams.key("secagg run"), (streams.key("beacon", half) for half in (0, 1))
        self.terms = sum_terms(
            experiment.scheme,
            experiment.typical_plan(),
            run=run.to_bytes(16, "little"),
            beacon=b"".join(half.to_bytes(16, "little") for half in beacon),
            consistency=experiment.consistency,
        )
        self._federations = dict[Terms, InProcessFederation]()
        self._known = defaultdict[Terms, KnownKeys](KnownKeys)
        self._finished: list[RoundPlan] = []

    def recall(self, finished: list[RoundPlan]) -> None:
        """The rounds that were finished before this process: their clients keep the keys that they have."""
        self._finished = finished

    def attempts(self, plan: RoundPlan) -> list[Attempt | None]:
        """One attempt for each sum of the round; None for a group that may not be opened."""
        return [self.attempt(one, plan) if one.viable else None for one in plan.sums]

    def attempt(self, plan: RoundPlan, whole: RoundPlan | None = None) -> Attempt:
        """An attempt at one sum: that of the round, or of one group of the `whole` round."""
        vanishing, clients = self._who_vanishes(plan, whole)
        masked = self._experiment.secagg == "masked"
        if not masked and not vanishing:
            return Attempt(plan.cohort)
        planned = self._sum_plan(plan)
        if not masked:
            return Attempt(clients, foretold=foretell(planned, vanishing)[1])
        for earlier in self._finished:
            for one in (one for one in earlier.sums if one.viable):
                done = self._sum_plan(one)
                self._known[done.terms].recall(done, self._who_vanishes(one, earlier)[1].tolist())
        self._finished = []
        again = self._known[planned.terms].counted_before(planned, clients.tolist())
        if planned.terms not in self._federations:
            self._federations[planned.terms] = InProcessFederation(planned.terms)
        federation = self._federations[planned.terms]
        return Attempt(clients, masked=federation.begin(planned, vanishing), counted_before=again)

    def _who_vanishes(self, plan: RoundPlan, whole: RoundPlan | None = None) -> tuple[dict[int, Vanishes], np.ndarray]:
        """Which clients vanish, and which reach their upload. It is drawn for the whole cohort, before groups."""
        e = self._experiment
        vanishing = vanishing_clients(whole or plan, self._streams, rate=e.dropout_rate, stage=e.dropout_stage)
        if whole is not None:
            members = set(plan.cohort.tolist())
            vanishing = {client: stage for client, stage in vanishing.items() if client in members}
        return vanishing, uploading(plan, vanishing)

    def _sum_plan(self, plan: RoundPlan) -> SumPlan:
        return sum_plan(self._terms_of(plan), self._experiment.scheme, plan, self._size)

    def _terms_of(self, plan: RoundPlan) -> Terms:
        """With group testing a round may have one sum, in which more clients may vanish or collude, or fewer clients.

        Sums under other terms have keys of their own, which are counted like all bytes.
        """
        if not self._experiment.group_testing:
            return self.terms
        return replace(
            self.terms,
            max_dropouts=plan.max_dropouts,
            max_colluders=plan.max_colluders,
            least_cohort=plan.slack + 1,
        )


@dataclass(frozen=True)
class Attempt:
    """One attempt at a secure sum. `clients` are those that come as far as their upload."""

    clients: np.ndarray
    foretold: str = ""
    """Simulated: why the round will not be opened; empty if it will."""
    masked: InProcessRound | None = None
    counted_before: dict[str, int] = field(default_factory=dict)
    """Masked: bytes that a resumed run sends again, and has counted."""

    def upload(self, clients: np.ndarray, residues: Tensor) -> None:
        """Masked: some clients' vectors go through the protocol."""
        assert self.masked is not None
        for client, vector in zip(clients.tolist(), residues.cpu().numpy(), strict=True):
            self.masked.upload(client, vector)

    def open(self, total: Tensor) -> Opened:
        """The sum. `total` is what a simulated one added up itself; a masked one opens its own, of the same type."""
        if self.masked is None:
            return Opened(None if self.foretold else total, self.foretold)
        outcome = self.masked.finish()
        traffic = {kind: size - self.counted_before.get(kind, 0) for kind, size in asdict(outcome.traffic).items()}
        if outcome.total is None:
            return Opened(None, outcome.reason, traffic)
        opened = torch.from_numpy(outcome.total.astype(np.int64)).to(total.device)
        return Opened(opened, "", traffic)
