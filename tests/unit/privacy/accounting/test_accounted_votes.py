"""Votes before the training rounds: both are composed, by every accountant and against both adversaries."""

from __future__ import annotations

import math
from typing import Any

import pytest
from dp_accounting import (
    ComposedDpEvent,
    DpEvent,
    GaussianDpEvent,
    NeighboringRelation,
    PoissonSampledDpEvent,
    SampledWithoutReplacementDpEvent,
    SelfComposedDpEvent,
)
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

from laconic.errors import PrivacyError
from laconic.privacy.accounting.accountant import Accountant, RunAccountant
from laconic.privacy.accounting.budget import calibrate_noise
from laconic.privacy.accounting.releases import VOTES, Release, Rounds, release_of
from laconic.privacy.accounting.sampling import FixedSize, Poisson, Sampler
from laconic.privacy.mechanism.discrete_gaussian import DiscreteGaussian
from laconic.privacy.mechanism.gaussian import Gaussian, Noise

DELTA, CLIENTS = 1e-5, 1000


def accountant(sigma: float, vote_sigma: float, *, sampler: Sampler, votes: int = 1, **more: Any) -> RunAccountant:
    return Accountant(
        sampler=sampler,
        noise=Gaussian(noise_multiplier=sigma),
        num_clients=CLIENTS,
        delta=DELTA,
        others=[first_votes(Gaussian(noise_multiplier=vote_sigma), sampler, votes, sensitivity=4.0)],
        **more,
    )


def first_votes(noise: Noise, sampler: Sampler, rounds: int = 1, sensitivity: float = 1.0) -> Release:
    about = {"phase": VOTES, "rounds": Rounds(last=rounds)}
    return release_of(noise, sampler=sampler, num_clients=CLIENTS, sensitivity=sensitivity, **about)


def composed(event: DpEvent, count: int, vote: DpEvent, votes: int) -> DpEvent:
    return ComposedDpEvent([SelfComposedDpEvent(vote, votes), SelfComposedDpEvent(event, count)])


@pytest.mark.parametrize(("sigma", "vote_sigma", "votes"), [(1.2, 0.9, 2)])
def test_the_outsiders_figure_is_that_of_an_independent_composition(
    sigma: float, vote_sigma: float, votes: int
) -> None:
    mine = accountant(sigma, vote_sigma, votes=votes, sampler=Poisson(sampling_rate=0.1)).released(30)
    events = [PoissonSampledDpEvent(0.1, GaussianDpEvent(z)) for z in (sigma, vote_sigma)]
    whole = composed(events[0], 30 - votes, events[1], votes)
    assert mine.pld == pytest.approx(PLDAccountant().compose(whole).get_epsilon(DELTA), rel=1e-6)
    assert mine.rdp == pytest.approx(RdpAccountant().compose(whole).get_epsilon(DELTA), rel=1e-6)
    orders = list(range(2, 34))
    paper = RdpAccountant(orders=orders).compose(whole)._rdp
    assert mine.moments == pytest.approx(
        min(d - math.log(DELTA) / (order - 1) for order, d in zip(orders, paper, strict=True)), rel=1e-9
    )


def test_a_sample_of_fixed_size_is_composed_by_rdp() -> None:
    mine = accountant(2.0, 3.0, sampler=FixedSize(cohort_size=50)).released(20)
    events = [SampledWithoutReplacementDpEvent(CLIENTS, 50, GaussianDpEvent(z / 2)) for z in (2.0, 3.0)]
    whole = RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_ONE)
    whole.compose(composed(events[0], 19, events[1], 1))
    assert mine.rdp == pytest.approx(whole.get_epsilon(DELTA), rel=1e-6)
    assert mine.pld is None


def test_the_servers_figure_is_that_of_the_worst_split() -> None:
    for sigma, vote_sigma in ((2.0, 1.0), (1.0, 2.0)):
        mine = accountant(sigma, vote_sigma, votes=2, sampler=Poisson(sampling_rate=0.1)).participant(5)
        splits = [GaussianDpEvent(((5 - v) / sigma**2 + v / vote_sigma**2) ** -0.5) for v in (0, 1, 2)]
        figures = [RdpAccountant().compose(split).get_epsilon(DELTA) for split in splits]
        assert mine.rdp == pytest.approx(max(figures), rel=1e-9)
        assert mine.pld is not None and mine.pld < max(figures)


def test_before_any_training_only_votes_count() -> None:
    both = accountant(1.0, 2.0, votes=3, sampler=Poisson(sampling_rate=0.1))
    alone = Accountant(
        sampler=Poisson(sampling_rate=0.1), noise=Gaussian(noise_multiplier=2.0), num_clients=CLIENTS, delta=DELTA
    )
    assert both.released_epsilon(2) == alone.released_epsilon(2)


def test_a_repeated_vote_counts_as_one_more() -> None:
    once = accountant(1.0, 0.7, sampler=Poisson(sampling_rate=0.1))
    twice = once.with_repeats({"votes": 1})
    assert twice.released_epsilon(10) == accountant(
        1.0, 0.7, votes=2, sampler=Poisson(sampling_rate=0.1)
    ).released_epsilon(10)
    assert twice.released_epsilon(10) > once.released_epsilon(10)
    assert twice.participant_epsilon(4) > once.participant_epsilon(4)


def test_votes_without_noise_are_seen_by_every_accountant() -> None:
    honest = accountant(1.0, 1.0, sampler=Poisson(sampling_rate=0.1)).released(10)
    bare = accountant(1.0, 0.01, sampler=Poisson(sampling_rate=0.1)).released(10)
    for method in ("moments", "rdp", "pld"):
        assert bare.best(method) > 20 > honest.best(method)


@pytest.mark.parametrize(("method", "rate"), [("moments", 0.05), ("pld", 1.0)])
def test_noise_is_calibrated_to_the_total(method: str, rate: float) -> None:
    sampler = Poisson(sampling_rate=rate)
    votes = first_votes(DiscreteGaussian(noise_multiplier=5.0, signs=True), sampler, sensitivity=8.0)
    common: dict[str, Any] = {"sampler": sampler, "num_clients": CLIENTS, "delta": DELTA, "others": [votes]}
    sigma = calibrate_noise(epsilon=2.0, rounds=20, method=method, **common)
    spent = Accountant(noise=Gaussian(noise_multiplier=sigma), **common).released_epsilon(20, method)
    less = Accountant(noise=Gaussian(noise_multiplier=sigma - 2e-4), **common).released_epsilon(20, method)
    assert spent <= 2.0 < less


def test_votes_that_cost_more_than_all_are_refused() -> None:
    votes = first_votes(Gaussian(noise_multiplier=0.3), Poisson(sampling_rate=1.0))
    with pytest.raises(PrivacyError, match="the votes alone cost ε = .* lower --vote-share"):
        calibrate_noise(
            epsilon=1.0,
            delta=DELTA,
            rounds=10,
            sampler=Poisson(sampling_rate=1.0),
            num_clients=CLIENTS,
            others=[votes],
        )
