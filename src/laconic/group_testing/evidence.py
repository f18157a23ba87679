"""What spoilt groups say of the clients in them, round by round.

Clients are dealt into new groups in every round, after everybody has chosen what to send. So an honest client sits in
some group by chance alone, and in a spoilt one with probability π for each, while an attacker spoils its own. Every
client has a likelihood ratio of "attacks, and is missed with probability β" against "honest". In a round it is
multiplied by

    (1 − β)/(W·π)   if its group is clearly spoilt, and W groups are spoilt with its own,
    β               if its group is not clearly spoilt, but another one is spoilt,
    1               if nothing is spoilt but perhaps its own group, and that is not clear,

and by 1/(1 + 6α) for false alarms, in calm rounds as well (`docs/maths.md` has the proof that it does not grow on
average for an honest client). The ratio that counts is a mean: over two β, and over when the attack may have begun: at
first, or after the (i − 1)-th spoilt round, with weight 1/(i·(i + 1)). So who behaves at first, or stops and comes
back, is not cleared for ever. By Ville's inequality an honest client's ratio ever reaches N/F with probability F/N at
most; so if clients are excluded there, no more than F honest ones are on average, in a run of any length.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from laconic.group_testing.detector import Verdict
from laconic.plan import RoundPlan

MISSES = (0.05, 0.5)
"""β: how often an attacker's group does not show. One that always attacks, and one that comes and goes."""
_ALARMS = 6
"""Bounds on which the ratio of a client rests in a round: on its own group and that of whom it is exchanged with."""
SUSPECT = 20.0
"""A client with this ratio is called a suspect, in the rows of a run."""


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What is known after a round. `running` are the ratios that have begun, (β, clients)."""

    running: np.ndarray
    spoilt_rounds: int = 0
    calm: int = 0
    """Rounds in a row without a spoilt sum."""
    needed: int = 1
    """So many of them until there is one sum again."""
    one_sum: bool = False
    excluded: Mapping[int, int] = field(default_factory=dict)
    """Client → the round after which it is left out."""

    @property
    def ratios(self) -> np.ndarray:
        """The likelihood ratio of every client."""
        waiting = 1 / (self.spoilt_rounds + 2)
        ratios: np.ndarray = self.running.mean(axis=0) + waiting
        return ratios

    def excluded_before(self, round: int) -> np.ndarray:
        """Who does not take part in this round any more, sorted."""
        return np.array(sorted(c for c, last in self.excluded.items() if last < round), dtype=np.int64)

    @property
    def num_suspects(self) -> int:
        """How many have a large ratio, and are not excluded."""
        return int((self.ratios >= SUSPECT).sum()) - int((self.ratios[list(self.excluded)] >= SUSPECT).sum())


def first_findings(num_clients: int, calm_rounds: int) -> Findings:
    """Before the first round: nobody is suspected, and cohorts are summed in groups."""
    return Findings(running=np.full((len(MISSES), num_clients), 0.5), needed=calm_rounds)


def chance_of_a_group(groups: int, cohort: int, *, dealt: bool) -> float:
    """π: how likely an honest client is in a given group that an attacker spoils, as long as no more than g attack.

    By coins that is 1/g. Where groups are dealt, the attacker takes one of its s places, and n − g places or more are
    left for honest clients.
    """
    if not dealt:
        return 1 / groups
    left, largest = cohort - groups, -(-cohort // groups)
    return min(1.0, max(largest - 1, 1) / left) if left > 0 else 1.0


def update_findings(
    findings: Findings,
    plan: RoundPlan,
    verdict: Verdict,
    *,
    chance: float,
    false_exclusions: float,
    false_alarms: float,
) -> Findings:
    """What is known after a round with this verdict. `chance` is π, of a round in groups."""
    spoilt = int(verdict.spoilt.sum())
    running = findings.running.copy()
    if plan.groups:
        running[:, plan.cohort] *= _factors(plan, verdict, chance) / (1 + _ALARMS * false_alarms)
    if not spoilt:
        calm = findings.calm + 1
        return replace(findings, running=running, calm=calm, one_sum=findings.one_sum or calm >= findings.needed)
    if not plan.groups:  # twice as long in groups as before: who attacks single sums alone gains ever less
        return replace(findings, calm=0, one_sum=False, needed=2 * findings.needed)
    rounds = findings.spoilt_rounds + 1
    running += 1 / ((rounds + 1) * (rounds + 2))
    after = replace(findings, running=running, spoilt_rounds=rounds, calm=0)
    found = np.flatnonzero(after.ratios >= running.shape[1] / false_exclusions).tolist()
    new = {client: plan.round for client in found if client not in findings.excluded}
    return replace(after, excluded={**findings.excluded, **new})


def _factors(plan: RoundPlan, verdict: Verdict, chance: float) -> np.ndarray:
    """By what a round in groups multiplies the ratios of its cohort, for each β, (β, clients)."""
    own = plan.group_of(plan.cohort)
    clear, others = verdict.clear[own], verdict.spoilt.sum() - verdict.spoilt[own]
    misses = np.array(MISSES)[:, None]
    factors: np.ndarray = np.where(others > 0, misses, 1.0)
    factors[:, clear] = (1 - misses) / np.minimum(1.0, (others[clear] + 1) * chance)
    return factors
