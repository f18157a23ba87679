"""The tight ε, beside dp-accounting's own compositions and closed forms."""

from __future__ import annotations

import itertools
import json
import math

import pytest
from dp_accounting import DpEvent, GaussianDpEvent, LaplaceDpEvent, PoissonSampledDpEvent, get_epsilon_gaussian
from dp_accounting.pld import privacy_loss_distribution as pld

from benchmarks.accountant import main as benchmark
from laconic.privacy.accounting import tight
from laconic.privacy.accounting.accountant import Accountant
from laconic.privacy.accounting.releases import epsilon
from laconic.privacy.accounting.sampling import Poisson
from laconic.privacy.accounting.tight import gaussian_epsilon, tight_epsilon
from laconic.privacy.mechanism.gaussian import Gaussian

SETTINGS = [(1.54, 1 / 60), (1.1, 0.2), (5.0, 0.02), (60.0, 0.001)]


def sampled(sigma: float, rate: float) -> DpEvent:
    return PoissonSampledDpEvent(rate, GaussianDpEvent(sigma))


def forget() -> None:
    tight_epsilon.cache_clear()
    tight._composed.cache_clear()


@pytest.mark.parametrize("count", [1, 2, 7, 64, 200, 1000])
@pytest.mark.parametrize(("sigma", "rate"), SETTINGS)
def test_it_is_the_librarys(sigma: float, rate: float, count: int) -> None:
    """The library adds 1e-15 to δ for what it cuts off, and nothing for rounding: that shows where δ is tiny.

    Its Fourier transforms round differently from processor to processor: by 4e-10 of ε, as far as was seen.
    """
    event = sampled(sigma, rate)
    composed = tight._distribution(event).self_compose(count)
    for delta in (1e-3, 1e-5, 1e-6):
        theirs, ours = composed.get_epsilon_for_delta(delta), tight_epsilon(event, count, delta)
        assert theirs * (1 - 2e-9) - 1e-9 <= ours <= theirs * (1 + 1e-6) + 1e-9
    for delta in (1e-8, 1e-9):
        theirs, ours = composed.get_epsilon_for_delta(delta), tight_epsilon(event, count, delta)
        assert ours == pytest.approx(theirs, rel=2e-6, abs=1e-9)


def test_nothing_is_left_to_the_library_there(monkeypatch: pytest.MonkeyPatch) -> None:
    forget()
    monkeypatch.setattr(pld.PrivacyLossDistribution, "self_compose", None)
    for (sigma, rate), count, delta in itertools.product(SETTINGS, (1, 200, 1000), (1e-3, 1e-5, 1e-9)):
        assert tight_epsilon(sampled(sigma, rate), count, delta) >= 0


def test_it_grows_from_round_to_round_and_does_not_depend_on_what_was_asked_before() -> None:
    event, delta = sampled(1.54, 1 / 60), 1e-5
    forget()
    upwards = [tight_epsilon(event, count, delta) for count in range(1, 140)]
    assert all(one < next_ for one, next_ in itertools.pairwise(upwards))
    forget()
    downwards = [tight_epsilon(event, count, delta) for count in reversed(range(1, 140))]
    assert upwards == downwards[::-1]


def test_the_library_answers_where_rounding_would_show(monkeypatch: pytest.MonkeyPatch) -> None:
    event = sampled(5.0, 0.02)
    forget()
    monkeypatch.setattr(tight, "_TOLERANCE", 1e-30)
    assert tight_epsilon(event, 50, 1e-5) == tight._distribution(event).self_compose(50).get_epsilon_for_delta(1e-5)
    forget()


def test_both_directions_count(monkeypatch: pytest.MonkeyPatch) -> None:
    event = sampled(5.0, 0.02)
    both = tight_epsilon(event, 50, 1e-5)
    losses = tight._losses(event)
    for order in (losses, losses[::-1]):
        forget()
        monkeypatch.setattr(tight, "_losses", lambda _, order=order: order)
        assert tight_epsilon(event, 50, 1e-5) == both
    forget()
    monkeypatch.setattr(tight, "_losses", lambda _: losses[1:])
    assert tight_epsilon(event, 50, 1e-5) < both
    forget()


@pytest.mark.parametrize("delta", [1e-1, 1e-3, 1e-5, 1e-9, 1e-15])
@pytest.mark.parametrize("sigma", [1e-2, 0.3, 1.54, 8.0, 500.0])
def test_gaussians_have_a_closed_form(sigma: float, delta: float) -> None:
    ours, theirs = gaussian_epsilon(sigma, delta), get_epsilon_gaussian(sigma, delta)
    assert theirs - 2e-12 <= ours <= theirs * (1 + 1e-9) + 1e-9


@pytest.mark.parametrize("count", [1, 3, 40])
def test_a_closed_form_is_tighter_than_a_grid(count: int) -> None:
    grid = pld.from_gaussian_mechanism(1.54).self_compose(count).get_epsilon_for_delta(1e-5)
    assert grid * (1 - 1e-4) <= tight_epsilon(GaussianDpEvent(1.54), count, 1e-5) <= grid


def test_other_mechanisms_are_refused() -> None:
    with pytest.raises(ValueError, match="no privacy loss distribution"):
        tight_epsilon(LaplaceDpEvent(1.0), 3, 1e-5)


def test_a_large_epsilon_is_left_to_rdp() -> None:
    event = sampled(0.3, 0.5)
    assert epsilon(event, 200, 1e-5, "pld") == epsilon(event, 200, 1e-5, "rdp") > 100


def test_small_cohorts_are_weighed_over_all_rounds() -> None:
    """Rare enough or not, from the binomial distribution itself."""
    from scipy.stats import binom

    for cap, num_clients in itertools.product((None, 3), (200, 2000)):
        accountant = Accountant(
            sampler=Poisson(sampling_rate=0.1),
            noise=Gaussian(noise_multiplier=1.0),
            num_clients=num_clients,
            delta=1e-5,
            slack=2,
            max_participations=cap,
        )
        rates = [0.1 * (1 if cap is None else binom.cdf(cap - 1, before, 0.1)) for before in range(30)]
        least = accountant.sampler.least_cohort(num_clients, 2)
        seen = sum(binom.cdf(least - 1, num_clients - 1, rate) for rate in rates)
        assert accountant.amplified(30) == (seen * (1 + math.exp(10)) <= 1e-7)


def test_the_benchmark_says_what_it_measured(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--noise-multiplier", "5", "--rate", "1/50", "--rounds", "3,9"]
    benchmark([*asked, "--json"])
    paths = json.loads(capsys.readouterr().out)["paths"]
    assert [path["rounds"] for path in paths] == [3, 9]
    assert all(abs(path["least_difference"]) < 1e-9 > abs(path["largest_difference"]) for path in paths)
    assert paths[1]["epsilon"] == tight_epsilon(sampled(5.0, 0.02), 9, 1e-5)
    assert paths[1]["path_seconds"] > 0
    benchmark(asked)
    assert f"{paths[1]['epsilon']:.5f}" in capsys.readouterr().out
