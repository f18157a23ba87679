"""What a node's data has cost over all runs that it ever took part in, composed from the node's own log.

Each upload is logged with the Gaussian mechanism that it was part of. Gaussians compose exactly: uploads with noise
multipliers z_1, z_2, … are one with 1/z² = Σ 1/z_i², whichever server, scheme or run they were for. That is the ε
against a server that was in all of them. Against an outsider, sampling amplifies run by run; the runs' Rényi
divergences add up, or their privacy losses where all have the same mechanism.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from laconic.errors import ConfigError, RunFolderError
from laconic.privacy.accountant import epsilon, largest, renyi_divergences
from laconic.privacy.sampling import REPLACE_ONE, Sampler
from laconic.privacy.tight import gaussian_epsilon
from laconic.runtime.federation.node_log import UPLOADED

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from laconic.runtime.federation.offer import Offer


@dataclass(frozen=True)
class Cost:
    """A run, as far as it can cost a node: what its uploads give away, and how often.

    `noise_multiplier` is None for uploads without noise. `rounds` are what outsiders see, with or without this node.
    `delta` is what the noise sampler's finite precision costs over the run.
    """

    noise_multiplier: float | None
    sampler: dict[str, Any]
    num_clients: int
    amplified: bool
    rounds: int
    delta: float
    participations: int = 0

    @classmethod
    def planned(cls, offer: Offer) -> Self:
        """The run as it is offered: as many rounds and participations as its own budget allows."""
        mechanism, budget = offer.mechanism, offer.budget
        accountant = mechanism.accountant
        sampler = offer.sampler.to_dict()
        if accountant is None or budget is None:
            return cls(None, sampler, offer.num_clients, False, offer.rounds, 0.0, offer.rounds)
        rounds = largest(lambda count: budget.released_fits(accountant, count, count), offer.rounds)
        cap = min(rounds, budget.max_participations or rounds)
        event = offer.scheme.noise.event(
            sensitivity_scale=offer.sampler.sensitivity_scale,
            sensitivity=mechanism.sensitivity,
            largest_cohort=offer.sampler.largest_cohort(offer.num_clients),
        )
        return cls(
            noise_multiplier=float(event.noise_multiplier),
            sampler=sampler,
            num_clients=offer.num_clients,
            # What no proof covers is not amplified.
            amplified=accountant.amplified(offer.rounds) and not offer.sampler.caveat,
            rounds=rounds,
            delta=mechanism.delta_slack(),
            participations=largest(lambda count: budget.participant_fits(accountant, count), cap),
        )

    def row(self) -> dict[str, Any]:
        """For the log: all but what the log counts itself."""
        return {name: value for name, value in asdict(self).items() if name != "participations"}

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


def spent(costs: Iterable[Cost], delta: float) -> Spent:
    """All costs together, at this δ."""
    some = [cost for cost in costs if cost.participations]
    participations = sum(cost.participations for cost in some)
    left = delta - sum(cost.delta for cost in some)
    if not some:
        return Spent(0, 0.0, 0.0)
    if left <= 0 or any(cost.noise_multiplier is None for cost in some):
        return Spent(participations, math.inf, math.inf)
    inverse = sum(cost.participations / cost.noise_multiplier**2 for cost in some if cost.noise_multiplier)
    participant = gaussian_epsilon(1 / math.sqrt(inverse), left)
    # As in a single run, a hundredth of δ is kept for cohorts that show themselves by being too small.
    return Spent(participations, participant, min(participant, _released_epsilon(some, 0.99 * left)))


def _released_epsilon(costs: list[Cost], delta: float) -> float:
    from dp_accounting.rdp import rdp_privacy_accountant as rdp

    counts: Counter[tuple[DpEvent, bool]] = Counter()
    for cost in costs:
        event, count, replaced = cost.released
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
    """By run, what the uploads in a node's log have cost."""
    import laconic.schemes  # noqa: F401 - a sampler is known once its module is imported

    costs: dict[str, Cost] = {}
    for row in rows:
        if row["what"] != UPLOADED:
            continue
        try:
            known = costs.get(row["run"]) or Cost(**row["cost"])
            seen = int(row["round"]) + int(row["attempt"])
            costs[row["run"]] = replace(known, participations=known.participations + 1, rounds=max(known.rounds, seen))
            Sampler.from_dict(known.sampler)
        except (KeyError, TypeError, ValueError, AttributeError, ConfigError):
            raise RunFolderError(
                f"the log's upload of run {str(row['run'])[:8]}… does not say what it cost (an older version wrote it,"
                " or it is damaged): limits over a lifetime need a log of this version; keep the old folder and begin"
                " a new one, or drop the lifetime limits"
            ) from None
    return costs
