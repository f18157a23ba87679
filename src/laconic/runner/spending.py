"""The budget of a run: whether one more round fits, and what was spent."""

from __future__ import annotations

import functools

from laconic.errors import PrivacyError
from laconic.experiment.experiment import Experiment
from laconic.privacy.accounting.accountant import Repeats, RunAccountant, largest

NO_REPEATS: Repeats = {}


class Spending:
    """Answers for any number of charged rounds; a scheme without noise spends nothing, and everything fits.

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
                "the budget does not allow a single round: raise --epsilon (or --participant-epsilon),"
                " raise --noise-multiplier, or lower --sampling-rate"
            )
        if self._votes and not budget.released_fits(accountant, self._votes + 1, 1):
            raise PrivacyError(
                f"the budget ends within the {self._votes} votes, before anything is trained: raise --epsilon or"
                " --vote-noise-multiplier, or lower --vote-rounds"
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
