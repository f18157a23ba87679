"""What a node's data has cost over all runs that it ever took part in, composed from the node's own log.

Each upload is logged with the Gaussian mechanism that it was part of. Gaussians compose exactly: uploads with noise
multipliers z_1, z_2, … are one with 1/z² = Σ 1/z_i², whichever server, scheme or run they were for. That is the ε
against a server that was in all of them. Against an outsider, sampling amplifies run by run; the runs' Rényi
divergences add up, or their privacy losses where all have the same mechanism.

All of it compares the node's data with none at all (zero-out). A run that counts a client's data as replaced is charged
for that, which is more.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from laconic.errors import ConfigError, RunFolderError
from laconic.federation.node.log import JOINED, UPLOADED
from laconic.privacy.accounting.accountant import Accountant, RunAccountant, epsilon, largest, renyi_divergences
from laconic.privacy.accounting.sampling import REPLACE_ONE, Sampler
from laconic.privacy.accounting.tight import gaussian_epsilon

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from laconic.federation.offer import Offer


Upload = tuple[int, int]
"""Round and attempt."""


@dataclass(frozen=True)
class Cost:
    """A run, as far as it can cost a node: what its uploads give away, and how often.

    `noise_multiplier` is None for uploads without noise; of a run that begins with votes it is the smaller one of votes
    and training, for all uploads. Evaluations have one of their own; they are the rounds after the `votes` that are
    divisible by `evaluate_every`. `rounds` are what outsiders see, with or without this node: a run counts for them
    from the moment it was joined; counting only runs in which the node was drawn would undo what sampling is worth.
    `delta` is what the noise sampler's finite precision, and cohorts that show themselves by being too small, cost over
    the run.
    """

    noise_multiplier: float | None
    sampler: dict[str, Any]
    num_clients: int
    amplified: bool
    rounds: int
    delta: float
    participations: int = 0
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
        if not isinstance(accountant, Accountant) or budget is None:
            return cls(None, sampler, offer.num_clients, False, most, 0.0, most)
        rounds = largest(lambda count: budget.released_fits(accountant, count, count), most)
        cap = min(rounds, budget.max_participations or rounds)
        # What no proof covers is not amplified.
        amplified = accountant.amplified(offer.rounds) and not offer.sampler.caveat
        participations = largest(lambda count: budget.participant_fits(accountant, count), cap)
        least, other = accountant.least_noise_multiplier, accountant.evaluation_noise_multiplier
        # Of the uploads, and of spare rounds, as many are evaluations as cost most.
        dearer, beyond = other is not None and other < least, max(0, rounds - offer.rounds)
        evaluations = offer.scheme.num_evaluations(rounds - beyond) + (beyond if dearer else 0)
        measured = min(participations, evaluations) if dearer else max(0, participations - (rounds - evaluations))
        return cls(
            noise_multiplier=least,
            sampler=sampler,
            num_clients=offer.num_clients,
            amplified=amplified,
            rounds=rounds,
            delta=mechanism.delta_slack() + (accountant.visible_delta(offer.rounds) if amplified else 0.0),
            participations=participations,
            evaluation_noise_multiplier=other,
            evaluate_every=offer.scheme.evaluations.every,
            votes=offer.scheme.codec.vote_rounds,
            measured_rounds=evaluations,
            measured=measured,
        )

    def row(self) -> dict[str, Any]:
        """For the log: all but what the log counts itself."""
        return {name: value for name, value in asdict(self).items() if name not in ("participations", "measured")}

    def after(self, uploads: Sequence[Upload]) -> Self:
        """The run as it is planned, with these uploads: repeated attempts come on top of the planned rounds."""
        rounds = max(self.rounds + charges(uploads) - max((r for r, _ in uploads), default=0), charges(uploads))
        measured = [round for round, _ in uploads if self._evaluates(round)]
        again = sum(attempt for round, attempt in _last_attempts(uploads).items() if self._evaluates(round))
        return replace(
            self,
            rounds=max(rounds, len(uploads)),
            participations=len(uploads),
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

    @property
    def gaussian(self) -> DpEvent:
        from dp_accounting import GaussianDpEvent

        return GaussianDpEvent(self.noise_multiplier)

    @property
    def released(self) -> tuple[DpEvent, int, bool]:
        """(what a round shows an outsider, how often, whether neighbours differ by a replaced client)."""
        sampler = Sampler.from_dict(self.sampler)
        if not self.amplified:
            return self.gaussian, self.participations, False
        return sampler.released_event(self.gaussian, self.num_clients), self.rounds, sampler.adjacency == REPLACE_ONE


@dataclass(frozen=True)
class Spent:
    """ε over several runs, against a server that was in all of them and against an outsider who saw all results."""

    participations: int
    participant_epsilon: float
    epsilon: float


def charges(uploads: Sequence[Upload]) -> int:
    """How many releases a server must have charged, as far as a node with these uploads can know.

    One for each round up to the last, and one for each attempt before the one that the node took part in.
    """
    attempts = _last_attempts(uploads)
    return max(attempts, default=0) + sum(attempts.values())


def accountant_of(offer: Offer, uploads: Sequence[Upload]) -> RunAccountant | None:
    """The accountant of a run, which knows of the rounds that were repeated, as far as a node can know."""
    accountant = offer.mechanism.accountant
    if not isinstance(accountant, Accountant):
        return accountant
    return accountant.with_repeats(offer.scheme.repeats(_last_attempts(uploads)))


def _last_attempts(uploads: Sequence[Upload]) -> dict[int, int]:
    """By round, the last attempt in which the node took part."""
    attempts: dict[int, int] = {}
    for round, attempt in uploads:
        attempts[round] = max(attempt, attempts.get(round, 0))
    return attempts


def spent(costs: Iterable[Cost], delta: float) -> Spent:
    """All costs together, at this δ."""
    joined = [kind for cost in costs for kind in cost.kinds]
    uploaded = [cost for cost in joined if cost.participations]
    participations = sum(cost.participations for cost in uploaded)
    left = delta - sum(cost.delta for cost in joined)
    if not uploaded:
        return Spent(0, 0.0, 0.0)
    if left <= 0 or any(cost.noise_multiplier is None for cost in uploaded):
        return Spent(participations, math.inf, math.inf)
    inverse = sum(cost.participations / cost.noise_multiplier**2 for cost in uploaded if cost.noise_multiplier)
    participant = gaussian_epsilon(1 / math.sqrt(inverse), left)
    private = [cost for cost in joined if cost.noise_multiplier is not None]
    return Spent(participations, participant, min(participant, _released_epsilon(private, left)))


def _released_epsilon(costs: list[Cost], delta: float) -> float:
    from dp_accounting.rdp import rdp_privacy_accountant as rdp

    counts: Counter[tuple[DpEvent, bool]] = Counter()
    for cost in costs:
        event, count, replaced = cost.released
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


def logged_costs(rows: Iterable[Mapping[str, Any]]) -> dict[str, Cost]:
    """By run, what a node's log says that it has cost: every run that was joined, with its uploads."""
    import laconic.schemes  # noqa: F401 - a sampler is known once its module is imported

    planned: dict[str, Cost] = {}
    uploads: dict[str, list[Upload]] = {}
    for row in rows:
        if row["what"] not in (JOINED, UPLOADED):
            continue
        try:
            run = str(row["run"])
            planned[run] = Cost(**row["cost"])
            Sampler.from_dict(planned[run].sampler)
            if row["what"] == UPLOADED:
                uploads.setdefault(run, []).append((int(row["round"]), int(row["attempt"])))
        except (KeyError, TypeError, ValueError, AttributeError, ConfigError):
            raise RunFolderError(
                f"the log's row of run {str(row['run'])[:8]}… does not say what the run costs (an older version wrote"
                " it, or it is damaged): limits over a lifetime need a log of this version; keep the old folder and"
                " begin a new one, or drop the lifetime limits"
            ) from None
    return {run: cost.after(uploads.get(run, [])) for run, cost in planned.items()}
