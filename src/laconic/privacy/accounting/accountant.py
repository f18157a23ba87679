"""The accountant: ε after so many rounds, against two adversaries, by three methods; and what it is about, in words.

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from laconic.errors import ConfigError
from laconic.parts import probability
from laconic.privacy.accounting.releases import (
    CENTRAL,
    CLIENT,
    EACH,
    METHODS,
    OUTSIDER,
    SERVER,
    SHARES,
    Release,
    Shown,
    compose,
    composed,
    delta_left,
    release_of,
)
from laconic.privacy.accounting.sampling import Sampler
from laconic.privacy.mechanism.gaussian import Noise


@dataclass(frozen=True)
class Promise:
    """The words of a statement, for everyone. `one` is the unit in one word; the others are (parts of) sentences."""

    one: str
    unit: str
    relation: str
    meaning: str
    released: str
    participant: str
    duties: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()
    covers_server: bool = True
    """Whether there is an ε against the server at all."""


_ADJACENCY = {
    "zero-out": "one client's data contributes nothing (its code is 0); the client stays and adds its noise share",
    "replace-one": "one client's data is replaced by any other data; sums differ by at most 2·clip_norm",
}


def client_promise(adjacency: str, caveat: str) -> Promise:
    """Client level: all records of one client together."""
    return Promise(
        one="client",
        unit="one client with all its records",
        relation=adjacency,
        meaning=_ADJACENCY[adjacency],
        released="sees every released sum and every model, but not who took part in which round, nor how many",
        participant="also knows who took part in which round, as the server, the clients of a cohort and colluders do",
        duties=(
            "for the outsider's ε the server keeps cohorts and their sizes to itself (so also the run folder)",
            "for the outsider's ε the server tops up the noise of every release to the same variance, whoever came",
        ),
        caveats=(caveat,) if caveat else (),
    )


def central_promise(adjacency: str, bands: int) -> Promise:
    """Client level, with noise that the server adds: it holds for all but the server."""
    kept = f", and so does its checkpoint, which holds those of the last {bands - 1} rounds" if bands > 1 else ""
    return Promise(
        one="client",
        unit="one client with all its records",
        relation=adjacency,
        meaning="one client's data contributes nothing (its code is 0); the client stays",
        released="sees every released sum and every model, and may know who took part in which round",
        participant="is the server: it is NOT covered, as it adds the noise itself and sees every sum without it",
        duties=(
            "the server is trusted (central noise): it adds the noise before it releases anything, and the sums without"
            f" noise stay secret{kept}",
        ),
        caveats=("no ε holds against the server itself, nor against whoever sees its memory or its checkpoints",),
        covers_server=False,
    )


def inside_promise(one: str, *, coins: float, max_owners: int, everybody: bool) -> Promise:
    """A record, or a patient with all its records, inside the masked sum of its owners, who add the noise in shares."""
    where = "one client" if max_owners == 1 else f"up to {max_owners} clients"
    unit = f"one record of {where}" if one == "record" else f"one patient with all records at {where}"
    drawn = "" if coins == 1 else f", but not which {one}s a client drew"
    duties = [f"which {one}s a client draws is decided by coins that only the client knows"] if coins < 1 else []
    most = where.removeprefix("up to ")
    duties.append(f"no {one} is at more than {most}: this is assumed and cannot be checked")
    same = "; as all clients take part in every round, its ε is that of an outsider" if everybody else ""
    caveats = ["a whole client has nothing: no ε holds for all its data together"]
    if one == "record":
        caveats.append("a person with k records is protected k times less: each is protected by itself")
    return Promise(
        one=one,
        unit=unit,
        relation="zero-out",
        meaning=(
            f"one {one} contributes nothing to any sum; nothing else depends on it, also not the number by which sums"
            " are divided"
        ),
        released=f"sees every released sum and every model, and may see who took part{drawn}",
        participant=f"knows who took part in which round, as the server, other clients and colluders do{drawn}{same}",
        duties=tuple(duties),
        caveats=tuple(caveats),
    )


def record_promise(*, as_published: bool, caveats: tuple[str, ...]) -> Promise:
    """Record level: single records of any client, which clients protect themselves."""
    released = "sees every model, and may see in them who took part; asked before the cohorts are drawn"
    if as_published:
        released = "sees every model, but cannot tell from them who took part (CHIL'21, Theorem 3.1)"
    return Promise(
        one="record",
        unit="one record of one client, not a client and not a person: whoever has k records is protected k times less",
        relation="add-or-remove",
        meaning="one client has one record more or less; everything else stays",
        released=released,
        participant="sees every client's message in the clear, as the server does, and knows who took part when",
        duties=("which of its records a client drew in a step stays with the client",),
        caveats=caveats,
    )


Repeats = Mapping[str, int]
"""By phase, how many of its rounds were charged again."""
_RESERVED = 0.01
"""The part of δ that is kept for cohorts that show themselves by being too small, where there is slack."""
_VISIBLE_EPSILON = 10.0


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


@dataclass(frozen=True, kw_only=True)
class RunAccountant:
    """The releases of a run, and what concerns all of them: δ, how long, who may show, how often one may come.

    It holds no state: the caller says how many rounds were charged.

    Args:
        releases: one for each phase. All have the same unit and the same sampler.
        delta: δ at which ε is asked for.
        slack: dropouts and colluders of a cohort, or of each group, that the noise allows for.
        groups: in how many groups each cohort is summed. A client is in one of them, so a round is one release of it.
        max_participations: rounds that one client takes part in at most.
        horizon: the planned number of rounds; 0 where none is planned.
        cohort_dependent: whether the run may stop, or lose a round, because of who took part.
        num_units: how many units there are, if they are no clients and that is known.
    """

    releases: tuple[Release, ...]
    delta: float
    slack: int = 0
    groups: int = 1
    max_participations: int | None = None
    horizon: int = 0
    cohort_dependent: bool = False
    num_units: int | None = None

    def __post_init__(self) -> None:
        probability(delta=self.delta)
        if not self.releases or self.releases[-1].rounds is not None:
            raise ConfigError("the last of a run's releases is that of all rounds which belong to no other phase")

    @property
    def main(self) -> Release:
        """The release of the rounds that belong to no other phase: of training."""
        return self.releases[-1]

    @property
    def unit(self) -> str:
        return self.main.unit

    @property
    def sampler(self) -> Sampler:
        return self.main.sampler

    @property
    def num_clients(self) -> int:
        return self.main.num_clients

    @property
    def units(self) -> int:
        """How many there are of what is protected. There are no fewer records or patients than clients."""
        return self.num_clients if self.num_units is None else self.num_units

    @property
    def in_shares(self) -> bool:
        """Whether clients add the noise together, so that some of it is missing if some of them add none."""
        return self.main.added_by == SHARES

    @property
    def honest_cohort(self) -> float | None:
        """How many honest clients' codes are in a usual sum; None where single codes are not hidden in one."""
        if self.main.added_by == EACH:
            return None
        return self.sampler.planned_cohort(self.num_clients, self.groups) - self.slack

    @property
    def figures(self) -> tuple[str, ...]:
        """The methods that can answer for the outsider's ε, the preferred one last."""
        return self.main.figures

    @property
    def method(self) -> str:
        return self.figures[-1]

    @property
    def promise(self) -> Promise:
        main = self.main
        if main.added_by == CENTRAL:
            return central_promise(self.sampler.adjacency, len(main.bands))
        if main.added_by == SHARES:
            if main.unit == CLIENT:
                return client_promise(self.sampler.adjacency, self.sampler.caveat)
            everybody = self.sampler.rate_in(self.num_clients) >= 1
            return inside_promise(main.unit, coins=main.coins, max_owners=main.max_owners, everybody=everybody)
        as_published = not self.sampler.proven
        unproven = (
            "the released ε is that of CHIL'21, Theorem 3.1, which takes for granted that no model shows which clients"
            " took part: the published figure, not a proven one"
        )
        caveats = [text for text in (unproven if as_published else "", main.caveat) if text]
        return record_promise(as_published=as_published, caveats=tuple(caveats))

    def with_repeats(self, repeats: Repeats) -> RunAccountant:
        """The accountant of a run in which so many rounds of each phase were charged again."""
        releases = tuple(replace(one, repeats=repeats.get(one.phase, 0)) for one in self.releases)
        return replace(self, releases=releases)

    def weakened(self, share: float) -> RunAccountant:
        """The accountant of a run with only this share of the variance of clients' noise shares."""
        releases = (replace(one, noise_left=share) if one.added_by == SHARES else one for one in self.releases)
        return replace(self, releases=tuple(releases))

    def released(self, rounds: int, most: int | None = None) -> Figures:
        """ε against the outsider after so many charged rounds, by every method that can answer.

        `most` is how often the busiest client took part, if that is known: it counts where nothing amplifies.
        """
        methods = self.figures if self.amplified(rounds) else METHODS
        return Figures(**{m: self.released_epsilon(rounds, m, most) if m in methods else None for m in METHODS})

    def participant(self, participations: int) -> Figures:
        """ε against the server, of a client that took part so often, or of a unit of it."""
        if not self.main.covers_server:
            return Figures(None, None, None)
        return Figures(**{method: self.participant_epsilon(participations, method) for method in METHODS})

    def published(self, rounds: int) -> float | None:
        """ε by CHIL'21, Theorem 3.1 (moments, as there), where that is another figure than the released one."""
        if self.main.added_by != EACH or not self.sampler.proven:
            return None
        return composed([Shown(self.main.published, rounds)], self._left, "moments")

    def released_epsilon(self, rounds: int, method: str | None = None, most: int | None = None) -> float:
        releases = self.after(rounds, most)
        return compose(releases, self.delta, against=OUTSIDER, unit=self.unit, figure=method or self.method)

    def participant_epsilon(self, participations: int, method: str = "pld", unit: str | None = None) -> float:
        """The server's ε by the tightest, or another, method; of the run's own unit, or of a part of it."""
        if not self.main.covers_server:
            return math.inf
        releases = self._with_taken(self.releases, participations)
        return compose(releases, self.delta, against=SERVER, unit=unit or self.unit, figure=method)

    def after(self, rounds: int, most: int | None = None) -> tuple[Release, ...]:
        """The releases after so many charged rounds, with their counts; the busiest client took part `most` times.

        Nothing else is charged before all rounds of a phase with a last one were, so as many of the first rounds are
        its own. Which of the others belong to which phase follows from their numbers, once those that were repeated are
        set apart. What goes beyond the plan will be repeated: it counts as the phase with the least noise.
        """
        amplified = self.amplified(rounds)
        numbers = max(0, rounds - self._repeats)
        beyond = max(0, numbers - self.horizon) if self.horizon else 0
        left, counts = rounds - beyond, []
        for release in self.releases[:-1]:
            assert release.rounds is not None
            own = release.rounds.through(release.rounds.last or numbers - beyond) + release.repeats
            counts.append(min(left, own))
            left -= counts[-1]
        counts.append(left)
        counts[self._dearest_first[0]] += beyond
        again = min(rounds, self._repeats + beyond)
        releases = [
            replace(one, charged=count, again=again, amplified=amplified)
            for one, count in zip(self.releases, counts, strict=True)
        ]
        return self._with_taken(releases, self._most(rounds, None if amplified else most))

    def _with_taken(self, releases: Sequence[Release], participations: int) -> tuple[Release, ...]:
        """The releases of a client that took part so often: as many of each phase as would cost most."""
        counts, left, order = [0] * len(releases), participations, self._dearest_first
        for index in order:
            counts[index] = min(left, self._most_of(index, participations))
            left -= counts[index]
        counts[order[0]] += left  # more than were planned
        reserved = _RESERVED if self.slack else 0.0
        return tuple(replace(one, taken=n, reserved=reserved) for one, n in zip(releases, counts, strict=True))

    def _most_of(self, index: int, participations: int) -> int:
        """How many rounds of a phase one client can have taken part in."""
        rounds = self.releases[index].rounds
        ends = rounds is not None and rounds.last is not None
        comes_back = any(one.rounds is not None and one.rounds.last is None for one in self.releases)
        if not ends and not (comes_back and self.horizon):
            return participations
        return self.planned[index] + self.releases[index].repeats

    @property
    def planned(self) -> list[int]:
        """How many of the planned rounds each phase has."""
        counts = [one.rounds.through(one.rounds.last or self.horizon) for one in self.releases if one.rounds]
        return [*counts, self.horizon - sum(counts)]

    @property
    def _repeats(self) -> int:
        return sum(one.repeats for one in self.releases)

    @property
    def _dearest_first(self) -> list[int]:
        return sorted(range(len(self.releases)), key=lambda index: (self.releases[index].multiplier, -index))

    def amplified(self, rounds: int) -> bool:
        """Whether sampling lowers the released ε. Where that is not proven, it is the ε of every round's participant.

        With slack, a cohort below the least one is not opened, which is visible. Whether so few of the others came is
        chance that does not depend on the client, so its probability over the run is all that it adds to δ (docs/
        maths.md, what the argument needs). It must be far less than δ/100, even for the cohorts that remain when capped
        clients are gone: times 1 + e¹⁰, which no proof asks for.
        """
        if self.cohort_dependent or not self.sampler.amplifies:
            return False
        if self.unit != CLIENT and self.main.added_by == SHARES:  # the owner's coins amplify, and are in every figure
            return False
        return self.visible_delta(rounds) <= self._left / 100

    def visible_delta(self, rounds: int) -> float:
        """At least what cohorts that show themselves by being too small add to δ, where sampling amplifies."""
        rounds = max(rounds, self.horizon)
        seen = _small_cohorts(self.sampler, self.num_clients, self.slack, self.max_participations, rounds, self.groups)
        return seen * (1 + math.exp(_VISIBLE_EPSILON))

    def _most(self, rounds: int, most: int | None) -> int:
        again = min(self._repeats, rounds)
        if self.horizon:  # what goes beyond the plan will be repeated
            again += max(0, rounds - again - self.horizon)
        turns = self.sampler.most_participations(rounds - again) + again
        owners = self.main.max_owners  # a unit is in a round if any of its owners is
        limits = [owners * limit for limit in (self.max_participations, most) if limit is not None]
        return min([turns, *limits])

    @property
    def _left(self) -> float:
        return delta_left(self.releases, self.delta)


def Accountant(
    *,
    sampler: Sampler,
    noise: Noise,
    num_clients: int,
    delta: float,
    sensitivity: float = 1.0,
    slack: int = 0,
    groups: int = 1,
    max_participations: int | None = None,
    horizon: int = 0,
    others: Sequence[Release] = (),
    cohort_dependent: bool = False,
) -> RunAccountant:
    """What answers for one scheme's noise under one sampler, where whole clients are protected.

    Args:
        sampler: who takes part in a round.
        noise: the scheme's noise part, correlated over rounds or not.
        num_clients: the size of the population.
        delta: δ at which ε is asked for.
        sensitivity: S, the bound on a code; only integer noise needs it.
        slack: dropouts and colluders that the noise allows for.
        groups: in how many groups a cohort is summed.
        max_participations: rounds that one client takes part in at most.
        horizon: the planned number of rounds.
        others: releases of rounds that do not train, such as votes and evaluations.
        cohort_dependent: whether what is released depends on who came; then sampling does not lower ε.

    Returns:
        An accountant, which says ε after any number of rounds.

    Examples:
        >>> accountant = laconic.Accountant(sampler=laconic.Poisson(sampling_rate=0.1), num_clients=1000, delta=1e-5,
        ...                                 noise=laconic.Gaussian(noise_multiplier=1.0))
        >>> round(accountant.released_epsilon(50), 1)
        5.1
        >>> turns = laconic.Accountant(
        ...     sampler=laconic.Cyclic(separation=10), num_clients=1000, delta=1e-5,
        ...     noise=laconic.CorrelatedGaussian(noise_multiplier=2.0, coefficients=(1024, 512)))
        >>> round(turns.released_epsilon(50), 2), turns.participant_epsilon(5)
        (5.68, inf)

    References:
        docs/maths.md#the-accountants; Abadi et al. (CCS 2016) for moments; Mironov et al. (2019) for rdp; Doroshenko et
        al. (PETS 2022) for pld; Denisov et al. (2022) for correlated noise.
    """
    main = release_of(noise, sampler=sampler, num_clients=num_clients, sensitivity=sensitivity, groups=groups)
    return RunAccountant(
        releases=(*others, main),
        delta=delta,
        slack=slack,
        groups=groups,
        max_participations=max_participations,
        horizon=horizon,
        cohort_dependent=cohort_dependent,
    )


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
