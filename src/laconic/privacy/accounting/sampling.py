"""Who takes part in a round, and what that is worth: sampler and accounting are one object.

The released ε of a Poisson sample needs two things. First, what is released must not depend on whether a client came,
except through its data: so the noise in a release does not depend on the size of the cohort, and a round in which
no client came releases noise alone (`server_step`). Second, a client must come with probability q at most, given all
earlier releases. Clients that reached `max_participations` are dropped *after* the draw from all of them, so that is
q·P(not yet capped) ≤ q, and a mixture with a smaller rate is dominated by the one with rate q. For samples of a fixed
size no such argument is known to us, so there the combination is refused.

A cohort may be summed in groups. Where it is drawn by coins, each client's group is a coin of its own, so that who else
came says nothing of it and a group is a Poisson sample, too; where its size is fixed, it is dealt like cards.

*Taking turns.* The clients are dealt at random into B groups whose sizes differ by one at most, once for the run. Round
t takes group (t − 1) mod B. So two participations of a client are exactly B rounds apart, and in T rounds it has ⌈T/B⌉
at most. Who takes part when is no secret here: nothing amplifies, and the ε is the same for those who know it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from laconic.errors import ConfigError
from laconic.parts import Part, positive_int, rate
from laconic.plan import RoundPlan
from laconic.streams import Streams, hashed

if TYPE_CHECKING:
    from dp_accounting import DpEvent


ZERO_OUT = "zero-out"
REPLACE_ONE = "replace-one"


@dataclass(frozen=True, kw_only=True)
class Sampler(Part):
    """Base of the samplers."""

    adjacency: ClassVar[str]
    sensitivity_scale: ClassVar[float]
    """Adjacent sums differ by at most this times S."""
    figures: ClassVar[tuple[str, ...]]
    """The accountants that can answer for this sampler, the preferred one last."""
    allows_participation_cap: ClassVar[bool]
    caveat: ClassVar[str] = ""
    proven: ClassVar[bool] = True
    """Whether the accounting is that of how clients are really drawn."""
    amplifies: ClassVar[bool] = True
    """Whether it is chance, which an outsider does not know, that says who takes part."""

    def check(self, num_clients: int) -> None:
        """Refuse a population that the sampler cannot serve."""
        raise NotImplementedError

    def rate_in(self, num_clients: int) -> float:
        """The probability with which one client takes part in one round."""
        raise NotImplementedError

    def planned_cohort(self, num_clients: int, groups: int = 1) -> float:
        """The public denominator of a round: the expected cohort, or group of it, never the drawn one."""
        return self.rate_in(num_clients) * num_clients / groups

    def least_cohort(self, num_clients: int, slack: int, groups: int = 1, excluded: int = 0) -> int:
        """The smallest cohort, or group, whose sum is opened, given how many of it may vanish or collude.

        So many of the clients are `excluded`: they are drawn like all others, and do not take part.
        """
        raise NotImplementedError

    def largest_cohort(self, num_clients: int, groups: int = 1) -> int:
        """The largest one; only a freak of chance is larger."""
        raise NotImplementedError

    def plan_of_sum(
        self,
        cohort: np.ndarray,
        num_clients: int,
        *,
        max_dropouts: int = 0,
        max_colluders: int = 0,
        groups: int = 1,
        excluded: int = 0,
        **named: Any,
    ) -> RoundPlan:
        """The plan of one sum: of these clients, who are the cohort or one group of it. `named`: round and seeds."""
        return RoundPlan(
            cohort=cohort,
            planned_cohort=self.planned_cohort(num_clients, groups),
            least_cohort=self.least_cohort(num_clients, max_dropouts + max_colluders, groups, excluded),
            largest_cohort=self.largest_cohort(num_clients, groups),
            max_dropouts=max_dropouts,
            max_colluders=max_colluders,
            **named,
        )

    def typical_plan(
        self, num_clients: int, *, max_dropouts: int = 0, max_colluders: int = 0, groups: int = 1, **named: Any
    ) -> RoundPlan:
        """The plan of a sum of as many clients as are expected: for bits, bytes and precision beforehand."""
        expected = max(1 + max_dropouts + max_colluders, round(self.planned_cohort(num_clients, groups)))
        named = dict[str, Any](round=1, attempt=0, run_seed=0, round_seed=0, fingerprint="") | named
        return self.plan_of_sum(
            np.arange(expected),
            num_clients,
            max_dropouts=max_dropouts,
            max_colluders=max_colluders,
            groups=groups,
            **named,
        )

    def check_slack(self, num_clients: int, slack: int, groups: int = 1) -> None:
        """Refuse slack that leaves no client of a cohort, or of a group, to add the noise."""
        planned = self.planned_cohort(num_clients, groups)
        if slack >= (math.floor(planned) if self.dealt(num_clients) else planned):
            raise ConfigError(
                f"max_dropouts + max_colluders = {slack} leaves none of a {'cohort' if groups == 1 else 'group'} of"
                f" {planned:g} to add the noise"
            )

    def dealt(self, num_clients: int) -> bool:
        """Whether groups are dealt, so that their sizes differ by one at most."""
        return self.rate_in(num_clients) >= 1

    def deal(self, cohort: np.ndarray, num_clients: int, groups: int, key: int) -> list[np.ndarray]:
        """The members of each group, sorted; every client of the cohort is in one. `key` has 64 bits."""
        if self.dealt(num_clients):
            order = np.random.Generator(np.random.Philox(key=key)).permutation(cohort)
            return [np.sort(order[group::groups]) for group in range(groups)]
        coins = hashed(hashed(cohort) ^ np.uint64(key)) % np.uint64(groups)
        return [cohort[coins == group] for group in range(groups)]

    def most_participations(self, rounds: int) -> int:
        """In how many of the first so many rounds one client takes part at most."""
        return rounds

    def usual_participations(self, rounds: int, num_clients: int) -> int:
        """What is asked for before a run, where it is not known how often a client will take part: the average one."""
        return max(1, round(rounds * self.rate_in(num_clients)))

    def cohort(self, num_clients: int, streams: Streams, round: int, attempt: int) -> np.ndarray:
        """Who takes part in an attempt at a round: sorted client numbers."""
        return self.draw(num_clients, streams.numpy("cohort", round, attempt))

    def draw(self, num_clients: int, rng: np.random.Generator) -> np.ndarray:
        """A cohort: sorted client numbers."""
        raise NotImplementedError

    def released_event(self, round_event: DpEvent, num_clients: int) -> DpEvent:
        """What a round releases to someone who does not know the cohort."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Poisson(Sampler):
    """Every client takes part with the same probability, independently of the others and of other rounds.

    Args:
        sampling_rate: q, the probability that a client is in a cohort.

    Examples:
        >>> import numpy as np
        >>> cohort = laconic.Poisson(sampling_rate=0.1).draw(1000, np.random.default_rng(0))
        >>> 50 < len(cohort) < 150
        True

    References:
        docs/maths.md#samplers-adjacency-and-sensitivity
    """

    sampling_rate: float

    adjacency: ClassVar[str] = ZERO_OUT
    sensitivity_scale: ClassVar[float] = 1.0
    figures: ClassVar[tuple[str, ...]] = ("moments", "rdp", "pld")
    allows_participation_cap: ClassVar[bool] = True

    def __post_init__(self) -> None:
        rate(sampling_rate=self.sampling_rate)

    def check(self, num_clients: int) -> None:
        positive_int(num_clients=num_clients)

    def rate_in(self, num_clients: int) -> float:
        return self.sampling_rate

    def least_cohort(self, num_clients: int, slack: int, groups: int = 1, excluded: int = 0) -> int:
        if not slack:
            return 1
        if self.dealt(num_clients):
            return max(slack + 1, (num_clients - excluded) // groups)
        # So small that hardly any cohort is smaller: a cohort that is not opened shows its size.
        from scipy.stats import binom

        return max(slack + 1, int(binom.ppf(1e-15, num_clients - excluded, self.sampling_rate / groups)))

    def largest_cohort(self, num_clients: int, groups: int = 1) -> int:
        if self.dealt(num_clients):
            return math.ceil(num_clients / groups)
        planned = self.planned_cohort(num_clients, groups)
        return min(num_clients, math.ceil(planned + 10 * math.sqrt(planned) + 20))

    def draw(self, num_clients: int, rng: np.random.Generator) -> np.ndarray:
        count = int(rng.binomial(num_clients, self.sampling_rate))
        return _choose(num_clients, count, rng)

    def released_event(self, round_event: DpEvent, num_clients: int) -> DpEvent:
        from dp_accounting import PoissonSampledDpEvent

        return PoissonSampledDpEvent(self.sampling_rate, round_event) if self.sampling_rate < 1 else round_event


@dataclass(frozen=True, kw_only=True)
class FixedSize(Sampler):
    """A uniformly random cohort of a fixed size. Adjacent: one client's data replaced, so sums differ by up to 2S.

    Args:
        cohort_size: clients in every round.

    Examples:
        >>> import numpy as np
        >>> len(laconic.FixedSize(cohort_size=100).draw(1000, np.random.default_rng(0)))
        100

    References:
        docs/maths.md#samplers-adjacency-and-sensitivity; Wang, Balle and Kasiviswanathan (AISTATS 2019).
    """

    cohort_size: int

    adjacency: ClassVar[str] = REPLACE_ONE
    sensitivity_scale: ClassVar[float] = 2.0
    figures: ClassVar[tuple[str, ...]] = ("rdp",)
    allows_participation_cap: ClassVar[bool] = False

    def __post_init__(self) -> None:
        positive_int(cohort_size=self.cohort_size)

    def check(self, num_clients: int) -> None:
        if self.cohort_size > num_clients:
            raise ConfigError(
                f"cohort_size {self.cohort_size} is larger than the population of {num_clients} clients:"
                " lower ⟨cohort-size⟩ or raise ⟨num-clients⟩"
            )

    def rate_in(self, num_clients: int) -> float:
        return self.cohort_size / num_clients

    def least_cohort(self, num_clients: int, slack: int, groups: int = 1, excluded: int = 0) -> int:
        return max(min(self.cohort_size // groups, slack + 1), (self.cohort_size - excluded) // groups)

    def largest_cohort(self, num_clients: int, groups: int = 1) -> int:
        return math.ceil(self.cohort_size / groups)

    def dealt(self, num_clients: int) -> bool:
        return True

    def draw(self, num_clients: int, rng: np.random.Generator) -> np.ndarray:
        self.check(num_clients)
        return _choose(num_clients, self.cohort_size, rng)

    def released_event(self, round_event: DpEvent, num_clients: int) -> DpEvent:
        from dp_accounting import SampledWithoutReplacementDpEvent

        if self.cohort_size == num_clients:
            return round_event
        return SampledWithoutReplacementDpEvent(num_clients, self.cohort_size, round_event)


@dataclass(frozen=True, kw_only=True)
class AsPublished(FixedSize):
    """A cohort of a fixed size accounted as if it were a Poisson sample, as the papers do. For their tables only.

    Args:
        cohort_size: clients in every round.

    Examples:
        >>> laconic.AsPublished(cohort_size=100).proven
        False
    """

    adjacency: ClassVar[str] = ZERO_OUT
    sensitivity_scale: ClassVar[float] = 1.0
    figures: ClassVar[tuple[str, ...]] = ("moments", "rdp", "pld")
    proven: ClassVar[bool] = False
    caveat: ClassVar[str] = (
        "cohorts have a fixed size but are accounted as Poisson samples, as in the papers: the released ε is the"
        " published figure, not a proven one"
    )

    def released_event(self, round_event: DpEvent, num_clients: int) -> DpEvent:
        from dp_accounting import PoissonSampledDpEvent

        sampling_rate = self.rate_in(num_clients)
        return PoissonSampledDpEvent(sampling_rate, round_event) if sampling_rate < 1 else round_event


def _choose(num_clients: int, count: int, rng: np.random.Generator) -> np.ndarray:
    return np.sort(rng.choice(num_clients, size=count, replace=False, shuffle=False)).astype(np.int64)


@dataclass(frozen=True, kw_only=True)
class Cyclic(Sampler):
    """Every client takes part in every `separation`-th round. The noise may then be correlated over rounds.

    Args:
        separation: B, the rounds from one participation of a client to its next.

    Examples:
        >>> from laconic.streams import Streams
        >>> turns = laconic.Cyclic(separation=3)
        >>> first, second, fourth = (turns.cohort(10, Streams(0), round, 0).tolist() for round in (1, 2, 4))
        >>> len(first), set(first) & set(second), first == fourth
        (4, set(), True)

    References:
        docs/maths.md#correlated-noise; Choquette-Choo et al. (2023), who call it a minimum separation.
    """

    separation: int

    adjacency: ClassVar[str] = ZERO_OUT
    sensitivity_scale: ClassVar[float] = 1.0
    figures: ClassVar[tuple[str, ...]] = ("moments", "rdp", "pld")
    allows_participation_cap: ClassVar[bool] = False
    amplifies: ClassVar[bool] = False

    def __post_init__(self) -> None:
        positive_int(separation=self.separation)

    def check(self, num_clients: int) -> None:
        if self.separation > num_clients:
            raise ConfigError(
                f"⟨separation⟩ {self.separation}: with {num_clients} clients some rounds would have none: lower"
                " ⟨separation⟩, or raise ⟨num-clients⟩"
            )

    def rate_in(self, num_clients: int) -> float:
        return 1 / self.separation

    def least_cohort(self, num_clients: int, slack: int, groups: int = 1, excluded: int = 0) -> int:
        least = num_clients // self.separation
        return max(min(least // groups, slack + 1), (least - excluded) // groups)

    def largest_cohort(self, num_clients: int, groups: int = 1) -> int:
        return math.ceil(math.ceil(num_clients / self.separation) / groups)

    def dealt(self, num_clients: int) -> bool:
        return True

    def most_participations(self, rounds: int) -> int:
        return math.ceil(rounds / self.separation)

    def usual_participations(self, rounds: int, num_clients: int) -> int:
        """The participations of the busiest client: known beforehand, and a mean would be rounded below it."""
        return self.most_participations(rounds)

    def cohort(self, num_clients: int, streams: Streams, round: int, attempt: int) -> np.ndarray:
        """The group whose turn it is, in every attempt: otherwise a repeated round would break the separation."""
        self.check(num_clients)
        order = streams.numpy("cohort", "turns").permutation(num_clients)
        return np.sort(order[(round - 1) % self.separation :: self.separation]).astype(np.int64)

    def draw(self, num_clients: int, rng: np.random.Generator) -> np.ndarray:
        raise TypeError("clients that take turns are not drawn anew in each round: use cohort")

    def released_event(self, round_event: DpEvent, num_clients: int) -> DpEvent:
        return round_event
