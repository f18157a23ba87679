"""What is said of an attacked run: its result by class, whether anything was learnt, and what it does to the ε."""

from __future__ import annotations

from typing import Any

import numpy as np

from laconic.adversary.confusion import CHANCE, last_rounds, majority_rate
from laconic.adversary.missing_noise import Attacked, about_missing_noise, worst_of
from laconic.experiment.experiment import Experiment
from laconic.plan import RoundPlan
from laconic.runner.planned import Spent
from laconic.runner.progress import Progress


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
    """Not, if weights are no longer finite, or if the best round, or the mean of the last ten, is hardly better than
    always saying the same class. (The thesis prints '-' and gives no threshold. Of many rounds at chance one is lucky.)
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
    # A group of attackers alone has nobody whose data the noise would protect.
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


def _most_in_a_sum(row: dict[str, Any]) -> int:
    """How many attackers are in one sum of a round at most."""
    return int(row.get("most_malicious_in_a_group", row["malicious"]))


def missing_noise(run: Progress, spent: Spent) -> dict[str, Any] | None:
    """What attackers that added no noise do to the ε of the statement; None if nobody left out any."""
    e, accountant = run.experiment, run.accountant
    if e.attack is None or accountant is None or e.budget is None or not e.attack.omit_noise:
        return None
    sums = [
        (
            row.get("worst_group", row["cohort"]),
            row.get("worst_group_malicious", row["malicious"]),
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
