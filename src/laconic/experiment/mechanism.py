"""The mechanism of a run: all that its ε follows from. Public numbers alone, so a node can check an offer with it.

It has no data and no model. Only the number of weights counts. In a simulation some of a cohort vanish, at a stage of
the secure sum, by the seed (`vanishing_clients`).

A user is told before a run what correlated noise does not go with, and warned where the ε means little or nothing is
tested.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from laconic.errors import ConfigError
from laconic.options.sections import SlackOptions, SumOptions
from laconic.plan import RoundPlan
from laconic.privacy.accounting.accountant import RunAccountant
from laconic.privacy.accounting.budget import Budget
from laconic.privacy.accounting.releases import (
    EVALUATIONS,
    SHARES,
    TRAINING,
    VOTES,
    checked_slack,
    draws_slack,
    most_rounds,
)
from laconic.privacy.accounting.sampling import Cyclic, Poisson, Sampler
from laconic.privacy.mechanism.correlated import CorrelatedGaussian, sensitivity_squared
from laconic.privacy.mechanism.grid import Grid
from laconic.privacy.statement import cautions
from laconic.scheme import Scheme
from laconic.secagg.foretell import Vanishes
from laconic.streams import Streams

if TYPE_CHECKING:
    from laconic.data.population import Population
    from laconic.experiment.experiment import Experiment


BEFORE_UPLOAD = "before-upload"
_STAGES = {stage.name.lower().replace("_", "-"): stage for stage in Vanishes}
STAGES = (*_STAGES, "any")
"""When a client vanishes; 'any' draws one of the others for each."""


def vanishing_clients(plan: RoundPlan, streams: Streams, *, rate: float, stage: str) -> dict[int, Vanishes]:
    """Who of the cohort vanishes in this attempt, and when: each client with the same chance, by a coin of its own."""
    if rate == 0:
        return {}
    rng = streams.numpy("dropouts", plan.round, plan.attempt)
    gone = plan.cohort[rng.random(len(plan.cohort)) < rate].tolist()
    if stage != "any":
        return dict.fromkeys(gone, _STAGES[stage])
    return dict(zip(gone, (Vanishes(s) for s in rng.integers(1, len(Vanishes) + 1, len(gone)).tolist()), strict=True))


def uploading(plan: RoundPlan, vanishing: dict[int, Vanishes]) -> np.ndarray:
    """The clients of the cohort that come as far as their upload."""
    absent = [client for client, stage in vanishing.items() if stage == Vanishes.BEFORE_UPLOAD]
    return plan.cohort[~np.isin(plan.cohort, absent)]


@dataclass(frozen=True, kw_only=True)
class Agreed(SlackOptions):
    """A scheme for so many weights, among so many clients, for so many rounds: what all parties of a run know."""

    scheme: Scheme
    sampler: Sampler
    num_clients: int
    size: int
    rounds: int
    budget: Budget | None

    @property
    def agreed(self) -> dict[str, Any]:
        """These alone, by name."""
        return {field.name: getattr(self, field.name) for field in fields(Agreed)}


@dataclass(frozen=True, kw_only=True)
class Mechanism(Agreed):
    """What the run does to one client's data."""

    num_units: int | None = None
    """How many units there are together, where units inside clients are what is protected."""
    loses_by_cohort: bool = False
    """Whether a round may be lost because of who took part."""
    group_testing: bool = False
    """Whether clients are excluded because of what their groups' sums show."""
    attackers_show_cohort: bool = False
    """Whether what attackers do may show an outsider who else took part."""
    draws_per_sum: bool = False
    """Whether the clients' shares of the noise in a sum are drawn at once, as a simulation can."""
    spare_rounds: int = 0
    """How many rounds may be repeated at most, where that is agreed on."""

    @property
    def slack(self) -> int:
        """How many of a cohort the noise does not count on."""
        return self.max_dropouts + self.max_colluders

    @property
    def accountant(self) -> RunAccountant | None:
        """The accountant of the run; None for a scheme that promises nothing."""
        if not self.scheme.private or self.budget is None:
            return None
        accountant = accountant_of(
            self.scheme,
            sampler=self.sampler,
            num_clients=self.num_clients,
            size=self.size,
            budget=self.budget,
            slack=self.slack,
            horizon=self.rounds,
            num_units=self.num_units,
            delta_slack=self._delta_slacks(),
        )
        cap = self.budget.max_participations
        # The server's budget can end the run, unless the cap keeps every client within it.
        stoppable = self.budget.participant_epsilon is not None and (
            cap is None or not self.budget.participant_fits(accountant, cap)
        )
        excludes = self.group_testing and excludes_by_cohort(self.sampler, self.num_clients, self.slack)
        shown = self.loses_by_cohort or excludes or (self.attackers_show_cohort and self.scheme.noise.private)
        return replace(accountant, cohort_dependent=stoppable or shown)

    @property
    def alone(self) -> dict[str, Mechanism]:
        """Every phase that the run has, as a run of its own, by name."""
        planned = self.scheme.planned(self.rounds)
        kinds = {
            phase.name: replace(self, scheme=phase.parts, rounds=planned[phase.name])
            for phase in self.scheme.phases[:-1]
            if planned[phase.name]
        }
        return kinds | {TRAINING: self}

    @property
    def voting(self) -> Mechanism | None:
        """The votes with which the run begins, as a run of their own; None if there are none."""
        return self.alone.get(VOTES)

    @property
    def client_evaluation(self) -> Mechanism | None:
        """The evaluations of the run, as a run of their own; None if there are none."""
        return self.alone.get(EVALUATIONS)

    @property
    def code_size(self) -> int:
        """m: how many values a client sends."""
        return self.scheme.codec.code_size(self.size)

    @property
    def sensitivity(self) -> float:
        """S: the largest norm of a client's code."""
        return self.scheme.clip.sensitivity(self.code_size)

    def typical_plan(self, groups: int | None = None) -> RoundPlan:
        """The plan of a sum of as many clients as are expected: for bits, bytes and precision beforehand."""
        groups = self.scheme.groups if groups is None else groups
        merged = -(-self.scheme.groups // groups)
        return self.sampler.typical_plan(
            self.num_clients,
            max_dropouts=merged * self.max_dropouts,
            max_colluders=merged * self.max_colluders,
            groups=groups,
            fingerprint=self.scheme.fingerprint,
            planned_units=self.scheme.train.planned_units(self.sampler.rate_in(self.num_clients)),
        )

    @property
    def largest_plan(self) -> RoundPlan:
        """That of the largest sum of the run: with group testing, of a whole cohort."""
        return self.typical_plan(1 if self.group_testing else None)

    @property
    def grid(self) -> Grid | None:
        """The grid of integer noise; None for other noise."""
        if not self.scheme.noise.private:
            return None
        return self.scheme.noise.grid(code_size=self.code_size, sensitivity=self.sensitivity, plan=self.typical_plan())

    def delta_slack(self) -> float:
        """What the noise sampler's finite precision may cost over the run; refused if it is not negligible."""
        slacks = self._delta_slacks()
        return slacks.pop(TRAINING) + sum(slacks.values())

    def _delta_slacks(self) -> dict[str, float]:
        """The same by phase."""
        return {name: kind._delta_slack() for name, kind in self.alone.items()}

    def _delta_slack(self) -> float:
        assert self.budget is not None
        if self.scheme.record_level:
            return checked_slack(self.scheme.train.delta_slack(self.size, self._most_rounds), self.budget.delta)
        slack = draws_slack(
            self.scheme.noise,
            sampler=self.sampler,
            num_clients=self.num_clients,
            code_size=self.code_size,
            sensitivity=self.sensitivity,
            plan=self.largest_plan,
            rounds=self._most_rounds,
            groups=self.scheme.groups,
            at_once=self.draws_per_sum,
        )
        return checked_slack(slack, self.budget.delta)

    def shares_distance(self) -> float:
        """How far sums whose noise is drawn at once are from sums of shares: total variation, over the run."""
        each = self.scheme.noise.shares_distance(plan=self.largest_plan)
        return each * self.code_size * self.scheme.groups * self._most_rounds

    @property
    def _most_rounds(self) -> int:
        return most_rounds(self.rounds, self.spare_rounds)


def taking_turns(sampler: Sampler) -> Cyclic:
    """The sampler, if it keeps a client's participations apart: otherwise correlated noise is not accounted for."""
    if not isinstance(sampler, Cyclic):
        raise ConfigError(
            f"noise that is correlated over rounds (⟨noise-bands⟩) needs clients that take turns, not"
            f" {type(sampler).__name__} sampling: use ⟨sampler⟩ cyclic with ⟨separation⟩, or leave out ⟨noise-bands⟩"
        )
    return sampler


def accountant_of(
    scheme: Scheme,
    *,
    sampler: Sampler,
    num_clients: int,
    size: int,
    budget: Budget,
    slack: int,
    horizon: int,
    num_units: int | None = None,
    delta_slack: Mapping[str, float] | None = None,
    cohort_dependent: bool = False,
) -> RunAccountant:
    """What answers for a run of so many planned rounds: the releases of its phases.

    Args:
        scheme: whose σ is decided.
        sampler: who takes part in a round.
        num_clients: the size of the population.
        size: weights of the model.
        budget: δ, and how often one client may take part.
        slack: dropouts and colluders that the noise allows for, where clients add it in shares.
        horizon: the planned rounds.
        num_units: how many records there are, where records are protected and that is known.
        delta_slack: by phase, what the sampler's finite precision adds to δ.
        cohort_dependent: whether what is released depends on who came.
    """
    slacks = delta_slack or {}
    about: dict[str, Any] = {"sampler": sampler, "num_clients": num_clients, "size": size}
    releases = [phase.release(delta_slack=slacks.get(phase.name, 0.0), **about) for phase in scheme.phases]
    return RunAccountant(
        releases=tuple(releases),
        delta=budget.delta,
        slack=slack if all(release.added_by == SHARES for release in releases) else 0,
        groups=scheme.groups,
        max_participations=budget.max_participations,
        horizon=horizon,
        num_units=num_units,
        cohort_dependent=cohort_dependent,
    )


def loses_by_cohort(dropouts: SumOptions) -> bool:
    """Whether a round may be lost because of who took part.

    Of a larger cohort more clients vanish before their upload, so a lost round makes it less likely that one client was
    there, and amplification holds. Whether a committee can open depends on who is in it.
    """
    return dropouts.dropout_rate > 0 and dropouts.dropout_stage != BEFORE_UPLOAD


def excludes_by_cohort(sampler: Sampler, num_clients: int, slack: int) -> bool:
    """Whether whom group testing excludes, which depends on who took part, shows besides in what an outsider sees.

    With coins and no slack it does not: the client itself comes less often than q, and all else follows from the sums.
    With slack the noise of a sum is made for as many clients as are left, and of a cohort of a fixed size fewer others
    are left if the client is in it.
    """
    return sampler.rate_in(num_clients) < 1 and (slack > 0 or not isinstance(sampler, Poisson))


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
