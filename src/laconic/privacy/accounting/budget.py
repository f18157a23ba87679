"""What was promised: limits on either ε, and when one more round would break them."""

from __future__ import annotations

from dataclasses import dataclass

from laconic.errors import ConfigError
from laconic.parts import Part, one_of, positive, positive_int, probability
from laconic.privacy.accounting.accountant import RunAccountant
from laconic.privacy.accounting.releases import METHODS
from laconic.privacy.accounting.sampling import Sampler


@dataclass(frozen=True, kw_only=True)
class Budget(Part):
    """δ, and optional limits: ε against an outsider (`epsilon`), ε against the server (`participant_epsilon`),
    and how often one client may take part.

    Args:
        delta: δ.
        epsilon: limit of the outsider's ε.
        participant_epsilon: limit of the server's ε.
        max_participations: rounds that one client takes part in at most (Poisson only).
        accountant: 'pld', 'rdp' or 'moments'; the tightest that the sampler allows, unless given.

    Examples:
        >>> laconic.Budget(delta=1e-5, epsilon=4.0).epsilon
        4.0
    """

    delta: float
    epsilon: float | None = None
    participant_epsilon: float | None = None
    max_participations: int | None = None
    accountant: str | None = None

    def __post_init__(self) -> None:
        probability(delta=self.delta)
        if self.epsilon is not None:
            positive(epsilon=self.epsilon)
        if self.participant_epsilon is not None:
            positive(participant_epsilon=self.participant_epsilon)
        if self.max_participations is not None:
            positive_int(max_participations=self.max_participations)
        if self.accountant is not None:
            one_of(METHODS, accountant=self.accountant)

    def check(self, sampler: Sampler, figures: tuple[str, ...] | None = None) -> None:
        """Refuse what the sampler cannot be accounted for. `figures`: the methods there are, if not the sampler's."""
        available = figures or sampler.figures
        if self.max_participations is not None and not sampler.amplifies:
            raise ConfigError(
                "⟨max-participations⟩ means nothing where clients take turns: how often one takes part follows from"
                " ⟨rounds⟩ and ⟨separation⟩; leave it out"
            )
        if self.max_participations is not None and not sampler.allows_participation_cap:
            raise ConfigError(
                f"max_participations cannot be combined with {type(sampler).__name__} sampling: no proof covers the"
                " released ε; use Poisson sampling (⟨sampling-rate⟩) or drop ⟨max-participations⟩"
            )
        if self.epsilon is not None and self.participant_epsilon is not None and self.max_participations is None:
            raise ConfigError(
                "with both ⟨epsilon⟩ and ⟨participant-epsilon⟩ give ⟨max-participations⟩: a run that stops because of"
                " who took part tells an outsider about it, so only the cap keeps the outsider's ε amplified"
            )
        if self.accountant is not None and self.accountant not in available:
            raise ConfigError(
                f"accountant '{self.accountant}' is not available for {type(sampler).__name__} sampling:"
                f" use ⟨accountant⟩ {available[-1]}"
            )

    def released_fits(self, accountant: RunAccountant, rounds: int, most: int) -> bool:
        """Whether the released ε after so many charged rounds stays within the budget."""
        return self.epsilon is None or accountant.released_epsilon(rounds, self.accountant, most) <= self.epsilon

    def participant_fits(self, accountant: RunAccountant, participations: int) -> bool:
        if self.participant_epsilon is None:
            return True
        return accountant.participant_epsilon(participations) <= self.participant_epsilon
