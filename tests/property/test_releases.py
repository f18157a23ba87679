"""Releases as data: `compose` gives the ε of every accountant, over schemes, samplers, repeats and missing noise."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from laconic.privacy.accounting.accountant import METHODS, Accountant, Evaluated, Figures, Repeats, Votes
from laconic.privacy.accounting.correlated import CorrelatedAccountant
from laconic.privacy.accounting.cyclic import Cyclic
from laconic.privacy.accounting.record_accountant import RecordAccountant
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
    RunAccountant,
    client_release,
    compose,
)
from laconic.privacy.accounting.sampling import AsPublished, FixedSize, Poisson, Sampler
from laconic.privacy.mechanism.correlated import CorrelatedGaussian
from laconic.privacy.mechanism.discrete_gaussian import DiscreteGaussian
from laconic.privacy.mechanism.gaussian import Gaussian, Noise

SIGMAS = (0.7, 1.3, 2.0, 5.0)
RATES = (0.02, 0.1, 1.0)


@st.composite
def noises(draw: st.DrawFn) -> tuple[Noise, float]:
    """A noise, and the sensitivity of the codes that it is for."""
    sigma, sensitivity = draw(st.sampled_from(SIGMAS)), draw(st.sampled_from((0.5, 1.0, 40.0)))
    kind = draw(st.sampled_from(("continuous", "integers", "signs")))
    if kind == "continuous":
        return Gaussian(noise_multiplier=sigma), sensitivity
    return DiscreteGaussian(noise_multiplier=sigma, signs=kind == "signs"), sensitivity


@st.composite
def samplers(draw: st.DrawFn) -> tuple[Sampler, int]:
    clients = draw(st.sampled_from((100, 1000)))
    size, separation = draw(st.sampled_from((10, 50, 100))), draw(st.sampled_from((1, 3, 10)))
    made = (
        Poisson(sampling_rate=draw(st.sampled_from(RATES))),
        FixedSize(cohort_size=size),
        AsPublished(cohort_size=size),
        Cyclic(separation=separation),
    )
    return draw(st.sampled_from(made)), clients


@st.composite
def of_clients(draw: st.DrawFn) -> tuple[Accountant, RunAccountant]:
    """The accountant of a run that protects clients, and the same run as a list of releases."""
    sampler, clients = draw(samplers())
    planned = draw(st.sampled_from((0, 12, 40)))
    groups, slack = draw(st.sampled_from((1, 4))), draw(st.sampled_from((0, 1, 3)))
    cap = draw(st.sampled_from((None, 2))) if sampler.allows_participation_cap else None
    common: dict[str, Any] = {"sampler": sampler, "num_clients": clients}
    run: dict[str, Any] = {
        "delta": draw(st.sampled_from((1e-5, 1e-3))),
        "slack": slack,
        "groups": groups,
        "max_participations": cap,
        "horizon": planned,
        "cohort_dependent": draw(st.booleans()),
    }
    noise, sensitivity = draw(noises())
    again = draw(st.tuples(*[st.integers(0, 2)] * 3))
    releases, kinds = [], {}
    first = draw(st.sampled_from((0, 0, 1, 4)))
    every = draw(st.sampled_from((0, 0, 2, 5)))
    repeats = Repeats(again[0] if first else 0, again[1] if every else 0, again[2])
    if first:
        other, bound = draw(noises())
        kinds["votes"] = Votes(noise=other, sensitivity=bound, rounds=first)
        about: dict[str, Any] = {"phase": VOTES, "rounds": Rounds(last=first), "repeats": repeats.votes}
        releases.append(client_release(other, sensitivity=bound, groups=groups, **common, **about))
    if every:
        other, bound = draw(noises())
        kinds["evaluations"] = Evaluated(noise=other, sensitivity=bound, every=every)
        rounds = Rounds(after=first, every=every)
        about = {"phase": EVALUATIONS, "rounds": rounds, "repeats": repeats.evaluations}
        releases.append(client_release(other, sensitivity=bound, groups=groups, **common, **about))
    main = client_release(noise, sensitivity=sensitivity, groups=groups, repeats=repeats.training, **common)
    mine = RunAccountant(releases=(*releases, main), **run)
    theirs = Accountant(noise=noise, sensitivity=sensitivity, repeats=repeats, **kinds, **common, **run)
    share = draw(st.sampled_from((1.0, 1.0, 0.8, 0.05)))
    return (theirs, mine) if share == 1 else (theirs.weakened(share), mine.weakened(share))


@st.composite
def of_records(draw: st.DrawFn) -> tuple[RecordAccountant, RunAccountant]:
    """The same for DP-SGD of single records."""
    sampler, clients = draw(samplers())
    assume(sampler.amplifies)
    sigma, coins, steps = (
        draw(st.sampled_from(SIGMAS)),
        draw(st.sampled_from((0.05, 0.4, 1.0))),
        draw(st.integers(1, 3)),
    )
    run: dict[str, Any] = {
        "delta": draw(st.sampled_from((1e-5, 1e-3))),
        "max_participations": draw(st.sampled_from((None, 2))),
        "cohort_dependent": draw(st.booleans()),
        "caveat": draw(st.sampled_from(("", "not proven"))),
    }
    release = Release(
        unit=RECORD,
        added_by=EACH,
        noise_multiplier=sigma,
        coins=coins,
        steps=steps,
        sampler=sampler,
        num_clients=clients,
    )
    records = draw(st.sampled_from((None, 7000)))
    theirs = RecordAccountant(
        sampler=sampler,
        num_clients=clients,
        noise_multiplier=sigma,
        record_rate=coins,
        local_steps=steps,
        num_records=records,
        **run,
    )
    return theirs, RunAccountant(releases=(release,), num_units=records, **run)


@st.composite
def of_bands(draw: st.DrawFn) -> tuple[CorrelatedAccountant, RunAccountant]:
    """The same for noise that is correlated over rounds."""
    coefficients = (1024, *draw(st.lists(st.integers(0, 1024), max_size=4)))
    separation = len(coefficients) + draw(st.integers(0, 3))
    noise = CorrelatedGaussian(noise_multiplier=draw(st.sampled_from(SIGMAS)), coefficients=coefficients)
    sampler, clients = Cyclic(separation=separation), 100
    run: dict[str, Any] = {"delta": 1e-5, "horizon": draw(st.sampled_from((0, 20)))}
    again = Repeats(training=draw(st.integers(0, 3)))
    theirs = CorrelatedAccountant(sampler=sampler, noise=noise, num_clients=clients, repeats=again, **run)
    release = client_release(noise, sampler=sampler, num_clients=clients, repeats=again.training)
    return theirs, RunAccountant(releases=(release,), **run)


def same(mine: float | None, theirs: float | None) -> bool:
    """To the last bit."""
    return mine == theirs or (mine is not None and theirs is not None and math.isnan(mine) and math.isnan(theirs))


def check(theirs: Any, mine: RunAccountant, rounds: int, most: int, methods: tuple[str, ...]) -> None:
    for name in ("sampler", "num_clients", "units", "honest_cohort", "method", "figures", "promise"):
        assert getattr(mine, name) == getattr(theirs, name), name
    assert mine.amplified(rounds) == theirs.amplified(rounds)
    assert same(mine.published(rounds), theirs.published(rounds))
    for method in methods:
        if method in mine.figures or not mine.amplified(rounds):
            for busiest in (None, most):
                assert same(
                    mine.released_epsilon(rounds, method, busiest), theirs.released_epsilon(rounds, method, busiest)
                )
        assert same(mine.participant_epsilon(most, method), theirs.participant_epsilon(most, method))


cases = st.one_of(of_clients(), of_clients(), of_records(), of_bands())


@settings(max_examples=150, deadline=None)
@given(case=cases, rounds=st.integers(1, 60), data=st.data())
def test_it_is_what_every_accountant_says(case: tuple[Any, RunAccountant], rounds: int, data: st.DataObject) -> None:
    most = data.draw(st.integers(1, rounds))
    check(*case, rounds, most, ("moments", "rdp"))


@settings(max_examples=25, deadline=None)
@given(case=cases, rounds=st.integers(1, 60), data=st.data())
def test_the_tight_figure_is_theirs(case: tuple[Any, RunAccountant], rounds: int, data: st.DataObject) -> None:
    most = data.draw(st.integers(1, rounds))
    check(*case, rounds, most, ("pld",))


@pytest.mark.parametrize("sampler", [Poisson(sampling_rate=0.1), FixedSize(cohort_size=50), Cyclic(separation=5)])
def test_the_figures_of_a_statement_are_theirs(sampler: Sampler) -> None:
    noise = DiscreteGaussian(noise_multiplier=2.0)
    mine = RunAccountant(releases=(client_release(noise, sampler=sampler, num_clients=500),), delta=1e-5)
    theirs = Accountant(noise=noise, sampler=sampler, num_clients=500, delta=1e-5)
    assert mine.released(30, 4) == theirs.released(30, 4) and mine.participant(4) == theirs.participant(4)


def test_a_release_is_data() -> None:
    """It is written down and read back, and its figures with it."""
    release = client_release(
        DiscreteGaussian(noise_multiplier=2.0), sampler=Poisson(sampling_rate=0.1), num_clients=500, phase=TRAINING
    )
    run = RunAccountant(releases=(replace(release, rounds=Rounds(last=3)), release), delta=1e-5, horizon=10)
    after = run.after(8)
    again = [Release.from_dict(one.to_dict()) for one in after]
    assert again == list(after) and again[0].rounds is not None and 3 in again[0].rounds and 4 not in again[0].rounds
    for against in (OUTSIDER, SERVER):
        assert compose(again, 1e-5, against=against) == compose(after, 1e-5, against=against) > 0


def test_none_is_shown_against_a_server_that_adds_the_noise() -> None:
    noise = CorrelatedGaussian(noise_multiplier=1.0, coefficients=(1024, 512))
    run = RunAccountant(releases=(client_release(noise, sampler=Cyclic(separation=4), num_clients=40),), delta=1e-5)
    assert run.participant(3) == Figures(None, None, None)
    assert compose(run.after(8), 1e-5, against=SERVER) == math.inf > compose(run.after(8), 1e-5, against=OUTSIDER)


def test_every_method_is_one_that_is_asked_for() -> None:
    assert METHODS == ("moments", "rdp", "pld")
