"""Releases as data: `compose` gives the ε of what a run shows when its rounds are counted one by one.

The other side is written for one round at a time, on dp-accounting's events. It knows no releases, and of the package
only what makes its samplers and its noise.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from dp_accounting import (
    DpEvent,
    GaussianDpEvent,
    NeighboringRelation,
    PoissonSampledDpEvent,
    SampledWithoutReplacementDpEvent,
)
from dp_accounting.rdp import RdpAccountant
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from laconic.privacy.accounting.accountant import Figures, RunAccountant
from laconic.privacy.accounting.releases import (
    EACH,
    EVALUATIONS,
    OUTSIDER,
    RECORD,
    SERVER,
    TRAINING,
    VOTES,
    Release,
    Rounds,
    compose,
    release_of,
)
from laconic.privacy.accounting.sampling import AsPublished, Cyclic, FixedSize, Poisson, Sampler
from laconic.privacy.accounting.tight import gaussian_epsilon
from laconic.privacy.mechanism.correlated import CorrelatedGaussian
from laconic.privacy.mechanism.discrete_gaussian import DiscreteGaussian
from laconic.privacy.mechanism.gaussian import Gaussian, Noise

SIGMAS = (1.0, 1.3, 2.0, 5.0)
CLIENTS, DELTA = 500, 1e-5
ORDERS = list(range(2, 34))
"""Those of the papers' moments: whole numbers, which are quick to ask."""
SAMPLERS = (
    Poisson(sampling_rate=0.02),
    Poisson(sampling_rate=0.1),
    Poisson(sampling_rate=1.0),
    FixedSize(cohort_size=50),
    AsPublished(cohort_size=50),
    Cyclic(separation=1),
    Cyclic(separation=7),
)


SIGNS = DiscreteGaussian(noise_multiplier=2.0, signs=True)


@dataclass(frozen=True)
class Kind:
    """A kind of rounds: its noise, and the bound of its codes."""

    name: str
    noise: Noise
    bound: float

    def sigma(self, left: float, largest_cohort: int) -> float:
        """σ as it counts: of the variance that is `left` of noise on integers, smoothing takes 2² of at least ξ²."""
        sigma = self.noise.noise_multiplier  # type: ignore[attr-defined]
        if isinstance(self.noise, Gaussian):
            return float(sigma * left**0.5)
        if left < 1:
            sigma *= max((left - 1 / 256) / (1 - 1 / 256), 1e-12) ** 0.5
        scale = max(32.0, 4 * largest_cohort**0.5, self.bound * sigma if self.noise.for_signs else 0.0)
        return float(sigma * (1 - 4 / scale**2) ** 0.5)


@dataclass(frozen=True)
class Setting:
    """A run that protects clients."""

    sampler: Sampler
    planned: int
    training: Kind
    votes: Kind | None = None
    vote_rounds: int = 0
    evaluations: Kind | None = None
    every: int = 0
    again: dict[str, int] = field(default_factory=dict)
    left: float = 1.0

    @property
    def kinds(self) -> list[Kind]:
        return [kind for kind in (self.votes, self.evaluations, self.training) if kind is not None]

    def kind_of(self, round: int) -> Kind:
        if self.votes is not None and round <= self.vote_rounds:
            return self.votes
        if self.evaluations is not None and round % self.every == 0:
            return self.evaluations
        return self.training

    def sigma(self, kind: Kind) -> float:
        scale = 2 if type(self.sampler) is FixedSize else 1
        return kind.sigma(self.left, self.sampler.largest_cohort(CLIENTS)) / scale

    @property
    def charged(self) -> Counter[str]:
        """All planned rounds, and those that were charged again."""
        return Counter(self.kind_of(round).name for round in range(1, self.planned + 1)) + Counter(self.again)

    @property
    def accountant(self) -> RunAccountant:
        about: dict[str, Any] = {"sampler": self.sampler, "num_clients": CLIENTS}
        rounds = {VOTES: Rounds(last=self.vote_rounds or None), TRAINING: None}
        rounds[EVALUATIONS] = Rounds(after=self.vote_rounds, every=self.every or 1)
        releases = [
            release_of(kind.noise, sensitivity=kind.bound, phase=kind.name, rounds=rounds[kind.name], **about)
            for kind in self.kinds
        ]
        run = RunAccountant(releases=tuple(releases), delta=DELTA, horizon=self.planned)
        run = run.with_repeats(self.again) if self.again else run
        return run if self.left == 1 else run.weakened(self.left)


@st.composite
def kinds(draw: st.DrawFn, name: str) -> Kind:
    sigma, bound = draw(st.sampled_from(SIGMAS)), draw(st.sampled_from((0.5, 40.0)))
    noise: Noise = DiscreteGaussian(noise_multiplier=sigma, signs=draw(st.booleans()))
    return Kind(name, draw(st.sampled_from((noise, Gaussian(noise_multiplier=sigma)))), bound)


@st.composite
def runs(draw: st.DrawFn) -> Setting:
    first, every = draw(st.sampled_from((0, 1, 4))), draw(st.sampled_from((0, 2, 5)))
    votes = draw(kinds(VOTES)) if first else None
    evaluations = draw(kinds(EVALUATIONS)) if every else None
    names = [TRAINING] + [VOTES] * bool(first) + [EVALUATIONS] * bool(every)
    return Setting(
        sampler=draw(st.sampled_from(SAMPLERS)),
        planned=draw(st.integers(first + 1, 40)),
        training=draw(kinds(TRAINING)),
        votes=votes,
        vote_rounds=first,
        evaluations=evaluations,
        every=every,
        again={name: draw(st.integers(1, 3)) for name in names if draw(st.booleans())},
        left=draw(st.sampled_from((1.0, 1.0, 0.8, 0.4))),
    )


def by_moments(events: Iterable[tuple[DpEvent, int]]) -> float:
    accountant = RdpAccountant(orders=ORDERS)
    for event, count in events:
        if count:
            accountant.compose(event, count)
    return min(d - math.log(DELTA) / (a - 1) for a, d in zip(ORDERS, accountant._rdp, strict=True))


def by_rdp(events: Iterable[tuple[DpEvent, int]], *, replace_one: bool = False) -> float:
    relation = NeighboringRelation.REPLACE_ONE if replace_one else NeighboringRelation.ADD_OR_REMOVE_ONE
    accountant = RdpAccountant(neighboring_relation=relation)
    for event, count in events:
        if count:
            accountant.compose(event, count)
    return float(accountant.get_epsilon(DELTA))


def sampled(sampler: Sampler, event: DpEvent) -> DpEvent:
    if isinstance(sampler, Cyclic) or sampler.rate_in(CLIENTS) == 1:
        return event
    if type(sampler) is FixedSize:
        return SampledWithoutReplacementDpEvent(CLIENTS, sampler.cohort_size, event)
    return PoissonSampledDpEvent(sampler.rate_in(CLIENTS), event)


@settings(max_examples=60, deadline=None)
@given(run=runs())
def test_the_outsiders_figure_is_that_of_the_rounds_one_by_one(run: Setting) -> None:
    counts = run.charged
    if isinstance(run.sampler, Cyclic):  # nothing amplifies: it is the figure of the client with the first turn
        rounds = sum(run.again.values()) + math.ceil(run.planned / run.sampler.separation)
        same_as_dearest(run, run.accountant.released_epsilon(counts.total(), "pld"), rounds)
        return
    events = [(sampled(run.sampler, GaussianDpEvent(run.sigma(kind))), counts[kind.name]) for kind in run.kinds]
    if type(run.sampler) is not FixedSize:  # there the moments accountant has no answer
        assert run.accountant.released_epsilon(counts.total(), "moments") == pytest.approx(by_moments(events), rel=1e-9)


def dearest(run: Setting, participations: int) -> float:
    """The largest ε over all ways in which a client's participations may be spread over the kinds of rounds."""
    most = [min(run.charged[kind.name], participations) for kind in run.kinds]
    splits = itertools.product(*(range(count + 1) for count in most))
    precision = [run.sigma(kind) ** -2 for kind in run.kinds]
    worst = max(
        sum(count * each for count, each in zip(split, precision, strict=True))
        for split in splits
        if sum(split) == participations
    )
    return gaussian_epsilon(worst**-0.5, DELTA)


@settings(max_examples=100, deadline=None)
@given(run=runs(), data=st.data())
def test_the_servers_figure_is_that_of_the_worst_split(run: Setting, data: st.DataObject) -> None:
    participations = data.draw(st.integers(1, run.charged.total()))
    same_as_dearest(run, run.accountant.participant_epsilon(participations), participations)


def same_as_dearest(run: Setting, mine: float, participations: int) -> None:
    """Exactly, where evaluations tell how many of the other rounds there are; else no less than it."""
    theirs = dearest(run, participations)
    assert mine == pytest.approx(theirs, rel=1e-9) if run.every else mine >= theirs * (1 - 1e-9)


@pytest.mark.parametrize("left", [1.0, 0.8])
def test_a_fixed_size_is_composed_by_rdp(left: float) -> None:
    votes, training = Kind(VOTES, Gaussian(noise_multiplier=5.0), 1.0), Kind(TRAINING, SIGNS, 40.0)
    run = Setting(SAMPLERS[3], 10, training, votes=votes, vote_rounds=2, again={TRAINING: 1}, left=left)
    events = [(sampled(run.sampler, GaussianDpEvent(run.sigma(kind))), run.charged[kind.name]) for kind in run.kinds]
    assert run.accountant.released_epsilon(11, "rdp") == pytest.approx(by_rdp(events, replace_one=True), rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(
    sampler=st.sampled_from(SAMPLERS[:5]),
    sigma=st.sampled_from(SIGMAS),
    coins=st.sampled_from((0.05, 0.4, 1.0)),
    steps=st.integers(1, 3),
    rounds=st.integers(1, 60),
    cap=st.sampled_from((None, 2)),
)
def test_records_are_drawn_in_the_rounds_of_their_clients(
    sampler: Sampler, sigma: float, coins: float, steps: int, rounds: int, cap: int | None
) -> None:
    """A client comes with probability C; then each of its steps is a sampled Gaussian. A cap is a bound as well."""
    assume(sampler.proven)
    release = Release(
        unit=RECORD,
        added_by=EACH,
        noise_multiplier=sigma,
        coins=coins,
        steps=steps,
        sampler=sampler,
        num_clients=CLIENTS,
    )
    run = RunAccountant(releases=(release,), delta=DELTA, max_participations=cap)
    step = GaussianDpEvent(sigma) if coins == 1 else PoissonSampledDpEvent(coins, GaussianDpEvent(sigma))
    once = RdpAccountant(orders=ORDERS).compose(step)._rdp
    exponents = [(a - 1) * steps * each for a, each in zip(ORDERS, once, strict=True)]
    assume(max(exponents) < 600)
    rate, most = sampler.rate_in(CLIENTS), min(rounds, cap or rounds)
    moments = [rounds * math.log1p(rate * math.expm1(exponent)) - math.log(DELTA) for exponent in exponents]
    theirs = min(moment / (a - 1) for a, moment in zip(ORDERS, moments, strict=True))
    known = by_moments([(step, steps * most)])
    assert run.participant_epsilon(most, "moments") == pytest.approx(known, rel=1e-9)
    assert run.released_epsilon(rounds, "moments") == pytest.approx(min(known, theirs), rel=1e-9)


@pytest.mark.parametrize("method", ["moments", "rdp", "pld"])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_votes_are_not_forgotten(sampler: Sampler, method: str) -> None:
    """The sabotaged twin: a run whose weaker votes are left out has a smaller figure, by every method."""
    weak = Kind(VOTES, Gaussian(noise_multiplier=0.7), 1.0)
    run = Setting(sampler, 12, Kind(TRAINING, Gaussian(noise_multiplier=2.0), 1.0), votes=weak, vote_rounds=3)
    without = replace(run, votes=None, vote_rounds=0)
    if method in sampler.figures:
        assert run.accountant.released_epsilon(12, method) > without.accountant.released_epsilon(12, method)


def test_a_release_is_data() -> None:
    """It is written down and read back, and its figures with it."""
    release = release_of(DiscreteGaussian(noise_multiplier=2.0), sampler=SAMPLERS[0], num_clients=CLIENTS)
    run = RunAccountant(releases=(replace(release, rounds=Rounds(last=3)), release), delta=DELTA, horizon=10)
    after = run.after(8)
    again = [Release.from_dict(one.to_dict()) for one in after]
    assert again == list(after) and again[0].rounds is not None and 3 in again[0].rounds and 4 not in again[0].rounds
    for against in (OUTSIDER, SERVER):
        assert compose(again, DELTA, against=against) == compose(after, DELTA, against=against) > 0


def test_releases_of_several_runs_are_composed_together() -> None:
    """Of one node's data: two runs with other noise and other samplers cost what both of their releases do."""
    first = Setting(SAMPLERS[0], 20, Kind(TRAINING, Gaussian(noise_multiplier=1.3), 1.0)).accountant.after(20)
    second = Setting(SAMPLERS[1], 5, Kind(TRAINING, Gaussian(noise_multiplier=5.0), 1.0)).accountant.after(5)
    counted = [(20, 0.02, 1.3), (5, 0.1, 5.0)]
    theirs = by_rdp([(PoissonSampledDpEvent(q, GaussianDpEvent(z)), n) for n, q, z in counted])
    assert compose([*first, *second], DELTA, against=OUTSIDER, figure="rdp") == pytest.approx(theirs, rel=1e-9)
    precision = sum(n / z**2 for n, _, z in counted)
    whole = gaussian_epsilon(precision**-0.5, DELTA)
    assert compose([*first, *second], DELTA, against=SERVER) == pytest.approx(whole, rel=1e-9)
    of_a_record = gaussian_epsilon((4 * precision) ** -0.5, DELTA)
    for against in (OUTSIDER, SERVER):  # a record more or less moves a code by 2·S, and nothing amplifies that
        found = compose([*first, *second], DELTA, against=against, unit=RECORD)
        assert found == pytest.approx(of_a_record, rel=1e-9)


def test_what_protects_records_has_no_bound_for_a_client() -> None:
    release = Release(
        unit=RECORD, added_by=EACH, noise_multiplier=5.0, coins=0.1, sampler=SAMPLERS[0], num_clients=CLIENTS
    )
    run = RunAccountant(releases=(release,), delta=DELTA)
    assert compose(run.after(3), DELTA, against=SERVER, unit="client") == math.inf
    assert compose(run.after(3), DELTA, against=SERVER, unit="patient") == math.inf
    assert compose(run.after(3), DELTA, against=SERVER, unit=RECORD) < 3


def test_nothing_is_promised_against_a_server_that_adds_the_noise() -> None:
    noise = CorrelatedGaussian(noise_multiplier=1.0, coefficients=(1024, 512))
    run = RunAccountant(releases=(release_of(noise, sampler=Cyclic(separation=4), num_clients=40),), delta=1e-5)
    assert run.participant(3) == Figures(None, None, None)
    assert compose(run.after(8), 1e-5, against=SERVER) == math.inf > compose(run.after(8), 1e-5, against=OUTSIDER)
