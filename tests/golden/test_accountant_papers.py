"""The papers' ε, and the figures that Google's accountants give for the same runs."""

from __future__ import annotations

import pytest

from laconic.privacy.accounting.accountant import Accountant
from laconic.privacy.accounting.budget import calibrate_noise
from laconic.privacy.accounting.sampling import AsPublished, FixedSize, Poisson, Sampler
from laconic.privacy.mechanism.gaussian import Gaussian


def accountant(sampler: Sampler, sigma: float, num_clients: int = 6000) -> Accountant:
    return Accountant(sampler=sampler, noise=Gaussian(noise_multiplier=sigma), num_clients=num_clients, delta=1e-5)


@pytest.mark.parametrize(("rounds", "published"), [(200, 1.001), (25, 0.691), (60, 0.764), (101, 0.841), (150, 0.920)])
def test_moments_are_the_papers(rounds: int, published: float) -> None:
    """EuroS&P Table 3: C = 1/60, σ = 1.54."""
    assert accountant(Poisson(sampling_rate=1 / 60), 1.54).released_epsilon(rounds, "moments") == pytest.approx(
        published, abs=5e-4
    )


def test_medical_settings() -> None:
    """EuroS&P Table 6 (C = 100/5011, σ = 1.49) and thesis section 5.3.5 (σ = 5)."""
    assert accountant(Poisson(sampling_rate=100 / 5011), 1.49).released(100).moments == pytest.approx(1.002, abs=5e-4)
    assert accountant(Poisson(sampling_rate=100 / 5011), 1.49).released(100).pld == pytest.approx(0.627, abs=5e-4)
    assert accountant(Poisson(sampling_rate=100 / 5011), 5.0).released(100).moments == pytest.approx(0.39, abs=5e-3)


def test_three_figures() -> None:
    figures = accountant(Poisson(sampling_rate=1 / 60), 1.54).released(200)
    assert figures.rdp == pytest.approx(0.773, abs=5e-4)
    assert figures.pld == pytest.approx(0.681, abs=5e-4)


@pytest.mark.parametrize(("participations", "epsilon"), [(1, 2.67), (3, 5.02), (6, 7.57)])
def test_participant(participations: int, epsilon: float) -> None:
    figures = accountant(Poisson(sampling_rate=1 / 60), 1.54).participant(participations)
    assert figures.pld == pytest.approx(epsilon, abs=5e-3)


def test_fixed_size_is_accounted_at_twice_the_sensitivity() -> None:
    figures = accountant(FixedSize(cohort_size=100), 1.54).released(200)
    assert figures.rdp == pytest.approx(4.91, abs=5e-3)
    assert figures.moments is None
    assert figures.pld is None


def test_as_published_gives_the_published_figure_and_says_so() -> None:
    sampler = AsPublished(cohort_size=100)
    assert accountant(sampler, 1.54).released(200).moments == pytest.approx(1.001, abs=5e-4)
    assert "not a proven one" in sampler.caveat


@pytest.mark.parametrize(("method", "sigma"), [("pld", 1.224), ("moments", 1.54)])
def test_calibration(method: str, sigma: float) -> None:
    found = calibrate_noise(
        epsilon=1.0, delta=1e-5, rounds=200, sampler=Poisson(sampling_rate=1 / 60), num_clients=6000, method=method
    )
    assert found == pytest.approx(sigma, abs=1e-3)


@pytest.mark.parametrize("rounds", [1, 7, 40])
def test_gaussian_without_sampling_is_the_analytic_one(rounds: int) -> None:
    """k Gaussians of multiplier σ are one of σ/√k; δ(ε) of Balle & Wang 2018 must be met at the ε found."""
    from math import exp, sqrt

    from scipy.stats import norm

    epsilon = accountant(Poisson(sampling_rate=1.0), 8.0).released_epsilon(rounds)
    mu = sqrt(rounds) / 8.0
    delta = norm.cdf(mu / 2 - epsilon / mu) - exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
    assert delta == pytest.approx(1e-5, rel=2e-2)
