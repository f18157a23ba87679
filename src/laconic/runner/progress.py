"""The state of a run, from which its statement, its result and its observers are served; and its budget."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from laconic.clients.base import Clients
from laconic.errors import PrivacyError
from laconic.experiment.experiment import Experiment
from laconic.features.base import with_head
from laconic.observers.observer import Started
from laconic.options.declare import declared_in
from laconic.plan import RoundPlan
from laconic.privacy.accounting.accountant import Repeats, RunAccountant, largest
from laconic.privacy.released import FederationFields, Row
from laconic.report.ledger import Ledger
from laconic.runner.evaluation import Evaluation
from laconic.runner.judged import Answers
from laconic.store.checkpoint import RunState
from laconic.store.folder import RunFolder
from laconic.store.journal import Journal

NO_REPEATS: Repeats = {}


class Spending:
    """The ε of any number of charged rounds; a scheme without noise spends nothing, and everything fits.

    The budget limits what was `promised`. In an attacked run that may be less than the ε that holds.
    """

    def __init__(self, experiment: Experiment) -> None:
        self._rounds, self._budget = experiment.rounds, experiment.budget
        self._votes = experiment.scheme.codec.vote_rounds
        self.accountant, self.promised = experiment.accountant, experiment.promised

    def check_first_round(self) -> None:
        """Refuse a budget that does not allow a single round of training, before anything is written."""
        budget, accountant = self._budget, self.promised
        if budget is None or accountant is None:
            return
        if not (budget.released_fits(accountant, 1, 1) and budget.participant_fits(accountant, 1)):
            raise PrivacyError(
                "the budget does not allow a single round: raise ⟨epsilon⟩ (or ⟨participant-epsilon⟩),"
                " raise ⟨noise-multiplier⟩, or lower ⟨sampling-rate⟩"
            )
        if self._votes and not budget.released_fits(accountant, self._votes + 1, 1):
            raise PrivacyError(
                f"the budget ends within the {self._votes} votes, before anything is trained: raise ⟨epsilon⟩ or"
                " ⟨vote-noise-multiplier⟩, or lower ⟨vote-rounds⟩"
            )

    def with_repeats(self, repeats: Repeats, *, promised: bool = False) -> RunAccountant | None:
        """The accountant of a run in which these rounds were charged again; or that of what was `promised`."""
        accountant = self.promised if promised else self.accountant
        return accountant if accountant is None or not repeats else accountant.with_repeats(repeats)

    def fits(self, charged: int, most: int, repeats: Repeats = NO_REPEATS) -> bool:
        """Whether so many charged rounds, `most` of them with the busiest client, are within the budget."""
        budget, accountant = self._budget, self.with_repeats(repeats, promised=True)
        if budget is None or accountant is None:
            return True
        surely = not repeats and charged <= self._most_rounds
        return (surely or budget.released_fits(accountant, charged, most)) and budget.participant_fits(accountant, most)

    @functools.cached_property
    def _most_rounds(self) -> int:
        """How many rounds the released budget allows, up to those planned: found once."""
        budget, accountant = self._budget, self.promised
        assert budget is not None and accountant is not None
        if budget.epsilon is None:
            return self._rounds
        return largest(lambda rounds: budget.released_fits(accountant, rounds, rounds), self._rounds)

    def epsilons(self, released: int, most: int, repeats: Repeats = NO_REPEATS) -> dict[str, float | None]:
        """Both ε, as rows call them; None where there is none against the server."""
        accountant = self.with_repeats(repeats)
        if accountant is None or self._budget is None:
            return {}
        return {
            "epsilon": accountant.released_epsilon(released, self._budget.accountant, most),
            "participant_epsilon": accountant.participant_epsilon(most) if accountant.promise.covers_server else None,
        }


class Progress:
    """A run up to now. `state` and `journal` are there once it has begun."""

    state: RunState
    journal: Journal

    def __init__(self, experiment: Experiment, clients: Clients, folder: RunFolder | None) -> None:
        self.experiment, self.clients, self.folder = experiment, clients, folder
        self.evaluation, self.spending = Evaluation(experiment, clients), Spending(experiment)
        self.model, self.device = clients.model, clients.device
        self.ledger = Ledger()
        self.history: list[Row] = []
        self.stop_reason = "rounds"
        self.ended = False
        """Whether no round is to come."""
        self._answers: tuple[int, Answers | None] | None = None
        self.about_federation: Callable[[], FederationFields] | None = None
        """What a federation adds to the summary."""

    @property
    def accountant(self) -> RunAccountant | None:
        """The accountant, which counts repeated votes and evaluations; None for a scheme that promises nothing."""
        return self.spending.with_repeats(self.repeats())

    @property
    def promised(self) -> RunAccountant | None:
        """The same as if no attacker showed who took part: what the budget limits."""
        return self.spending.with_repeats(self.repeats(), promised=True)

    def repeats(self, also: RoundPlan | None = None, through: int | None = None) -> Repeats:
        """What was charged again, once this round is charged too; or of what is released through a round.

        It is not asked where all rounds are alike and drawn by chance: their number is enough.
        """
        scheme = self.experiment.scheme
        if len(scheme.phases) == 1 and self.experiment.sampler.amplifies:
            return {}
        key = None if also is None else (also.round, also.attempt)
        return scheme.repeats(self.journal.repeated(also=key, through=through))

    @property
    def answers(self) -> Answers | None:
        """What the present model says about the test records; asked once."""
        if self._answers is None or self._answers[0] != self.state.rounds:
            self._answers = self.state.rounds, self.evaluation.answers(self.state.weights)
        return self._answers[1]

    @property
    def path(self) -> Path | None:
        return self.folder.path if self.folder else None

    def exported(self) -> nn.Module:
        """The trained module, from raw records to outputs."""
        head = self.model.export(self.experiment.model, self.state.weights)
        front_end = self.experiment.front_end
        return head if front_end is None else with_head(front_end, head)


def started_of(run: Progress) -> Started:
    e = run.experiment
    return Started(
        scheme=e.scheme.name,
        fingerprint=e.scheme.fingerprint,
        private=e.scheme.private,
        rounds=e.rounds,
        finished=run.state.rounds,
        metric=run.evaluation.metric,
        settings=settings_of(e)
        | {"model.weights": run.model.size}
        | ({} if run.clients.threads is None else {"run.threads": run.clients.threads}),
        folder=run.path,
    )


def settings_of(e: Experiment) -> dict[str, Any]:
    """'run.rounds', 'scheme.clip.clip_norm' and so on: numbers, words and truth values."""
    found: dict[str, Any] = {f"run.{one.name}": getattr(e, one.name) for one in declared_in(type(e))}
    found |= _flat("scheme", e.scheme.to_dict()) | _flat("sampler", e.sampler.to_dict())
    if e.budget is not None:
        found |= _flat("privacy", e.budget.to_dict())
    if e.attack is not None:
        found |= _flat("attack", e.attack.to_dict())
    found |= {"data.num_clients": e.population.num_clients, "model.name": type(e.model).__name__}
    return {name: value for name, value in found.items() if value is not None}


def _flat(name: str, value: Any) -> dict[str, Any]:
    """Nested dictionaries as dotted names; what is no plain value is left out."""
    if isinstance(value, dict):
        return {key: one for k, v in value.items() for key, one in _flat(f"{name}.{k}", v).items()}
    return {name: value} if isinstance(value, bool | int | float | str) else {}
