"""What a node's data has cost over all runs that it ever took part in, composed from the node's own log.

Each upload is logged with the Gaussian mechanism that it was part of. Gaussians compose exactly: uploads with noise
multipliers z_1, z_2, … are one with 1/z² = Σ 1/z_i², whichever server, scheme or run they were for. That is the ε
against a server that was in all of them. Against an outsider, sampling amplifies run by run; the runs' Rényi
divergences add up, or their privacy losses where all have the same mechanism.

All of it compares the node's data with none at all (zero-out). A run that counts a client's data as replaced is charged
for that, which is more.

There are three units of privacy: the node's data as a whole (`CLIENT`), all records of one patient (`PATIENT`), and
one record (`RECORD`). A run has no bound for more than what it protects. For what it protects it counts with its
releases, each a Gaussian, sampled by the coins of the owner or of a private step. For a part of that, a release counts
as a Gaussian that is not amplified and has half the noise multiplier: one record more or less can turn a code around,
by 2·S.

A patient of several nodes is in a round if any of them takes part. So a run counts with all its rounds then, as far as
this node can know of them, and not only with its own uploads.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from laconic.errors import ConfigError, RunFolderError
from laconic.guard.limits import Upload, charges
from laconic.guard.transcript import JOINED, UPLOADED
from laconic.privacy.accounting.accountant import RunAccountant, largest
from laconic.privacy.accounting.record_sampling import Occasional, RecordEvent
from laconic.privacy.accounting.releases import (
    CLIENT,
    EVALUATIONS,
    PARTS_OF,
    PATIENT,
    epsilon,
    renyi_divergences,
)
from laconic.privacy.accounting.sampling import REPLACE_ONE, Sampler
from laconic.privacy.accounting.tight import gaussian_epsilon

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from laconic.federation.offer import Offer


@dataclass(frozen=True)
class Cost:
    """A run, as far as it can cost a node: what its uploads give away, and how often.

    `noise_multiplier` is None for uploads without noise; of a run that begins with votes it is the smaller one of votes
    and training, for all uploads. Evaluations have one of their own; they are the rounds after the `votes` that are
    divisible by `evaluate_every`. `rounds` are what outsiders see, with or without this node: a run counts for them
    from the moment it was joined; counting only runs in which the node was drawn would undo what sampling is worth.
    `delta` is what the noise sampler's finite precision, and cohorts that show themselves by being too small, cost over
    the run.

    A run that protects records or patients has their `unit`. Then the noise multiplier is that of one release, in which
    one of them is with the probability `record_rate`, and a participation is `local_steps` releases. A patient has
    `owners` nodes at most.
    """

    noise_multiplier: float | None
    sampler: dict[str, Any]
    num_clients: int
    amplified: bool
    rounds: int
    delta: float
    participations: int = 0
    unit: str = CLIENT
    record_rate: float = 1.0
    local_steps: int = 1
    owners: int = 1
    charged: int = 0
    """How many rounds were released, as far as this node can know."""
    evaluation_noise_multiplier: float | None = None
    evaluate_every: int = 0
    votes: int = 0
    measured_rounds: int = 0
    measured: int = 0
    """How many of the rounds, and of the participations, are evaluations."""

    @classmethod
    def planned(cls, offer: Offer, spare_rounds: int = 0) -> Self:
        """The run as it is offered: as many rounds and participations as its own budget allows.

        Spare rounds are counted when a node asks whether it can afford the run, and afterwards only if they were used.
        """
        most = offer.rounds + spare_rounds
        mechanism, budget = offer.mechanism, offer.budget
        accountant = mechanism.accountant
        sampler = offer.sampler.to_dict()
        if accountant is None or budget is None or not accountant.main.covers_server:
            return cls(None, sampler, offer.num_clients, False, most, 0.0, most)
        rounds = largest(lambda count: budget.released_fits(accountant, count, count), most)
        cap = min(rounds, budget.max_participations or rounds)
        # What no proof covers is not amplified.
        amplified = accountant.amplified(offer.attempts) and not offer.sampler.caveat
        planned = cls(
            noise_multiplier=None,
            sampler=sampler,
            num_clients=offer.num_clients,
            amplified=amplified,
            rounds=rounds,
            delta=mechanism.delta_slack(),
            participations=largest(lambda count: budget.participant_fits(accountant, count), cap),
        )
        main = accountant.main
        if main.unit != CLIENT:
            return replace(
                planned,
                unit=main.unit,
                noise_multiplier=main.multiplier,
                record_rate=main.rate,
                local_steps=main.steps,
                owners=main.max_owners,
                charged=rounds,
            )
        visible = accountant.visible_delta(offer.attempts) if amplified else 0.0
        multipliers = {release.phase: release.multiplier for release in accountant.releases}
        other = multipliers.pop(EVALUATIONS, None)
        least = min(multipliers.values())
        planned = replace(planned, noise_multiplier=least, delta=planned.delta + visible)
        return planned if other is None else planned._with_evaluations(offer, other, other < least)

    def _with_evaluations(self, offer: Offer, noise_multiplier: float, dearer: bool) -> Self:
        """With the offer's evaluations. Of uploads and of spare rounds as many are evaluations as cost most."""
        rounds, uploads, beyond = self.rounds, self.participations, max(0, self.rounds - offer.rounds)
        evaluations = offer.scheme.num_evaluations(rounds - beyond) + (beyond if dearer else 0)
        return replace(
            self,
            evaluation_noise_multiplier=noise_multiplier,
            evaluate_every=offer.scheme.evaluations.every,
            votes=offer.scheme.codec.vote_rounds,
            measured_rounds=evaluations,
            measured=min(uploads, evaluations) if dearer else max(0, uploads - (rounds - evaluations)),
        )

    def row(self) -> dict[str, Any]:
        """For the log: all but what the log counts itself."""
        counted = ("participations", "measured", "charged")
        return {name: value for name, value in asdict(self).items() if name not in counted}

    def after(self, uploads: Sequence[Upload]) -> Self:
        """The run as it is planned, with these uploads: repeated attempts come on top of the planned rounds."""
        rounds = max(self.rounds + charges(uploads) - max((r for r, _ in uploads), default=0), charges(uploads))
        measured = [round for round, _ in uploads if self._evaluates(round)]
        again = sum(attempt for round, attempt in _last_attempts(uploads).items() if self._evaluates(round))
        return replace(
            self,
            rounds=max(rounds, len(uploads)),
            participations=len(uploads),
            charged=charges(uploads),
            measured_rounds=max(self.measured_rounds + again, len(measured)),
            measured=len(measured),
        )

    def _evaluates(self, round: int) -> bool:
        return self.evaluate_every > 0 and round % self.evaluate_every == 0 and round > self.votes

    @property
    def kinds(self) -> tuple[Self, ...]:
        """Training and evaluations as two runs that are composed, each with its own noise; δ counts once."""
        if not self.evaluate_every:
            return (self,)
        alone = replace(self, evaluate_every=0, measured=0, measured_rounds=0)
        trained, taken = self.rounds - self.measured_rounds, self.participations - self.measured
        return (
            replace(alone, rounds=max(trained, taken), participations=taken),
            replace(
                alone,
                noise_multiplier=self.evaluation_noise_multiplier,
                rounds=self.measured_rounds,
                participations=self.measured,
                delta=0.0,
            ),
        )

    def bounds(self, unit: str) -> bool:
        """Whether uploads of this run have any ε in the unit."""
        return self.noise_multiplier is not None and (unit == self.unit or unit in PARTS_OF[self.unit])

    def taken(self, unit: str) -> tuple[DpEvent, int]:
        """(what a server sees that knows when the node took part, how often)."""
        from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent

        assert self.noise_multiplier is not None and self.bounds(unit)
        if self.unit == unit == CLIENT:
            return GaussianDpEvent(self.noise_multiplier), self.participations
        if unit == self.unit:
            step = GaussianDpEvent(self.noise_multiplier)
            drawn = PoissonSampledDpEvent(self.record_rate, step) if self.record_rate < 1 else step
            times = self.participations if self.owners == 1 else max(self.charged, self.participations)
            return drawn, times * self.local_steps
        whole = self.noise_multiplier
        part = whole / 2 if self.unit == PATIENT else for_a_record(whole, self._sampler)
        return GaussianDpEvent(part), self.participations

    def released(self, unit: str) -> tuple[DpEvent | RecordEvent, int, bool]:
        """(what a round shows an outsider, how often, whether neighbours differ by a replaced client)."""
        event, count = self.taken(unit)
        sampler = self._sampler
        if not self.amplified or unit != self.unit:
            return event, count, False
        if unit != CLIENT:
            return Occasional(sampler.rate_in(self.num_clients), event, self.local_steps), self.rounds, False
        return sampler.released_event(event, self.num_clients), self.rounds, sampler.adjacency == REPLACE_ONE

    @property
    def _sampler(self) -> Sampler:
        return Sampler.from_dict(self.sampler)


@dataclass(frozen=True)
class Spent:
    """ε over several runs, against a server that was in all of them and against an outsider who saw all results."""

    participations: int
    participant_epsilon: float
    epsilon: float


def for_a_record(noise_multiplier: float, sampler: Sampler) -> float:
    """The noise multiplier of a client-level code, if neighbours differ in one record: codes then differ by 2·S."""
    return noise_multiplier if sampler.adjacency == REPLACE_ONE else noise_multiplier / 2


def accountant_of(offer: Offer, uploads: Sequence[Upload]) -> RunAccountant | None:
    """The accountant of a run, which knows of the rounds that were repeated, as far as a node can know."""
    accountant = offer.mechanism.accountant
    repeats = offer.scheme.repeats(_last_attempts(uploads))
    return None if accountant is None else accountant.with_repeats(repeats)


def taken_of(accountant: RunAccountant, uploads: Sequence[Upload]) -> int:
    """In how many rounds the unit was: in those of this node, or of any of several that may have it."""
    return len(uploads) if accountant.main.max_owners == 1 else max(charges(uploads), len(uploads))


def _last_attempts(uploads: Sequence[Upload]) -> dict[int, int]:
    """By round, the last attempt in which the node took part."""
    attempts: dict[int, int] = {}
    for round, attempt in uploads:
        attempts[round] = max(attempt, attempts.get(round, 0))
    return attempts


def spent(costs: Iterable[Cost], delta: float, unit: str = CLIENT) -> Spent:
    """All costs together, at this δ, for all the node's data, or for one patient or record of it."""
    joined = [kind for cost in costs for kind in cost.kinds]
    uploaded = [cost for cost in joined if cost.participations]
    participations = sum(cost.participations for cost in uploaded)
    left = delta - sum(cost.delta for cost in joined)
    if not uploaded:
        return Spent(0, 0.0, 0.0)
    if left <= 0 or any(not cost.bounds(unit) for cost in uploaded):
        return Spent(participations, math.inf, math.inf)
    participant = _participant_epsilon([cost.taken(unit) for cost in uploaded], left)
    released = _composed_epsilon([cost.released(unit) for cost in joined if cost.bounds(unit)], left)
    return Spent(participations, participant, min(participant, released))


def _participant_epsilon(taken: list[tuple[DpEvent, int]], delta: float) -> float:
    from dp_accounting import GaussianDpEvent

    if any(not isinstance(event, GaussianDpEvent) for event, _ in taken):
        return _composed_epsilon([(event, count, False) for event, count in taken], delta)
    inverse = sum(count / event.noise_multiplier**2 for event, count in taken)
    return gaussian_epsilon(1 / math.sqrt(inverse), delta)


def _composed_epsilon(releases: list[tuple[DpEvent | RecordEvent, int, bool]], delta: float) -> float:
    from dp_accounting.rdp import rdp_privacy_accountant as rdp

    counts: Counter[tuple[DpEvent | RecordEvent, bool]] = Counter()
    for event, count, replaced in releases:
        if count:
            counts[event, replaced] += count
    if len(counts) == 1:
        (((event, replaced), count),) = counts.items()
        return epsilon(event, count, delta, "rdp" if replaced else "pld", replace_one=replaced)
    orders = tuple(rdp.DEFAULT_RDP_ORDERS)
    total = [0.0] * len(orders)
    for (event, replaced), count in counts.items():
        divergences = renyi_divergences(event, orders, replaced)
        total = [known + count * more for known, more in zip(total, divergences, strict=True)]
    return float(rdp.compute_epsilon(orders, total, delta)[0])


Group = tuple[str, str]
"""A run, and what it was planned to cost, as JSON: one run can stand in a log with several plans."""


def group_of(run: str, cost: Mapping[str, Any]) -> Group:
    """Where the uploads of a run under this plan are counted."""
    return run, json.dumps(cost, sort_keys=True)


def logged_costs(rows: Iterable[Mapping[str, Any]]) -> dict[Group, Cost]:
    """What every run has cost that was joined, by the node's log. Each upload counts by the cost in its own row."""
    import laconic.schemes  # noqa: F401 - a sampler is known once its module is imported

    planned: dict[Group, Cost] = {}
    uploads: dict[Group, list[Upload]] = {}
    for row in rows:
        if row["what"] not in (JOINED, UPLOADED):
            continue
        try:
            group = group_of(str(row["run"]), row["cost"])
            planned[group] = Cost(**row["cost"])
            Sampler.from_dict(planned[group].sampler)
            if row["what"] == UPLOADED:
                uploads.setdefault(group, []).append((int(row["round"]), int(row["attempt"])))
        except (KeyError, TypeError, ValueError, AttributeError, ConfigError):
            raise RunFolderError(
                f"the log's row of run {str(row['run'])[:8]}… does not say what the run costs (an older version wrote"
                " it, or it is damaged): limits over a lifetime need a log of this version; keep the old folder and"
                " begin a new one, or drop the lifetime limits"
            ) from None
    return {group: cost.after(uploads.get(group, [])) for group, cost in planned.items()}
