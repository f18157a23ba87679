"""What was promised: limits on either ε, when one more round would break them, and the smallest σ that keeps them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from laconic.errors import ConfigError, PrivacyError
from laconic.figures import at_most, rounded_up
from laconic.parts import Part, one_of, positive, positive_int, probability
from laconic.privacy.accounting.accountant import Accountant, RunAccountant
from laconic.privacy.accounting.releases import EVALUATIONS, METHODS, VOTES, Release
from laconic.privacy.accounting.sampling import Sampler
from laconic.privacy.mechanism.gaussian import Gaussian, Noise


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


_SMALLEST, _LARGEST = 0.05, 10_000.0
_CHEAPER = {
    VOTES: "lower ⟨vote-share⟩, or raise ⟨vote-noise-multiplier⟩",
    EVALUATIONS: (
        "lower ⟨evaluation-share⟩, raise ⟨evaluation-noise-multiplier⟩, or evaluate less often (⟨evaluate-every⟩)"
    ),
}


def calibrate_noise(
    *,
    epsilon: float,
    delta: float,
    rounds: int,
    sampler: Sampler,
    num_clients: int,
    method: str | None = None,
    participations: int | None = None,
    noise: Callable[[float], Noise] | None = None,
    sensitivity: float = 1.0,
    slack: int = 0,
    groups: int = 1,
    max_participations: int | None = None,
    others: Sequence[Release] = (),
    cohort_dependent: bool = False,
    horizon: int | None = None,
) -> float:
    """The smallest σ, rounded up to four decimals, at which the ε of the run stays within the given one.

    The released ε after `rounds` rounds, or, with `participations`, the participant's after so many. `noise` makes the
    noise part from σ (Gaussian unless given); integer noise also needs the sensitivity of the code. The noise of
    `others` stays as it is. If what is released is `cohort_dependent`, sampling does not lower the ε.

    Args:
        epsilon: the ε that must not be exceeded.
        delta: δ.
        rounds: how many.
        sampler: who takes part in a round.
        num_clients: the size of the population.
        method: 'pld', 'rdp' or 'moments'; the tightest that the sampler allows, unless given.
        participations: the server's ε after so many, instead of the outsider's.
        noise: makes the noise part from σ.
        sensitivity: S, for integer noise.
        slack: dropouts and colluders that the noise allows for.
        groups: in how many groups a cohort is summed.
        max_participations: rounds that one client takes part in at most.
        others: releases of rounds that do not train, such as votes and evaluations.
        cohort_dependent: whether what is released depends on who came.
        horizon: how many of the rounds are planned, if the others are spare ones.

    Returns:
        σ.

    Examples:
        >>> laconic.calibrate_noise(epsilon=4.0, delta=1e-5, rounds=50, sampler=laconic.Poisson(sampling_rate=0.1),
        ...                         num_clients=1000, method="rdp")
        1.2288

    References:
        docs/maths.md#calibration
    """
    make = noise or (lambda sigma: Gaussian(noise_multiplier=sigma))

    def accountant(noise_multiplier: float) -> RunAccountant:
        return Accountant(
            sampler=sampler,
            noise=make(noise_multiplier),
            num_clients=num_clients,
            delta=delta,
            sensitivity=sensitivity,
            slack=slack,
            groups=groups,
            max_participations=max_participations,
            horizon=rounds if horizon is None else horizon,
            others=others,
            cohort_dependent=cohort_dependent,
        )

    return smallest_noise(accountant, epsilon=epsilon, rounds=rounds, method=method, participations=participations)


def of_phase(accountant: RunAccountant, phase: str) -> tuple[RunAccountant, int]:
    """A phase of the run as a run of its own, and how many rounds that has."""
    names = [release.phase for release in accountant.releases]
    release, rounds = accountant.releases[names.index(phase)], accountant.planned[names.index(phase)]
    return replace(accountant, releases=(replace(release, rounds=None),), horizon=rounds), rounds


def smallest_noise(
    accountant: Callable[[float], RunAccountant],
    *,
    epsilon: float,
    rounds: int,
    method: str | None = None,
    participations: int | None = None,
) -> float:
    """The least σ that is enough. `accountant` makes that of the run from a σ, for the last of its releases."""
    positive(epsilon=epsilon)
    positive_int(rounds=rounds)
    example = accountant(1.0)
    delta, chosen = example.delta, method or example.method
    one_of(METHODS, accountant=chosen)
    if participations is None and chosen not in example.figures:
        raise ConfigError(
            f"accountant '{chosen}' is not available for {type(example.sampler).__name__} sampling:"
            f" use ⟨accountant⟩ {example.method}"
        )
    for release in example.releases[:-1] if participations is None else ():
        alone, planned = of_phase(example, release.phase)
        cost = alone.released_epsilon(planned, chosen) if planned else 0.0
        if cost >= epsilon:
            raise PrivacyError(
                f"the {release.phase} alone cost ε = {at_most(cost)} of ⟨epsilon⟩ {rounded_up(epsilon)} ({chosen}):"
                f" {_CHEAPER.get(release.phase, 'raise their noise multiplier')}"
            )
    floor = -math.log(delta) / 32
    if chosen == "moments" and epsilon <= floor:
        raise PrivacyError(
            f"the papers' moments accountant (λ up to 32) cannot show an epsilon below {at_most(floor)} at delta"
            f" {rounded_up(delta)}: use ⟨accountant⟩ rdp or pld"
        )

    def excess(noise_multiplier: float, by: str) -> float:
        if participations is not None:
            return accountant(noise_multiplier).participant_epsilon(participations, by) - epsilon
        return accountant(noise_multiplier).released_epsilon(rounds, by) - epsilon

    # Privacy loss distributions get huge where σ is far too small, so they are asked only near the answer:
    # rdp's σ is an upper bound of theirs.
    rough = "rdp" if chosen == "pld" else chosen
    high = 1.0
    while excess(high, rough) > 0:
        high *= 2
        if high > _LARGEST:
            raise PrivacyError(
                f"no noise_multiplier up to {_LARGEST:g} reaches epsilon {rounded_up(epsilon)} at delta"
                f" {rounded_up(delta)}: raise ⟨epsilon⟩ or ⟨delta⟩, or run fewer rounds"
            )
    sigma = _root(lambda s: excess(s, rough), high)
    if chosen != rough:
        sigma = _root(lambda s: excess(s, chosen), sigma)
    return sigma


def _root(excess: Callable[[float], float], high: float) -> float:
    """The smallest σ with four decimals at which ε is not exceeded, given one at which it is not."""
    from scipy.optimize import brentq

    low = high
    while excess(low) <= 0:
        if low <= _SMALLEST:
            return _SMALLEST
        low, high = low * 0.8, low
    sigma: float = math.ceil(brentq(excess, low, high, xtol=1e-5) * 1e4) / 1e4
    while excess(sigma) > 0:
        sigma = round(sigma + 1e-4, 4)
    return sigma
