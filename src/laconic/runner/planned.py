"""What a statement answers for: the charges of a run, or those of its whole plan if its data may end it sooner.

With patience a run ends when the held-out metric says so. That depends on the released models and on held-out records,
so the number of rounds says something of them. Composition is proven for a number that is fixed beforehand, and the
plan's is: a run that ended sooner is the planned one of which the rest was dropped, and dropping costs nothing. A
budget ends a run by its charges alone, whatever the data, so there the charges count.
"""

from __future__ import annotations

from dataclasses import dataclass

from laconic.planning import drawn_cohort
from laconic.privacy.accounting.accountant import RunAccountant, largest
from laconic.privacy.accounting.budget import Budget
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


def answered_for(run: Progress) -> Spent:
    """What the statement's ε is about."""
    spent, budget, accountant = charged(run), run.experiment.budget, run.promised
    if run.experiment.patience is None or budget is None or accountant is None:
        return spent
    # A federation draws from entropy: nobody knows the cohorts that would have come.
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
