"""Records and patients inside masked sums: owners draw them by secret coins, and a patient may have several owners.

The figures stand beside dp-accounting's own, and beside hockey-stick divergences that are integrated on a grid from the
densities of what is released, for contributions that need not be the worst ones.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from dp_accounting import (
    GaussianDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
)
from dp_accounting.pld import PLDAccountant
from dp_accounting.pld.privacy_loss_distribution import from_mixture_gaussian_mechanism
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, norm

from laconic.errors import ConfigError
from laconic.privacy.accounting.accountant import RunAccountant
from laconic.privacy.accounting.releases import (
    CLIENT,
    OUTSIDER,
    PATIENT,
    RECORD,
    SERVER,
    SHARES,
    Release,
    compose,
    release_of,
)
from laconic.privacy.accounting.sampling import FixedSize, Poisson, Sampler
from laconic.privacy.accounting.tight import gaussian_epsilon
from laconic.privacy.mechanism.discrete_gaussian import DiscreteGaussian
from laconic.privacy.mechanism.gaussian import Gaussian

DELTA = 1e-6
ALL = Poisson(sampling_rate=1.0)


def run(
    sigma: float, coins: float = 1.0, owners: int = 1, unit: str = PATIENT, sampler: Sampler = ALL, **about: Any
) -> RunAccountant:
    release = Release(
        unit=unit,
        added_by=SHARES,
        noise_multiplier=sigma,
        coins=coins,
        max_owners=owners,
        sampler=sampler,
        num_clients=20,
    )
    return RunAccountant(releases=(release,), **{"delta": DELTA, **about})


@pytest.mark.parametrize(("sigma", "coins"), [(1.3, 0.01), (3.0, 0.2)])
def test_coins_give_the_poisson_sampled_gaussian_against_everybody(sigma: float, coins: float) -> None:
    event = SelfComposedDpEvent(PoissonSampledDpEvent(coins, GaussianDpEvent(sigma)), 40)
    tight, loose = PLDAccountant().compose(event).get_epsilon(DELTA), RdpAccountant().compose(event).get_epsilon(DELTA)
    mine = run(sigma, coins)
    for figures in (mine.released(40), mine.participant(40)):
        assert figures.pld == pytest.approx(tight, rel=1e-6) and figures.rdp == pytest.approx(loose, rel=1e-9)


def test_everybody_in_every_round_is_the_gaussian_mechanism() -> None:
    mine = run(12.0)
    assert mine.released_epsilon(60) == mine.participant_epsilon(60)
    assert mine.released_epsilon(60) == pytest.approx(gaussian_epsilon(12 / math.sqrt(60), DELTA), rel=1e-9)


def test_it_does_not_matter_how_many_owners_there_are_nor_how_the_sum_is_made() -> None:
    """What is released of one unit is the same among 5 and 500 owners; on integers it costs a five-hundredth of σ."""
    figures = []
    for clients, noise in itertools.product(
        (5, 500), (Gaussian(noise_multiplier=4.0), DiscreteGaussian(noise_multiplier=4.0))
    ):
        release = release_of(noise, sampler=ALL, num_clients=clients, unit=RECORD)
        figures.append(RunAccountant(releases=(release,), delta=DELTA).released_epsilon(20))
    assert figures[0] == figures[2] <= min(figures) and max(figures) < 1.005 * figures[0]


def test_the_draw_of_clients_does_not_amplify() -> None:
    """An outsider may see who took part: a cohort brings the gradients of all its other units."""
    half = run(2.0, 0.1, sampler=Poisson(sampling_rate=0.5))
    assert not half.amplified(30) and half.released_epsilon(30) == run(2.0, 0.1).released_epsilon(30)
    assert half.released_epsilon(30, most=12) == half.participant_epsilon(12) < half.participant_epsilon(30)
    fixed = run(2.0, 0.1, sampler=FixedSize(cohort_size=10))
    assert fixed.released_epsilon(30) == half.released_epsilon(30)


def test_a_patient_of_two_owners_is_there_whenever_either_is() -> None:
    capped = run(2.0, 0.1, owners=2, max_participations=7)
    assert capped.released_epsilon(30) == capped.participant_epsilon(14)
    assert capped.released_epsilon(30, most=3) == capped.participant_epsilon(6)
    assert capped.released_epsilon(10) == capped.participant_epsilon(10)


def test_smaller_units_are_protected_by_larger_ones_and_not_the_reverse() -> None:
    patients, records = run(4.0, 0.1).after(10), run(4.0, 0.1, unit=RECORD).after(10)
    # A change of one record replaces a patient's clipped sum by another one: 2·S, and no coin of its own.
    twice = gaussian_epsilon(2.0 / math.sqrt(10), DELTA)
    assert compose(patients, DELTA, against=SERVER, unit=RECORD) == pytest.approx(twice, rel=1e-9)
    for unit in (PATIENT, CLIENT):
        assert compose(records, DELTA, against=SERVER, unit=unit) == math.inf
    assert compose(patients, DELTA, against=OUTSIDER, unit=CLIENT) == math.inf


def test_coins_are_for_units_inside_clients() -> None:
    with pytest.raises(ConfigError, match="coins are for units inside clients"):
        run(1.0, 0.5, unit=CLIENT)


def test_the_promise_names_the_unit_and_what_is_assumed() -> None:
    alone, shared = run(1.0).promise, run(1.0, 0.1, owners=3).promise
    assert alone.unit == "one patient with all records at one client"
    assert shared.unit == "one patient with all records at up to 3 clients"
    assert any("coins that only the client knows" in text for text in shared.duties)
    assert not any("coins" in text for text in alone.duties)
    assert any("assumed" in text for text in alone.duties)
    assert any("a whole client has nothing" in text for text in shared.caveats)


# Several owners, by brute force. S is 1 throughout.


def density(parts: np.ndarray, weights: np.ndarray, sigma: float, points: np.ndarray) -> np.ndarray:
    found: np.ndarray = sum(w * norm.pdf(points, c, sigma) for w, c in zip(weights, parts, strict=True))
    return found


def shown(contributions: list[float], coins: float) -> tuple[np.ndarray, np.ndarray]:
    """What a unit adds to a sum, and with which probability: each owner draws it by a coin of its own."""
    subsets = list(itertools.product((0, 1), repeat=len(contributions)))
    parts = [sum(c * b for c, b in zip(contributions, subset, strict=True)) for subset in subsets]
    weights = [math.prod(coins if b else 1 - coins for b in subset) for subset in subsets]
    return np.array(parts), np.array(weights)


def hockey_stick(p: np.ndarray, q: np.ndarray, epsilon: float, step: float) -> float:
    """∫ max(0, p − e^ε·q), the larger one of both directions."""
    return float(max(np.maximum(0, a - math.exp(epsilon) * b).sum() * step for a, b in ((p, q), (q, p))))


def released(
    contributions: list[float], coins: float, sigma: float, rounds: int = 1
) -> tuple[np.ndarray, np.ndarray, float]:
    """The densities with and without the unit on a grid, of one round or of two, and the volume of a cell."""
    points = np.linspace(-10 * sigma - 1, 10 * sigma + 1, 20001 if rounds == 1 else 1201)
    parts, weights = shown(contributions, coins)
    p, q = density(parts, weights, sigma, points), norm.pdf(points, 0, sigma)
    step = float(points[1] - points[0])
    if rounds == 2:
        p, q, step = np.multiply.outer(p, p), np.multiply.outer(q, q), step**2
    return p, q, step


def needed(contributions: list[float], coins: float, sigma: float, delta: float, rounds: int = 1) -> float:
    """The smallest ε at which what is released meets δ, by bisection."""
    p, q, step = released(contributions, coins, sigma, rounds)
    low, high = 0.0, 60.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if hockey_stick(p, q, middle, step) > delta else (low, middle)
    return high


@settings(max_examples=60, deadline=None)
@given(
    contributions=st.lists(st.floats(-1, 1), min_size=1, max_size=4),
    coins=st.floats(0.01, 1.0),
    sigma=st.floats(0.15, 4.0),
    epsilon=st.floats(0.0, 4.0),
)
def test_no_contributions_of_several_owners_show_more_than_one_drawn_by_any_coin(
    contributions: list[float], coins: float, sigma: float, epsilon: float
) -> None:
    """Each owner clips to S/h. The bound is the sampled Gaussian with the rate 1 − (1 − q)^h and all of S."""
    owners = len(contributions)
    p, q, step = released([c / owners for c in contributions], coins, sigma)
    rate = run(sigma, coins, owners).main.rate
    assert rate == pytest.approx(1 - (1 - coins) ** owners, rel=1e-12)
    worst, none, _ = released([1.0], rate, sigma)
    assert hockey_stick(p, q, epsilon, step) <= hockey_stick(worst, none, epsilon, step) + 1e-6


SEVERAL = [(0.15, 0.1, 3, 0.15, 1), (0.2, 0.2, 2, 0.25, 1), (0.2, 0.05, 4, 0.2, 2), (1.0, 0.3, 3, 1e-4, 2)]
"""σ, q, h, δ and rounds. With little noise and a large δ what counts is whether the unit is there at all."""


@pytest.mark.parametrize(("sigma", "coins", "owners", "delta", "rounds"), SEVERAL)
def test_the_figure_of_several_owners_is_no_less_than_the_one_that_is_integrated(
    sigma: float, coins: float, owners: int, delta: float, rounds: int
) -> None:
    true = needed([1 / owners] * owners, coins, sigma, delta, rounds)
    assert run(sigma, coins, owners, delta=delta).participant_epsilon(rounds) >= true > 0


@pytest.mark.parametrize(("sigma", "coins", "owners", "delta", "rounds"), SEVERAL[:3])
def test_the_rate_of_one_coin_would_be_caught(
    monkeypatch: pytest.MonkeyPatch, sigma: float, coins: float, owners: int, delta: float, rounds: int
) -> None:
    """The sabotaged twin: q in the place of 1 − (1 − q)^h claims less than what is true."""
    monkeypatch.setattr(Release, "rate", property(lambda release: release.coins))
    true = needed([1 / owners] * owners, coins, sigma, delta, rounds)
    assert run(sigma, coins, owners, delta=delta).participant_epsilon(rounds) < 0.9 * true


def test_a_clip_to_all_of_s_at_each_owner_would_be_caught() -> None:
    true = needed([1.0, 1.0, 1.0], 0.3, 1.0, 1e-4)
    assert run(1.0, 0.3, 3, delta=1e-4).participant_epsilon(1) < 0.9 * true


@pytest.mark.parametrize(("sigma", "coins", "owners"), [(1.0, 0.05, 2), (3.0, 0.3, 4)])
def test_many_rounds_of_several_owners_stay_below_the_figure(sigma: float, coins: float, owners: int) -> None:
    """dp-accounting composes the worst contributions of h owners, kS/h with a binomial probability, exactly."""
    counts = np.arange(owners + 1)
    mixture = from_mixture_gaussian_mechanism(
        sigma, list(counts / owners), list(binom.pmf(counts, owners, coins)), value_discretization_interval=1e-3
    )
    theirs = mixture.self_compose(30).get_epsilon_for_delta(DELTA)
    mine = run(sigma, coins, owners).participant_epsilon(30)
    assert run(sigma, coins, 1).participant_epsilon(30) < mine
    assert theirs <= mine
