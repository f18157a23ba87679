"""What a run knows of itself: all that its statement and its result are made of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from laconic.clients.base import Clients
from laconic.experiment.experiment import Experiment
from laconic.features.base import with_head
from laconic.plan import RoundPlan
from laconic.privacy.accounting.accountant import Repeats, RunAccountant
from laconic.report.ledger import Ledger
from laconic.runner.evaluation import Evaluation
from laconic.runner.spending import Spending
from laconic.store.checkpoint import RunState
from laconic.store.folder import RunFolder
from laconic.store.journal import Journal


class Progress:
    """A run up to now. `state` and `journal` are there once it has begun."""

    state: RunState
    journal: Journal

    def __init__(self, experiment: Experiment, clients: Clients, folder: RunFolder | None) -> None:
        self.experiment, self.clients, self.folder = experiment, clients, folder
        self.evaluation, self.spending = Evaluation(experiment, clients), Spending(experiment)
        self.model, self.device = clients.model, clients.device
        self.ledger = Ledger()
        self.history: list[dict[str, Any]] = []
        self.stop_reason = "rounds"
        self.about_federation: Callable[[], dict[str, Any]] | None = None
        """What a federation adds to the summary."""

    @property
    def accountant(self) -> RunAccountant | None:
        """It knows of votes and evaluations that were charged again; None for a scheme that promises nothing."""
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
    def path(self) -> Path | None:
        return self.folder.path if self.folder else None

    def exported(self) -> nn.Module:
        """The trained module, from raw records to outputs."""
        head = self.model.export(self.experiment.model, self.state.weights)
        front_end = self.experiment.front_end
        return head if front_end is None else with_head(front_end, head)
