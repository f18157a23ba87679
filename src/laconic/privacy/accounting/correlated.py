"""ε of noise that is correlated over rounds: that of one Gaussian mechanism with the sensitivity of the whole matrix.

Fix a client, everybody else's data, and all that is random but the noise. Given all earlier releases, the sum that is
combined into release t differs between the two worlds by c_j·x: the client last took part j rounds ago, with a code x
of norm at most S, and no second participation is in the window, as it has b ≤ B rounds. So release t is a Gaussian
mechanism of sensitivity c_j·S, or 0 if the client has not been there for b rounds. These numbers are known beforehand.
So T releases compose as T Gaussian mechanisms do, however later codes depend on earlier releases: they are one with

    noise multiplier σ/√Σ_t c_{j(t)}²,   and the sum is `bands.sensitivity_squared`

(For matrices whose columns overlap it takes the theorem of Denisov et al. 2022.) A round that is charged again is one
more release, of sensitivity S at most, for every client that is in its window.

Nothing amplifies: it is the ε against whoever knows who took part when. Against the server there is none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from laconic.parts import positive_int, probability
from laconic.privacy.accounting.accountant import METHODS, Figures, Repeats, composed_epsilon
from laconic.privacy.accounting.cyclic import Cyclic
from laconic.privacy.accounting.promise import Promise, central_promise
from laconic.privacy.mechanism.bands import sensitivity_squared

if TYPE_CHECKING:
    from laconic.privacy.mechanism.correlated import CorrelatedGaussian


@dataclass(frozen=True, kw_only=True)
class CorrelatedAccountant:
    """Answers for noise that is correlated over rounds, under clients that take turns. It holds no state.

    Args:
        sampler: who takes part when.
        noise: the scheme's noise part.
        num_clients: the size of the population.
        delta: δ at which ε is asked for.
        horizon: the planned number of rounds.
        repeats: rounds that were charged again.

    Examples:
        >>> accountant = laconic.CorrelatedAccountant(
        ...     sampler=laconic.Cyclic(separation=10), num_clients=1000, delta=1e-5,
        ...     noise=laconic.CorrelatedGaussian(noise_multiplier=2.0, coefficients=(1024, 512)))
        >>> round(accountant.released_epsilon(50), 2), accountant.participant_epsilon(5)
        (5.68, inf)

    References:
        docs/maths.md#correlated-noise; Denisov et al. (2022).
    """

    sampler: Cyclic
    noise: CorrelatedGaussian
    num_clients: int
    delta: float
    horizon: int = 0
    repeats: Repeats = Repeats()

    def __post_init__(self) -> None:
        probability(delta=self.delta)
        positive_int(num_clients=self.num_clients)
        self.sampler.check(self.num_clients)
        sensitivity_squared(self.noise.factors, 1, self.sampler.separation)

    @property
    def units(self) -> int:
        return self.num_clients

    @property
    def honest_cohort(self) -> float | None:
        return self.sampler.planned_cohort(self.num_clients)

    @property
    def method(self) -> str:
        return self.figures[-1]

    @property
    def figures(self) -> tuple[str, ...]:
        return METHODS

    @property
    def promise(self) -> Promise:
        return central_promise(self.sampler.adjacency, self.noise.bands)

    def published(self, rounds: int) -> float | None:
        return None

    def with_repeats(self, repeats: Repeats) -> CorrelatedAccountant:
        """The same for a run in which these rounds were charged again."""
        return replace(self, repeats=repeats)

    def sensitivity_squared(self, rounds: int) -> float:
        """By how much one client moves what so many charged rounds release, squared and in units of S²."""
        again = min(rounds, self.repeats.total)
        if self.horizon:  # what goes beyond the plan will be repeated
            again += max(0, rounds - again - self.horizon)
        once = sensitivity_squared(self.noise.factors, rounds - again, self.sampler.separation)
        return once + again * max(self.noise.factors) ** 2

    def noise_multiplier(self, rounds: int) -> float:
        """That of the one Gaussian mechanism that so many charged rounds are."""
        return self.noise.effective_multiplier() / math.sqrt(self.sensitivity_squared(rounds))

    def released(self, rounds: int, most: int | None = None) -> Figures:
        return Figures(**{method: self.released_epsilon(rounds, method) for method in METHODS})

    def participant(self, participations: int) -> Figures:
        """There is none: the server sees sums without noise."""
        return Figures(None, None, None)

    def released_epsilon(self, rounds: int, method: str | None = None, most: int | None = None) -> float:
        from dp_accounting import GaussianDpEvent

        if rounds < 1:
            return 0.0
        event = GaussianDpEvent(self.noise_multiplier(rounds))
        return composed_epsilon(((event, 1),), self.delta, method or self.method)

    def participant_epsilon(self, participations: int, method: str = "pld") -> float:
        return math.inf

    def amplified(self, rounds: int) -> bool:
        return False
