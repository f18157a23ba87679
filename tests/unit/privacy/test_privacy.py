"""Samplers, accountant, budget: they agree, or refuse."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laconic.errors import ConfigError, PrivacyError
from laconic.privacy.accounting.accountant import Accountant, largest
from laconic.privacy.accounting.budget import Budget, calibrate_noise
from laconic.privacy.accounting.sampling import AsPublished, FixedSize, Poisson, Sampler
from laconic.privacy.mechanism.gaussian import Gaussian
from laconic.privacy.statement import privacy_statement, statement_lines


def accountant(sampler: Sampler, sigma: float = 1.5, num_clients: int = 600) -> Accountant:
    return Accountant(sampler=sampler, noise=Gaussian(noise_multiplier=sigma), num_clients=num_clients, delta=1e-5)


@given(st.integers(1, 1000), st.floats(0.001, 1))
def test_poisson_cohorts(num_clients: int, sampling_rate: float) -> None:
    cohort = Poisson(sampling_rate=sampling_rate).draw(num_clients, np.random.default_rng(0))
    assert len(set(cohort.tolist())) == len(cohort)
    assert np.all((cohort >= 0) & (cohort < num_clients))
    assert np.all(np.diff(cohort) > 0)


def test_a_million_clients_are_drawn_from_without_listing_them() -> None:
    cohort = Poisson(sampling_rate=1e-4).draw(1_000_000, np.random.default_rng(0))
    assert 50 < len(cohort) < 150


def test_fixed_size_cohorts() -> None:
    assert len(FixedSize(cohort_size=10).draw(30, np.random.default_rng(0))) == 10
    with pytest.raises(ConfigError, match="larger than the population"):
        FixedSize(cohort_size=31).check(30)


@pytest.mark.parametrize(
    "sampler", [Poisson(sampling_rate=0.05), FixedSize(cohort_size=30), AsPublished(cohort_size=30)]
)
def test_epsilon_grows_with_rounds_and_falls_with_noise(sampler: Sampler) -> None:
    method = sampler.figures[-1]
    few, many = (accountant(sampler).released_epsilon(t, method) for t in (10, 50))
    assert 0 < few < many
    assert accountant(sampler, sigma=3.0).released_epsilon(50, method) < many
    assert accountant(sampler).released_epsilon(0, method) == 0


def test_moments_are_never_below_rdp_nor_rdp_below_pld() -> None:
    figures = accountant(Poisson(sampling_rate=0.05)).released(40)
    assert figures.moments is not None
    assert figures.rdp is not None
    assert figures.pld is not None
    assert figures.moments >= figures.rdp >= figures.pld


def test_the_server_knows_more_than_an_outsider() -> None:
    one = accountant(Poisson(sampling_rate=0.05))
    assert one.participant_epsilon(2) > one.released_epsilon(40)
    assert one.participant_epsilon(40) == pytest.approx(
        accountant(Poisson(sampling_rate=1.0)).released_epsilon(40), rel=1e-6
    )


def test_fixed_size_doubles_the_sensitivity_for_both_adversaries() -> None:
    fixed, half = accountant(FixedSize(cohort_size=30)), accountant(Poisson(sampling_rate=0.05), sigma=0.75)
    assert fixed.participant_epsilon(3) == pytest.approx(half.participant_epsilon(3))


def test_refusals() -> None:
    with pytest.raises(ConfigError, match="max_participations cannot be combined"):
        Budget(delta=1e-5, max_participations=3).check(FixedSize(cohort_size=3))
    with pytest.raises(ConfigError, match="'pld' is not available"):
        Budget(delta=1e-5, accountant="pld").check(FixedSize(cohort_size=3))
    with pytest.raises(ConfigError, match="delta must be strictly between"):
        Budget(delta=1.0)
    with pytest.raises(ConfigError, match="'moments' is not available"):
        calibrate_noise(
            epsilon=1, delta=1e-5, rounds=10, sampler=FixedSize(cohort_size=3), num_clients=30, method="moments"
        )
    with pytest.raises(PrivacyError, match="cannot show an epsilon below 0.360"):
        calibrate_noise(
            epsilon=0.3, delta=1e-5, rounds=1, sampler=Poisson(sampling_rate=0.1), num_clients=30, method="moments"
        )
    with pytest.raises(PrivacyError, match="raise --epsilon"):
        calibrate_noise(
            epsilon=1e-9, delta=1e-12, rounds=10_000, sampler=Poisson(sampling_rate=1.0), num_clients=30, method="rdp"
        )


@settings(max_examples=8)
@given(st.floats(0.5, 8), st.integers(1, 300), st.floats(0.005, 0.1))
def test_calibrated_noise_keeps_the_promise_tightly(epsilon: float, rounds: int, sampling_rate: float) -> None:
    sampler = Poisson(sampling_rate=sampling_rate)
    sigma = calibrate_noise(
        epsilon=epsilon, delta=1e-5, rounds=rounds, sampler=sampler, num_clients=100, method="moments"
    )
    assert accountant(sampler, sigma).released_epsilon(rounds, "moments") <= epsilon
    if sigma > 0.06:
        assert accountant(sampler, sigma - 2e-4).released_epsilon(rounds, "moments") > epsilon


def test_calibration_for_a_number_of_participations() -> None:
    sampler = Poisson(sampling_rate=0.1)
    sigma = calibrate_noise(epsilon=3.0, delta=1e-5, rounds=100, sampler=sampler, num_clients=100, participations=4)
    assert accountant(sampler, sigma).participant_epsilon(4) <= 3.0
    assert accountant(sampler, sigma - 2e-3).participant_epsilon(4) > 3.0


@given(st.integers(0, 60), st.integers(0, 60))
def test_largest(limit: int, at_most: int) -> None:
    assert largest(lambda count: count <= limit, at_most) == min(limit, at_most)


def test_the_statement_names_both_adversaries_and_what_is_not_covered() -> None:
    one = accountant(AsPublished(cohort_size=30))
    statement = privacy_statement(
        accountant=one,
        budget=Budget(delta=1e-5),
        rounds_charged=40,
        participations=5,
        mechanism={},
        secure_aggregation="simulated",
        assumptions=["an assumption"],
        not_covered=["a note"],
    )
    assert statement["released"]["epsilon"]["pld"] == one.released_epsilon(40)
    assert statement["participant"]["epsilon"]["pld"] == one.participant_epsilon(5)
    assert any("not a proven one" in text for text in statement["not_covered"])
    printed = " ".join(f"{a} {b}" for a, b in statement_lines(statement))
    for text in ("Outsider's ε", "Server's ε", "zero-out", "an assumption", "a note", "5 participations"):
        assert text in printed
