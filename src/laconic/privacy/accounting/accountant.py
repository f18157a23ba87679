"""The accountant: ε after so many rounds, against two adversaries, by three methods.

*Released*: the adversary sees every sum and every model but not who took part when; sampling amplifies.
*Participant*: the adversary knows the cohorts, as the server does; nothing amplifies, so ε grows with the number of
rounds in which the client took part.

Methods: `moments` is the papers' (integer λ = 1..32, ε = min over λ of (T·α(λ) − ln δ)/λ; thesis section 2.2),
`rdp` converts the same Rényi divergences better and over more orders, `pld` composes privacy loss distributions and
is tight. Divergences and loss distributions are Google's dp-accounting's; it never sees a scheme, only its events.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from laconic.parts import positive_int, probability
from laconic.privacy.accounting.promise import Promise, client_promise
from laconic.privacy.accounting.record_events import RecordEvent
from laconic.privacy.accounting.sampling import REPLACE_ONE, Sampler
from laconic.privacy.accounting.tight import Release, Releases, tight_epsilon
from laconic.privacy.mechanism.gaussian import Noise

if TYPE_CHECKING:
    from dp_accounting import DpEvent

METHODS = ("moments", "rdp", "pld")
_LARGEST_PLD = 100.0
_VISIBLE_EPSILON = 10.0
_PAPER_ORDERS = tuple(range(2, 34))  # order λ + 1 for λ = 1..32


@dataclass(frozen=True)
class Figures:
    """ε by each method; None where a method cannot answer for the sampler."""

    moments: float | None
    rdp: float | None
    pld: float | None

    def best(self, method: str) -> float:
        value = getattr(self, method)
        if value is None:
            raise ValueError(f"no {method} figure")
        return float(value)

    def to_dict(self) -> dict[str, float | None]:
        return {"moments": self.moments, "rdp": self.rdp, "pld": self.pld}


class RunAccountant(Protocol):
    """What a run asks of its accountant, whichever unit of privacy it answers for."""

    @property
    def sampler(self) -> Sampler: ...

    @property
    def num_clients(self) -> int: ...

    @property
    def units(self) -> int:
        """How many there are of what is protected: clients or records."""

    @property
    def honest_cohort(self) -> float | None:
        """How many honest clients' codes are in a usual sum; None where single codes are not hidden in one."""

    @property
    def method(self) -> str:
        """The preferred method."""

    @property
    def figures(self) -> tuple[str, ...]:
        """The methods that can answer for the released ε."""

    @property
    def promise(self) -> Promise: ...

    def released(self, rounds: int, most: int | None = None) -> Figures: ...

    def participant(self, participations: int) -> Figures: ...

    def published(self, rounds: int) -> float | None:
        """The papers' figure (moments), where it is another one than the released."""

    def released_epsilon(self, rounds: int, method: str | None = None, most: int | None = None) -> float: ...

    def participant_epsilon(self, participations: int, method: str = "pld") -> float: ...

    def amplified(self, rounds: int) -> bool: ...


@dataclass(frozen=True, kw_only=True)
class Votes:
    """Rounds before all others, with a noise and a sensitivity of their own."""

    noise: Noise
    sensitivity: float
    rounds: int


@dataclass(frozen=True, kw_only=True)
class Evaluated:
    """Rounds with a number divisible by `every`, with a noise and a sensitivity of their own."""

    noise: Noise
    sensitivity: float
    every: int


@dataclass(frozen=True)
class Repeats:
    """How many rounds of each kind were charged again."""

    votes: int = 0
    evaluations: int = 0
    training: int = 0

    def __bool__(self) -> bool:
        return self.total > 0

    @property
    def total(self) -> int:
        return self.votes + self.evaluations + self.training


@dataclass(frozen=True, kw_only=True)
class Accountant:
    """Answers for one scheme's noise under one sampler. It holds no state: the caller says how many rounds.

    Where the run begins with votes, the first of the rounds are those. Evaluations come in between.

    Args:
        sampler: who takes part in a round.
        noise: the scheme's noise part.
        num_clients: the size of the population.
        delta: δ at which ε is asked for.
        sensitivity: S, the bound on a code; only integer noise needs it.
        slack: dropouts and colluders that the noise allows for.
        groups: in how many groups a cohort is summed.
        max_participations: rounds that one client takes part in at most.
        horizon: the planned number of rounds.
        votes: the rounds of votes, if there are any.
        evaluations: the rounds that are evaluations, if any are.
        repeats: rounds that were charged again.
        cohort_dependent: whether what is released depends on who came; then sampling does not lower ε.

    Examples:
        >>> accountant = laconic.Accountant(sampler=laconic.Poisson(sampling_rate=0.1), num_clients=1000, delta=1e-5,
        ...                                 noise=laconic.Gaussian(noise_multiplier=1.0))
        >>> round(accountant.released_epsilon(50), 1)
        5.1

    References:
        docs/maths.md#the-accountants; Abadi et al. (CCS 2016) for moments; Mironov et al. (2019) for rdp; Doroshenko et
        al. (PETS 2022) for pld.
    """

    sampler: Sampler
    noise: Noise
    num_clients: int
    delta: float
    sensitivity: float = 1.0
    """S: what one client's code can measure at most. Only noise on integers depends on it."""
    slack: int = 0
    """Dropouts and colluders of a cohort, or of each group, that the noise allows for."""
    groups: int = 1
    """In how many groups each cohort is summed. A client is in one of them, so a round is still one release of it."""
    max_participations: int | None = None
    horizon: int = 0
    """The rounds that are planned: whether sampling amplifies is decided for all of them at once."""
    votes: Votes | None = None
    evaluations: Evaluated | None = None
    repeats: Repeats = Repeats()
    cohort_dependent: bool = False
    """Whether the run may stop, or lose a round, because of who took part: then that says something of it."""

    def __post_init__(self) -> None:
        probability(delta=self.delta)
        positive_int(num_clients=self.num_clients)
        self.sampler.check(self.num_clients)

    @property
    def units(self) -> int:
        return self.num_clients

    @property
    def honest_cohort(self) -> float | None:
        return self.sampler.planned_cohort(self.num_clients, self.groups) - self.slack

    @property
    def method(self) -> str:
        """The preferred method for this sampler: the tightest that can answer."""
        return self.figures[-1]

    @property
    def figures(self) -> tuple[str, ...]:
        return self.sampler.figures

    @property
    def promise(self) -> Promise:
        return client_promise(self.sampler.adjacency, self.sampler.caveat)

    def published(self, rounds: int) -> float | None:
        return None

    def with_repeats(self, repeats: Repeats) -> Accountant:
        """The same for a run in which these rounds were charged again."""
        return replace(self, repeats=repeats)

    def weakened(self, share: float) -> Accountant:
        """The same where only this share of the noise's variance is there."""
        votes = None if self.votes is None else replace(self.votes, noise=self.votes.noise.weakened(share))
        measured = self.evaluations
        if measured is not None:
            measured = replace(measured, noise=measured.noise.weakened(share))
        return replace(self, noise=self.noise.weakened(share), votes=votes, evaluations=measured)

    @property
    def least_noise_multiplier(self) -> float:
        """Of a vote or of a training round, as it is accounted for."""
        events = [self._round_event] if self.votes is None else [self._round_event, self._vote_event]
        return float(min(event.noise_multiplier for event in events))

    @property
    def evaluation_noise_multiplier(self) -> float | None:
        """Of an evaluation, as it is accounted for; None if there are none."""
        return None if self.evaluations is None else float(self._evaluation_event.noise_multiplier)

    def noise_multiplier_of(self, participations: int) -> float:
        """z of the one Gaussian that tells as much as so many participations do: 1/z² = Σ 1/z_i².

        They are of the kinds that cost most, as for the server's ε.
        """
        from dp_accounting import GaussianDpEvent

        inverse = 0.0
        for event, count in self._taken(participations):
            assert isinstance(event, GaussianDpEvent)
            inverse += count / event.noise_multiplier**2
        return float(inverse**-0.5)

    def released(self, rounds: int, most: int | None = None) -> Figures:
        """ε against someone who sees all sums and models but not the cohorts.

        `most` is how often the busiest client took part, if that is known: it counts where nothing amplifies.
        """
        if not self.amplified(rounds):
            return self._figures(self._taken(self._most(rounds, most)), METHODS)
        return self._figures(self._released(rounds), self.sampler.figures)

    def participant(self, participations: int) -> Figures:
        """ε of a client that took part so often, against someone who knows the cohorts."""
        return self._figures(self._taken(participations), METHODS)

    def released_epsilon(self, rounds: int, method: str | None = None, most: int | None = None) -> float:
        chosen = method or self.method
        if not self.amplified(rounds):
            return self._epsilon(self._taken(self._most(rounds, most)), chosen)
        return self._epsilon(self._released(rounds), chosen)

    def _released(self, rounds: int) -> Releases:
        """What so many rounds show somebody who does not know the cohorts.

        Nothing else is charged before every vote was, so the votes among the first rounds are all that there are.
        Which of the others are evaluations follows from their numbers, once those that were repeated are set apart.
        What goes beyond the plan will be repeated: it counts as the dearest kind.
        """
        numbers = max(0, rounds - self.repeats.total)
        beyond = max(0, numbers - self.horizon) if self.horizon else 0
        within = rounds - beyond
        votes = 0 if self.votes is None else min(within, self.votes.rounds + self.repeats.votes)
        measured = min(within - votes, self._evaluations_through(numbers - beyond) + self.repeats.evaluations)
        counts = [votes, measured, within - votes - measured]
        counts[self._dearest_first[0]] += beyond
        split = self._split(*counts)
        return tuple((self.sampler.released_event(event, self.num_clients), count) for event, count in split)

    @property
    def _dearest_first(self) -> list[int]:
        """The kinds of rounds that there are, by their noise: 0 votes, 1 evaluations, 2 training."""
        events = {2: self._round_event}
        if self.votes is not None:
            events[0] = self._vote_event
        if self.evaluations is not None:
            events[1] = self._evaluation_event
        return sorted(events, key=lambda kind: (events[kind].noise_multiplier, -kind))

    def _evaluations_through(self, number: int) -> int:
        """How many rounds up to this number are evaluations."""
        if self.evaluations is None:
            return 0
        votes = 0 if self.votes is None else self.votes.rounds
        return max(0, number // self.evaluations.every - votes // self.evaluations.every)

    def _taken(self, participations: int) -> Releases:
        """What a client has given that took part so often. As many were of each kind as would cost most."""
        most_votes = 0 if self.votes is None else self.votes.rounds + self.repeats.votes
        most_measured, most_trained = 0, participations
        if self.evaluations is not None:
            most_measured = participations
            if self.horizon:
                most_measured = self._evaluations_through(self.horizon) + self.repeats.evaluations
                votes = 0 if self.votes is None else self.votes.rounds
                most_trained = self.horizon - votes - self._evaluations_through(self.horizon) + self.repeats.training
        most = (most_votes, most_measured, most_trained)
        counts, left, kinds = [0, 0, 0], participations, self._dearest_first
        for kind in kinds:
            counts[kind] = min(left, most[kind])
            left -= counts[kind]
        counts[kinds[0]] += left  # more than were planned
        return self._split(*counts)

    def _split(self, votes: int, measured: int, trained: int) -> Releases:
        """So many rounds of each kind."""
        parts: list[Release] = []
        if votes:
            parts.append((self._vote_event, votes))
        if measured:
            parts.append((self._evaluation_event, measured))
        return (*parts, (self._round_event, trained))

    def amplified(self, rounds: int) -> bool:
        """Whether sampling lowers the released ε. Where that is not proven, it is the ε of every round's participant.

        With slack, a cohort below the least one is not opened, which is visible. Whether so few of the others came is
        chance that does not depend on the client, so its probability over the run is all that it adds to δ (docs/
        maths.md, what the argument needs). It must be far less than δ/100, even for the cohorts that remain when capped
        clients are gone: times 1 + e¹⁰, which no proof asks for.
        """
        if self.cohort_dependent or not self.sampler.amplifies:
            return False
        return self.visible_delta(rounds) <= self.delta / 100

    def visible_delta(self, rounds: int) -> float:
        """At least what cohorts that show themselves by being too small add to δ, where sampling amplifies."""
        rounds = max(rounds, self.horizon)
        seen = _small_cohorts(self.sampler, self.num_clients, self.slack, self.max_participations, rounds, self.groups)
        return seen * (1 + math.exp(_VISIBLE_EPSILON))

    def _most(self, rounds: int, most: int | None) -> int:
        again = min(self.repeats.total, rounds)
        if self.horizon:  # what goes beyond the plan will be repeated
            again += max(0, rounds - again - self.horizon)
        turns = self.sampler.most_participations(rounds - again) + again
        return min(x for x in (turns, self.max_participations, most) if x is not None)

    def participant_epsilon(self, participations: int, method: str = "pld") -> float:
        return self._epsilon(self._taken(participations), method)

    @property
    def _round_event(self) -> DpEvent:
        return self._event(self.noise, self.sensitivity)

    @property
    def _vote_event(self) -> DpEvent:
        assert self.votes is not None
        return self._event(self.votes.noise, self.votes.sensitivity)

    @property
    def _evaluation_event(self) -> DpEvent:
        assert self.evaluations is not None
        return self._event(self.evaluations.noise, self.evaluations.sensitivity)

    def _event(self, noise: Noise, sensitivity: float) -> DpEvent:
        return noise.event(
            sensitivity_scale=self.sampler.sensitivity_scale,
            sensitivity=sensitivity,
            largest_cohort=self.sampler.largest_cohort(self.num_clients, self.groups),
        )

    def _figures(self, releases: Releases, methods: tuple[str, ...]) -> Figures:
        values = {m: self._epsilon(releases, m) if m in methods else None for m in METHODS}
        return Figures(**values)

    def _epsilon(self, releases: Releases, method: str) -> float:
        # With slack, a hundredth of δ is kept for cohorts that show themselves by being too small (see `amplified`).
        delta = self.delta * 0.99 if self.slack else self.delta
        return composed_epsilon(releases, delta, method, replace_one=self.sampler.adjacency == REPLACE_ONE)


def epsilon(event: DpEvent | RecordEvent, count: int, delta: float, method: str, *, replace_one: bool = False) -> float:
    """ε of `count` independent releases of the event at this δ."""
    return composed_epsilon(((event, count),), delta, method, replace_one=replace_one)


def composed_epsilon(releases: Releases, delta: float, method: str, *, replace_one: bool = False) -> float:
    """ε of independent releases at this δ: Rényi divergences add up, and so do privacy losses."""
    releases = tuple((event, count) for event, count in releases if count)
    if not releases:
        return 0.0
    if method == "moments":
        divergences = _summed_divergences(releases, _PAPER_ORDERS, replace_one)
        return min(
            divergence - math.log(delta) / (order - 1)
            for order, divergence in zip(_PAPER_ORDERS, divergences, strict=True)
        )
    if method == "rdp":
        from dp_accounting.rdp import rdp_privacy_accountant as rdp

        orders = tuple(rdp.DEFAULT_RDP_ORDERS)
        return float(rdp.compute_epsilon(orders, _summed_divergences(releases, orders, replace_one), delta)[0])
    if method == "pld":
        from dp_accounting import GaussianDpEvent

        # A privacy loss distribution grows with ε; where ε is that large, rdp's bound (never smaller) says enough.
        # Moments, never smaller than rdp, are quicker to ask.
        sampled = any(not isinstance(event, GaussianDpEvent) for event, _ in releases)
        if sampled and composed_epsilon(releases, delta, "moments") > _LARGEST_PLD:
            bound = composed_epsilon(releases, delta, "rdp")
            if bound > _LARGEST_PLD:
                return bound
        *before, last = releases
        return tight_epsilon(*last, delta, *before)
    raise ValueError(f"unknown method {method}")


def _summed_divergences(releases: Releases, orders: tuple[float, ...], replace_one: bool) -> list[float]:
    total = [0.0] * len(orders)
    for event, count in releases:
        divergences = renyi_divergences(event, orders, replace_one)
        total = [known + count * more for known, more in zip(total, divergences, strict=True)]
    return total


def largest(fits: Callable[[int], bool], at_most: int) -> int:
    """The largest count in 0..at_most for which `fits` holds, given that it fails for all larger ones."""
    if at_most == 0 or fits(at_most):
        return at_most
    low, high = 0, at_most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


@functools.lru_cache(maxsize=256)
def _small_cohorts(sampler: Sampler, num_clients: int, slack: int, cap: int | None, rounds: int, groups: int) -> float:
    """At least the probability that, in some round, so few others come that one client more decides if it is opened.

    With groups, so few others into the client's own group.
    """
    least, rate = sampler.least_cohort(num_clients, slack, groups), sampler.rate_in(num_clients)
    if least <= 1 or rate >= 1 or not sampler.allows_participation_cap:
        return 0.0
    from scipy.stats import binom

    if cap is None:
        return rounds * float(binom.cdf(least - 1, num_clients - 1, rate / groups))
    open_ = rate * binom.cdf(cap - 1, range(rounds), rate) / groups
    return float(binom.cdf(least - 1, num_clients - 1, open_).sum())


@functools.lru_cache(maxsize=256)
def renyi_divergences(event: DpEvent | RecordEvent, orders: tuple[float, ...], replace_one: bool) -> tuple[float, ...]:
    """The Rényi divergences of one release at the orders."""
    if isinstance(event, RecordEvent):
        return tuple(event.divergences(orders, [renyi_divergences(part, orders, replace_one) for part in event.parts]))
    from absl import logging
    from dp_accounting import NeighboringRelation
    from dp_accounting.rdp import RdpAccountant

    # Zero-out has the formulas of add-or-remove for a (sampled) Gaussian: one sum has the client's code, one has 0.
    relation = NeighboringRelation.REPLACE_ONE if replace_one else NeighboringRelation.ADD_OR_REMOVE_ONE
    accountant = RdpAccountant(orders=list(orders), neighboring_relation=relation)
    # An order whose series does not converge is left out, which only makes ε larger: no reason to alarm anyone. So
    # is one that is not a number (there is next to no noise): dp-accounting would take that for an ε of 0.
    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    try:
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            accountant.compose(event)
    except ArithmeticError:  # a σ whose square is 0 as a float
        return (math.inf,) * len(orders)
    finally:
        logging.set_verbosity(verbosity)
    return tuple(math.inf if math.isnan(d) else float(d) for d in accountant._rdp)
