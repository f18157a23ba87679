"""Evaluations between training rounds: both are composed, against both adversaries, and repeats count by kind."""

from __future__ import annotations

from typing import Any

import pytest
from dp_accounting import (
    ComposedDpEvent,
    DpEvent,
    GaussianDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
)
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

from laconic.errors import PrivacyError
from laconic.privacy.accounting.accountant import Accountant, RunAccountant
from laconic.privacy.accounting.budget import calibrate_noise
from laconic.privacy.accounting.releases import EVALUATIONS, VOTES, Release, Rounds, release_of
from laconic.privacy.accounting.sampling import FixedSize, Poisson, Sampler
from laconic.privacy.accounting.tight import gaussian_epsilon
from laconic.privacy.mechanism.gaussian import Gaussian

DELTA, CLIENTS = 1e-5, 1000
TENTH, ALL = Poisson(sampling_rate=0.1), Poisson(sampling_rate=1.0)


def accountant(
    sigma: float, other: float, *, every: int = 5, sampler: Sampler = TENTH, votes: Release | None = None, **more: Any
) -> RunAccountant:
    first = 0 if votes is None or votes.rounds is None else votes.rounds.last or 0
    measured = evaluations(other, sampler, Rounds(after=first, every=every))
    return Accountant(
        sampler=sampler,
        noise=Gaussian(noise_multiplier=sigma),
        num_clients=CLIENTS,
        delta=DELTA,
        others=[measured] if votes is None else [votes, measured],
        **more,
    )


def evaluations(sigma: float, sampler: Sampler, rounds: Rounds) -> Release:
    noise = Gaussian(noise_multiplier=sigma)
    return release_of(noise, sampler=sampler, num_clients=CLIENTS, phase=EVALUATIONS, rounds=rounds)


def first_votes(sigma: float, rounds: int, sensitivity: float = 1.0) -> Release:
    noise, about = Gaussian(noise_multiplier=sigma), {"phase": VOTES, "rounds": Rounds(last=rounds)}
    return release_of(noise, sampler=TENTH, num_clients=CLIENTS, sensitivity=sensitivity, **about)


def composed(**counts: int) -> DpEvent:
    """Sampled rounds of these noise multipliers, written as z12=30 for 1.2 thirty times."""
    events = [
        SelfComposedDpEvent(PoissonSampledDpEvent(0.1, GaussianDpEvent(int(name[1:]) / 10)), count)
        for name, count in counts.items()
    ]
    return ComposedDpEvent(events)


def test_the_outsiders_figure_is_that_of_an_independent_composition() -> None:
    mine, whole = accountant(1.2, 0.9).released_epsilon(32, "rdp"), composed(z12=26, z9=6)
    assert mine == pytest.approx(RdpAccountant().compose(whole).get_epsilon(DELTA), rel=1e-6)


def test_votes_training_and_evaluations_are_three_kinds() -> None:
    votes = first_votes(2.0, 6, sensitivity=4.0)
    mine, whole = accountant(1.2, 0.9, votes=votes).released(20), composed(z12=11, z9=3, z20=6)
    assert mine.pld == pytest.approx(PLDAccountant().compose(whole).get_epsilon(DELTA), rel=1e-6)
    assert mine.rdp == pytest.approx(RdpAccountant().compose(whole).get_epsilon(DELTA), rel=1e-6)


def test_repeats_count_as_what_they_are() -> None:
    plain = accountant(1.2, 0.9)
    again = plain.with_repeats({"evaluations": 2, "training": 3})
    # 37 charges: rounds 1 to 32, two evaluations and three trainings again.
    assert again.released_epsilon(37, "rdp") == pytest.approx(
        RdpAccountant().compose(composed(z12=29, z9=8)).get_epsilon(DELTA), rel=1e-6
    )
    figures = [again.released_epsilon(count, "rdp") for count in range(1, 38)]
    assert figures == sorted(figures)


def test_spare_rounds_are_planned_as_the_dearest_of_all_kinds() -> None:
    """Before anything is repeated nobody knows which rounds will be: ten are planned, and two are spare."""
    for vote, kind in ((0.7, "votes"), (2.0, "evaluations"), (9.0, "evaluations")):
        plan = accountant(1.2, 0.9, votes=first_votes(vote, 2), horizon=10)
        worst = plan.with_repeats({kind: 2})
        assert plan.released_epsilon(12, "rdp") == pytest.approx(worst.released_epsilon(12, "rdp"), rel=1e-12)
        assert plan.released_epsilon(10, "rdp") < plan.released_epsilon(11, "rdp")


def test_the_servers_figure_is_that_of_the_worst_split_that_the_plan_allows() -> None:
    def figure(trained: int, measured: int, sigma: float, other: float) -> float:
        return gaussian_epsilon((trained / sigma**2 + measured / other**2) ** -0.5, DELTA)

    # Twenty rounds, of which four are evaluations.
    dear, cheap = accountant(2.0, 1.0, horizon=20), accountant(1.0, 2.0, horizon=20)
    assert dear.participant_epsilon(10) == pytest.approx(figure(6, 4, 2.0, 1.0))
    assert cheap.participant_epsilon(10) == pytest.approx(figure(10, 0, 1.0, 2.0))
    assert cheap.participant_epsilon(20) == pytest.approx(figure(16, 4, 1.0, 2.0))
    assert dear.with_repeats({"evaluations": 1}).participant_epsilon(10) == pytest.approx(figure(5, 5, 2.0, 1.0))
    # Where nothing is planned, all may be the dearer kind.
    assert accountant(2.0, 1.0).participant_epsilon(10) == pytest.approx(figure(0, 10, 2.0, 1.0))


def test_bare_evaluations_are_seen_by_every_accountant() -> None:
    honest, bare = accountant(2.0, 2.0).released(10), accountant(2.0, 0.01).released(10)
    for method in ("moments", "rdp", "pld"):
        assert bare.best(method) > 20 > honest.best(method)
    fixed = accountant(2.0, 0.01, sampler=FixedSize(cohort_size=50)).released(10)
    assert fixed.rdp is not None and fixed.rdp > 20


def test_noise_is_calibrated_to_the_total() -> None:
    others = [evaluations(6.0, ALL, Rounds(every=4))]
    common: dict[str, Any] = {"sampler": ALL, "num_clients": CLIENTS, "delta": DELTA, "others": others}
    sigma = calibrate_noise(epsilon=2.0, rounds=20, **common)
    for less, fits in ((0.0, True), (2e-4, False)):
        spent = Accountant(noise=Gaussian(noise_multiplier=sigma - less), **common).released_epsilon(20)
        assert (spent <= 2.0) is fits
    with pytest.raises(PrivacyError, match="the evaluations alone cost ε = .* lower --evaluation-share"):
        calibrate_noise(epsilon=0.5, rounds=20, **common)
