"""Warnings before a run starts: where its ε means little (see `privacy/statement/cautions`), and without a test."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from laconic.data.population import Population
from laconic.privacy.statement.cautions import cautions

if TYPE_CHECKING:
    from laconic.experiment.experiment import Experiment

_log = logging.getLogger("laconic")


def count_units(population: Population, *, record_level: bool) -> int:
    """How many there are of what is protected: clients, or the records of all clients."""
    if not record_level:
        return population.num_clients
    return sum(population.size(client) for client in range(population.num_clients))


def planned_cautions(experiment: Experiment) -> list[str]:
    """What must be said if the run goes as planned, up to its budget; the server's ε is the usual client's."""
    accountant, budget = experiment.accountant, experiment.budget
    if accountant is None or budget is None:
        return []
    usual = experiment.sampler.usual_participations(experiment.rounds, experiment.population.num_clients)
    counts = [count for count in (usual, budget.max_participations) if count is not None]
    released = accountant.released_epsilon(experiment.rounds, budget.accountant)
    participant = accountant.participant_epsilon(min(counts))
    limit = None if experiment.mechanism.attackers_show_cohort else budget.epsilon  # it limits what was promised
    found = cautions(
        accountant,
        delta=budget.delta,
        released=min(released, limit or released),
        participant=min(participant, budget.participant_epsilon or participant),
    )
    ring = experiment.about_ring()
    return found if ring is None else [*found, ring]


def untested(experiment: Experiment) -> list[str]:
    """What must be said if nobody will know how good the model is."""
    if experiment.test is not None or experiment.holdout is not None or experiment.scheme.evaluations.every:
        return []
    return [
        "there are no test records, so nothing will say how good the model is and no round will be the best: put a file"
        " (of pictures, a folder) called test beside those of the clients, or set clients aside with --holdout 0.2"
    ]


def log_cautions(experiment: Experiment) -> None:
    """A warning each, for Python: unless the user set up logging, they go to stderr."""
    for text in planned_cautions(experiment):
        _log.warning("laconic: warning: %s", text)
