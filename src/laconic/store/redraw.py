"""Whether the cohorts in a journal are those that the seed draws: a cohort that was made smaller would hide
participations, and the server's ε with them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from laconic.clients.base import Clients
from laconic.errors import RunFolderError
from laconic.experiment.experiment import Experiment
from laconic.planning import drawn_cohort
from laconic.store.chain import CHARGES, WAY_OUT
from laconic.store.folder import RunFolder
from laconic.store.journal import Charge, released_charges
from laconic.store.participations import Participations


def check_cohorts(experiment: Experiment, clients: Clients, folder: RunFolder, charges: Sequence[Charge]) -> None:
    """Draw every cohort again that was charged in this environment, and refuse any other.

    Elsewhere numpy may draw otherwise, and a federation draws from the system's entropy, in an environment of its own:
    of those charges only the chain of digests can tell.
    """
    num_clients = clients.num_clients
    cap = experiment.budget.max_participations if experiment.budget else None
    taken = Participations()
    highest = 0
    for index, charge in enumerate(charges):
        known = charge.environment == clients.environment
        if known:
            exhausted = np.zeros(0, dtype=np.int64)
            if cap is not None:
                counts = taken if highest < charge.round else _counted(charges[:index], charge)
                exhausted = counts.at_least(cap)
            drawn = drawn_cohort(
                experiment.sampler,
                clients.streams,
                charge.round,
                charge.attempt,
                num_clients,
                exhausted,
                experiment.arrange,
            )
        cohort = charge.cohort
        if bool((cohort >= num_clients).any()) or (known and not np.array_equal(drawn, cohort)):
            raise RunFolderError(
                f"{folder.path / CHARGES}, line {index + 1}: the seed draws another cohort for round {charge.round},"
                f" attempt {charge.attempt}, so it was altered; {WAY_OUT}"
            )
        taken.add(cohort)
        highest = max(highest, charge.round)


def _counted(before: Sequence[Charge], charge: Charge) -> Participations:
    """How often each client had taken part when the charge was made, after a resume."""
    released = released_charges(before, charge.round - 1, charge.environment)
    counts = Participations()
    for earlier in released:
        counts.add(earlier.cohort)
    return counts
