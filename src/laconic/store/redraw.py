"""Cohorts are drawn again from the seed: to check those of a journal, and to charge what it may have lost.

A cohort that was made smaller would hide participations, and the server's ε with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from laconic.clients.base import Clients
from laconic.errors import RunFolderError
from laconic.experiment.experiment import Experiment
from laconic.planning import drawn_cohort
from laconic.store.chain import CHARGES, WAY_OUT
from laconic.store.folder import RunFolder
from laconic.store.journal import Charge, Journal, released_charges
from laconic.store.participations import Participations


def check_cohorts(experiment: Experiment, clients: Clients, folder: RunFolder, charges: Sequence[Charge]) -> None:
    """Draw every cohort again that was charged in this environment, and refuse any other.

    Elsewhere numpy may draw otherwise, and a federation draws from the system's entropy, in an environment of its own:
    of those charges only the chain of digests can tell.
    """
    taken = Participations()
    highest = 0
    for index, charge in enumerate(charges):
        known = charge.environment == clients.environment
        if known:
            counts = taken if highest < charge.round else None
            drawn = _drawn(experiment, clients, charges[:index], charge, counts)
        cohort = charge.cohort
        if bool((cohort >= clients.num_clients).any()) or (known and not np.array_equal(drawn, cohort)):
            raise RunFolderError(
                f"{folder.path / CHARGES}, line {index + 1}: the seed draws another cohort for round {charge.round},"
                f" attempt {charge.attempt}, so it was altered; {WAY_OUT}"
            )
        taken.add(cohort)
        highest = max(highest, charge.round)


def assume_lost(experiment: Experiment, clients: Clients, journal: Journal, finished: int) -> None:
    """Charge what another environment may have released since the last save, `finished` rounds into the run.

    The save says through which round that environment might go. Charges of these rounds that are not in the journal
    may have been lost with its last rows. In the same environment a replay repeats them bit for bit; here it does not,
    so they count beside their repetition.
    """
    saves = journal.saves
    environment = saves.environment or (journal.charges[-1].environment if journal.charges else None)
    if environment is None or environment == journal.environment:
        return
    through = saves.rounds if saves.through is None else saves.through
    for number in range(finished + 1, through + 1):
        attempt = journal.attempt_of(number, environment)
        if journal.would_add(number, attempt):
            charge = Charge(number, attempt, environment, np.zeros(0, dtype=np.int64))
            journal.assume(replace(charge, cohort=_drawn(experiment, clients, journal.charges, charge)))


def _drawn(
    experiment: Experiment,
    clients: Clients,
    before: Sequence[Charge],
    charge: Charge,
    counts: Participations | None = None,
) -> np.ndarray:
    """The cohort that the seed draws for a charge; `counts` are the participations before it, if they are known."""
    cap = experiment.budget.max_participations if experiment.budget else None
    exhausted = np.zeros(0, dtype=np.int64)
    if cap is not None:
        exhausted = (_counted(before, charge) if counts is None else counts).at_least(cap)
    return drawn_cohort(
        experiment.sampler,
        clients.streams,
        charge.round,
        charge.attempt,
        clients.num_clients,
        exhausted,
        experiment.arrange,
    )


def _counted(before: Sequence[Charge], charge: Charge) -> Participations:
    """How often each client had taken part when the charge was made, after a resume."""
    released = released_charges(before, charge.round - 1, charge.environment)
    counts = Participations()
    for earlier in released:
        counts.add(earlier.cohort)
    return counts
