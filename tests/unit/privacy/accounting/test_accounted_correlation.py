"""ε of noise that is correlated over rounds: dp-accounting's for one Gaussian; none against the server."""

from __future__ import annotations

import itertools
import math

import pytest
from dp_accounting import GaussianDpEvent
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

import laconic
from laconic.errors import ConfigError
from laconic.privacy.accounting.accountant import Accountant, RunAccountant
from laconic.privacy.accounting.budget import smallest_noise
from laconic.privacy.accounting.sampling import Cyclic, Sampler
from laconic.privacy.mechanism.correlated import UNIT, CorrelatedGaussian, choose_bands
from laconic.privacy.mechanism.gaussian import Gaussian
from laconic.privacy.statement import cautions

NOISE = CorrelatedGaussian(noise_multiplier=1.0, coefficients=(UNIT, UNIT // 2))


def accountant(*, sigma: float = 2.0, bands: int = 8, separation: int = 10, **options: object) -> RunAccountant:
    chosen = choose_bands(bands=bands, separation=separation, rounds=45)
    return Accountant(
        sampler=Cyclic(separation=separation),
        noise=CorrelatedGaussian(noise_multiplier=sigma, coefficients=chosen),
        num_clients=100,
        delta=1e-5,
        **options,  # type: ignore[arg-type]
    )


def test_epsilon_is_that_of_dp_accounting_for_one_gaussian() -> None:
    asked = accountant()
    bands = asked.main.bands
    multiplier = 2.0 / math.sqrt(4 * sum(c**2 for c in bands) + sum(c**2 for c in bands[:5]))
    tight = PLDAccountant().compose(GaussianDpEvent(multiplier)).get_epsilon(1e-5)
    assert asked.released_epsilon(45) == pytest.approx(tight, rel=1e-3)
    assert asked.released_epsilon(45) <= tight * (1 + 1e-9) + 1e-4
    loose = RdpAccountant().compose(GaussianDpEvent(multiplier)).get_epsilon(1e-5)
    assert asked.released_epsilon(45, "rdp") == pytest.approx(loose, rel=1e-6)


def test_epsilon_grows_with_the_rounds_until_it_is_that_of_the_plan() -> None:
    asked = accountant(horizon=45)
    figures = [asked.released_epsilon(rounds) for rounds in range(46)]
    assert figures[0] == 0 and all(a <= b for a, b in itertools.pairwise(figures))
    assert figures[1] == pytest.approx(first_release(), rel=1e-6)
    # After eight rounds all rows of the first group's column are out; the next row comes with its next turn.
    assert figures[8] == figures[9] == figures[10] < figures[11]


def first_release() -> float:
    """The first release alone is one Gaussian with σ."""
    plain = Accountant(sampler=Cyclic(separation=10), noise=Gaussian(noise_multiplier=2.0), num_clients=100, delta=1e-5)
    return plain.participant_epsilon(1)


def test_one_band_costs_what_independent_noise_costs() -> None:
    plain = Accountant(sampler=Cyclic(separation=10), noise=Gaussian(noise_multiplier=2.0), num_clients=100, delta=1e-5)
    asked = accountant(bands=1)
    for rounds in (1, 10, 11, 45):
        assert asked.released_epsilon(rounds) == pytest.approx(plain.released_epsilon(rounds), rel=1e-8)


def test_a_repeated_round_is_one_release_more_of_full_sensitivity() -> None:
    asked = accountant(horizon=45)
    again = asked.with_repeats({"training": 3})
    assert again.after(48)[0].moved_squared == pytest.approx(asked.after(45)[0].moved_squared + 3)
    assert asked.after(48)[0].moved_squared == again.after(48)[0].moved_squared  # beyond the plan: will be repeated
    assert again.released_epsilon(48) > asked.released_epsilon(45)


def test_no_figure_against_the_server_is_finite() -> None:
    asked = accountant()
    for count in (0, 1, 5, 1000):
        assert asked.participant_epsilon(count) == math.inf
        assert set(asked.participant(count).to_dict().values()) == {None}
    assert not asked.amplified(45) and not asked.promise.covers_server
    said = cautions(asked, delta=1e-5, released=1.0, participant=math.inf)
    assert any("NO ε against the server" in text for text in said)


def test_bands_wider_than_the_separation_are_refused() -> None:
    with pytest.raises(ConfigError, match="overlap"):
        Accountant(
            sampler=Cyclic(separation=2),
            noise=CorrelatedGaussian(noise_multiplier=1.0, coefficients=(UNIT, 5, 5)),
            num_clients=10,
            delta=1e-3,
        )


@pytest.mark.parametrize("sampler", [laconic.Poisson(sampling_rate=0.1), laconic.FixedSize(cohort_size=10)])
def test_it_is_not_accounted_for_under_another_sampler(sampler: Sampler) -> None:
    """Its rounds are no independent releases: nothing may compose them as such."""
    with pytest.raises(ConfigError, match="clients that take turns"):
        Accountant(sampler=sampler, noise=NOISE, num_clients=100, delta=1e-5)


@pytest.mark.parametrize("epsilon", [0.5, 8.0])
def test_noise_is_calibrated_to_an_epsilon(epsilon: float) -> None:
    sigma = smallest_noise(lambda s: accountant(sigma=s), epsilon=epsilon, rounds=45)
    assert epsilon * 0.999 < accountant(sigma=sigma).released_epsilon(45) <= epsilon
