"""What the privacy statement of a run covers: which rounds, what attackers do to the ε, and ε at several δ.

It covers the charges of a run, or those of its whole plan if its data may end it sooner. With patience a run ends when
the held-out metric says so. That depends on the released models and on held-out records, so the number of rounds says
something of them. Composition is proven for a number that is fixed beforehand, and the plan's is: a run that ended
sooner is the planned one of which the rest was dropped, and dropping costs nothing. A budget ends a run by its charges
alone and not on the data, so there the charges count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from laconic.adversary.missing_noise import Attacked, about_missing_noise, worst_of
from laconic.experiment.experiment import Experiment
from laconic.plan import RoundPlan
from laconic.planning import drawn_cohort
from laconic.privacy.accounting.accountant import RunAccountant, largest
from laconic.privacy.accounting.budget import Budget
from laconic.privacy.released import MissingNoise, Row
from laconic.runner.evaluation import CHANCE, last_rounds, majority_rate
from laconic.runner.progress import Progress
from laconic.streams import Streams


@dataclass(frozen=True)
class Spent:
    """Releases, and how often the busiest client takes part in them."""

    rounds: int
    participations: int


def charged(run: Progress) -> Spent:
    """What was charged so far."""
    journal, state = run.journal, run.state
    return Spent(journal.num_charged, max(state.most_participations, journal.most_participations()))


def rounds_covered_by_statement(run: Progress) -> Spent:
    """The rounds and participations that the statement's ε covers."""
    spent, budget, accountant = charged(run), run.experiment.budget, run.promised
    if run.experiment.patience is None or budget is None or accountant is None:
        return spent
    # A federation draws from entropy: the cohorts that would have come are not known.
    if type(run.clients.streams) is Streams:
        return _drawn(run, spent, budget, accountant)
    return _at_most(run, spent, budget, accountant)


def _drawn(run: Progress, spent: Spent, budget: Budget, accountant: RunAccountant) -> Spent:
    """The rest of the plan with the cohorts that the seed draws."""
    e, journal = run.experiment, run.journal
    taken, counts = run.state.participations.copy(), journal.participations().copy()
    rounds, most, busiest = spent.rounds, spent.participations, run.state.most_participations
    for number in range(run.state.rounds + 1, e.rounds + 1):
        attempt, cap = journal.attempt_of(number), budget.max_participations
        exhausted = () if cap is None else taken.at_least(cap)
        cohort = drawn_cohort(
            e.sampler, run.clients.streams, number, attempt, e.population.num_clients, exhausted, e.arrange
        )
        taken.add(cohort)
        busiest = max(busiest, taken.most_of(cohort))
        rounds += journal.would_add(number, attempt)
        if not (budget.released_fits(accountant, rounds, busiest) and budget.participant_fits(accountant, busiest)):
            return Spent(rounds - journal.would_add(number, attempt), most)
        if journal.would_add(number, attempt):
            counts.add(cohort)
        most = max(most, busiest, counts.most_of(cohort))
    return Spent(rounds, most)


def _at_most(run: Progress, spent: Spent, budget: Budget, accountant: RunAccountant) -> Spent:
    """The rest of the plan as if the busiest client took part in all of it, up to its cap."""
    left = [
        number
        for number in range(run.state.rounds + 1, run.experiment.rounds + 1)
        if run.journal.would_add(number, run.journal.attempt_of(number))
    ]

    def busiest(more: int) -> int:
        most = spent.participations + more
        cap = budget.max_participations
        return most if cap is None else max(spent.participations, min(most, cap))

    # The server's budget may end the run sooner, but not before some client has used it up.
    more = largest(lambda n: budget.released_fits(accountant, spent.rounds + n, busiest(n)), len(left))
    each = largest(lambda n: budget.participant_fits(accountant, busiest(n)), more)
    return Spent(spent.rounds + more, busiest(each))


def about_attack(run: Progress) -> dict[str, Any] | None:
    """The attack, who took part in it, and the figures that the best round hides; None without an attack."""
    e = run.experiment
    if e.attack is None:
        return None
    per_cohort = [row["malicious"] for row in run.history if row["cohort"]]
    return {
        **e.attack.to_dict(),
        "num_malicious": len(e.malicious),
        "fewest_in_a_cohort": min(per_cohort, default=0),
        "most_in_a_cohort": max(per_cohort, default=0),
        "last_ten": last_rounds(run.history),
        **_convergence(run),
        "ring": e.about_ring(max((_most_in_a_sum(row) for row in run.history), default=0)),
    }


def _convergence(run: Progress) -> dict[str, Any]:
    """Whether training converged, and why not: weights are no longer finite, or the accuracy of the best round, or the
    mean of the last ten, is hardly better than always saying the same class.

    The thesis prints '-' and gives no threshold. Of many rounds at chance one is lucky.
    """
    e, best = run.experiment, run.state.best
    if run.stop_reason == "diverged":
        return {"converged": False, "why": f"the weights are no longer finite after round {run.state.rounds}"}
    if e.test is None or e.test.targets.is_floating_point() or best is None or "accuracy" not in best:
        return {"converged": best is not None}
    chance = majority_rate(run.evaluation.counted.targets)
    last = last_rounds(run.history)["accuracy"]["mean"]
    found = {"the best accuracy": best["accuracy"], "the mean accuracy of the last rounds": last}
    failed = [f"{name}, {value:.4f}," for name, value in found.items() if value <= chance + CHANCE]
    if not failed:
        return {"converged": True, "majority_rate": chance}
    why = f"{failed[0]} is hardly better than always saying one class ({chance:.4f})"
    return {"converged": False, "majority_rate": chance, "why": why}


def counted_attackers(e: Experiment, plan: RoundPlan) -> dict[str, int]:
    """How many of a cohort attack; with groups also how many groups are spoilt, and who is in the worst of them.

    Noise is made for each group by itself, so it is there that some is missing: the worst has the least of it left.
    """
    attackers = e.attackers(plan)
    if not plan.groups:
        return {"malicious": len(attackers)}
    inside = [int(np.isin(group.cohort, attackers).sum()) for group in plan.groups]
    # In a group of attackers alone the noise protects no client.
    protecting = [(len(g.cohort), count) for g, count in zip(plan.groups, inside, strict=True) if count < len(g.cohort)]
    merged = -(-e.scheme.groups // len(plan.groups))
    worst = worst_of(_attacked(e, size, count, merged) for size, count in protecting) or _attacked(e, 0, 0)
    return {
        "malicious": len(attackers),
        "spoilt_groups": sum(count > 0 for count in inside),
        "most_malicious_in_a_group": max(inside),
        "worst_group": worst.cohort,
        "worst_group_malicious": worst.attackers,
    }


def _attacked(e: Experiment, clients: int, attackers: int, merged: int = 1) -> Attacked:
    """A sum of so many clients: of so many `merged` groups, where group testing has fewer of them."""
    dropouts, colluders = merged * e.max_dropouts, merged * e.max_colluders
    return Attacked(cohort=clients, attackers=attackers, max_dropouts=dropouts, max_colluders=colluders)


def _most_in_a_sum(row: Row) -> int:
    """How many attackers are in one sum of a round at most."""
    return int(row["most_malicious_in_a_group"] if "most_malicious_in_a_group" in row else row["malicious"])


def missing_noise(run: Progress, spent: Spent) -> MissingNoise | None:
    """What attackers that added no noise do to the ε of the statement; None if none of it was left out."""
    e, accountant = run.experiment, run.accountant
    if e.attack is None or accountant is None or e.budget is None or not e.attack.omit_noise:
        return None
    sums = [
        (
            row["worst_group" if "worst_group" in row else "cohort"],
            row["worst_group_malicious" if "worst_group_malicious" in row else "malicious"],
            -(-e.scheme.groups // row.get("groups", e.scheme.groups)),
        )
        for row in run.history
    ]
    rounds = [_attacked(e, size, attackers, merged) for size, attackers, merged in sums if 0 < attackers < size]
    worst = worst_of(rounds)
    if worst is None:
        return None
    return about_missing_noise(
        accountant,
        worst,
        most=max(_most_in_a_sum(row) for row in run.history),
        rounds=spent.rounds,
        participations=spent.participations,
        method=e.budget.accountant or accountant.method,
    )


_DELTAS = (1e-6, 1e-4, 1e-3, 0.01, 0.03, 0.1, 0.3, 0.6)


def privacy_profile(run: Progress) -> dict[str, Any] | None:
    """(ε, δ) pairs of the run, each proven as that of the statement is; None for a scheme that promises nothing.

    A mechanism is (ε, δ)-private for a whole curve of pairs. The statement names one of them; it alone would allow an
    attacker nearly everything from ε = 6 or so on, although noise that has this pair allows far less. What the finite
    precision of a sampler costs is taken out of every δ, as it is out of the statement's. Where attackers left out
    noise, the pairs are those of the noise that was left; there are none if none was.
    """
    accountant, budget = run.accountant, run.experiment.budget
    if budget is None or accountant is None:
        return None
    spent = rounds_covered_by_statement(run)
    found: dict[str, Any] = {"released": [], "participant": []}
    attack = missing_noise(run, spent)
    if attack is not None and not attack["holds"]:
        if attack["noise_left"] == 0:
            return found
        accountant = accountant.weakened(attack["noise_left"])
    for delta in sorted({*_DELTAS, budget.delta}):
        at = replace(accountant, delta=delta)
        outsider = at.released_epsilon(spent.rounds, budget.accountant, spent.participations)
        server = at.participant_epsilon(spent.participations)
        for name, epsilon in (("released", outsider), ("participant", server)):
            if math.isfinite(epsilon):
                found[name].append([max(0.0, epsilon), delta])
    return found
