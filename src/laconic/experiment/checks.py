"""What a user is told before a run starts: what correlated noise does not go with, and warnings.

Warnings say where the ε of a run means little (see `privacy/statement`), and where there is no test.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from laconic.data.population import Population
from laconic.experiment.mechanism import taking_turns
from laconic.privacy.accounting.sampling import Sampler
from laconic.privacy.mechanism.correlated import CorrelatedGaussian, sensitivity_squared
from laconic.privacy.statement import cautions
from laconic.scheme import Scheme

if TYPE_CHECKING:
    from laconic.experiment.experiment import Experiment


def check_correlated(scheme: Scheme, sampler: Sampler) -> None:
    """Refuse a sampler under which the sensitivity would not be bounded as it is accounted for."""
    if isinstance(scheme.noise, CorrelatedGaussian):
        sensitivity_squared(scheme.noise.factors, 1, taking_turns(sampler).separation)


def momentum_of(scheme: Scheme) -> float:
    """ρ of the server's rule, for which the bands are made; 0 where it has none."""
    return float(getattr(scheme.rule, "momentum", 0.0))


def correlated_problems(e: Experiment) -> Iterator[str]:
    """All that is in the way of central noise in an experiment."""
    if not e.scheme.noise.central:
        return
    if e.secagg == "masked":
        yield (
            "⟨secagg⟩ masked hides noise that clients add, and correlated noise is added by the server: leave out"
            " ⟨noise-bands⟩ or ⟨secagg⟩ masked"
        )
    if e.noise_draws == "per-client":
        yield "⟨noise-draws⟩ per-client: the server adds correlated noise, no client does; leave one of them out"
    if e.max_dropouts or e.max_colluders:
        yield (
            "⟨max-dropouts⟩ and ⟨max-colluders⟩ are about clients' shares of the noise, and correlated noise has none:"
            " leave them out, or leave out ⟨noise-bands⟩"
        )
    if e.dropout_rate:
        yield "⟨dropout-rate⟩ tries the clients' shares of the noise, and correlated noise has none: leave one out"
    if e.group_testing:
        yield "⟨group-testing⟩ tests sums of groups, and correlated noise is added to one sum: leave one of them out"
    if e.attack is not None:
        yield (
            "an attack sends codes that are not clipped, and these would stay in the server's sums for ⟨noise-bands⟩"
            " rounds: what becomes of the ε is not worked out; leave out ⟨attack⟩ or ⟨noise-bands⟩"
        )
    if e.budget is not None and e.budget.participant_epsilon is not None:
        yield (
            "⟨participant-epsilon⟩: with correlated noise no ε holds against the server, which adds the noise itself:"
            " leave out ⟨participant-epsilon⟩ or ⟨noise-bands⟩"
        )


_log = logging.getLogger("laconic")


def count_units(population: Population, *, record_level: bool, declared: float | None = None) -> int:
    """How many there are of what is protected: clients, the records of all clients, or as many as are declared."""
    if declared is not None:
        return max(1, round(declared))
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
    return [*found, *([] if ring is None else [ring])]


def untested(experiment: Experiment) -> list[str]:
    """A warning where no records measure how good the model is."""
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
