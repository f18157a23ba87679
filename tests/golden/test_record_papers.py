"""The ε of the CHIL'21 paper at record level, and what is proven for the same runs."""

from __future__ import annotations

import math
from typing import Any

import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.rdp import RdpAccountant

from laconic.privacy.accounting.accountant import RunAccountant
from laconic.privacy.accounting.releases import EACH, RECORD, Release
from laconic.privacy.accounting.sampling import AsPublished, FixedSize, Poisson, Sampler

Q = 300 / 804  # |B| / min|D_k|


def accountant(
    sampler: Sampler,
    sigma: float,
    *,
    record_rate: float = Q,
    local_steps: int = 1,
    num_clients: int = 314,
    **options: Any,
) -> RunAccountant:
    release = Release(
        unit=RECORD,
        added_by=EACH,
        noise_multiplier=sigma,
        coins=record_rate,
        steps=local_steps,
        sampler=sampler,
        num_clients=num_clients,
    )
    return RunAccountant(releases=(release,), delta=1.3e-5, **options)


@pytest.mark.parametrize(("sigma", "published"), [(1.08, 1.02), (0.81, 1.97), (0.63, 3.93)])
def test_theorem_3_1_is_the_papers(sigma: float, published: float) -> None:
    """CHIL'21 section 4.3.6: C = 3/314, |B| = 300, min|D_k| = 804, 300 rounds of one step, δ = 1.3e-5."""
    as_published = accountant(AsPublished(cohort_size=3), sigma)
    assert as_published.released(300).moments == pytest.approx(published, abs=5e-3)
    beside = accountant(Poisson(sampling_rate=3 / 314), sigma)
    assert beside.published(300) == pytest.approx(published, abs=5e-3)
    assert as_published.published(300) is None


@pytest.mark.parametrize(("sigma", "epsilon"), [(1.08, 4.26), (0.81, 6.70), (0.63, 10.01)])
def test_participant_after_three_participations(sigma: float, epsilon: float) -> None:
    for sampler in (AsPublished(cohort_size=3), Poisson(sampling_rate=3 / 314)):
        assert accountant(sampler, sigma).participant(3).pld == pytest.approx(epsilon, abs=5e-3)


@pytest.mark.parametrize(
    ("sigma", "moments", "pld"), [(1.08, 7.028, 5.018), (0.81, 12.680, 7.980), (0.63, 15.775, 12.178)]
)
def test_what_is_proven_for_the_same_runs(sigma: float, moments: float, pld: float) -> None:
    figures = accountant(Poisson(sampling_rate=3 / 314), sigma).released(300)
    assert (figures.moments, figures.pld) == (pytest.approx(moments, abs=1e-3), pytest.approx(pld, abs=1e-3))
    # Cohorts do not depend on the records, so it does not matter how they are drawn.
    assert accountant(FixedSize(cohort_size=3), sigma).released(300).pld == figures.pld


def divergence(rate: float, sigma: float, order: float) -> float:
    """One step's, by Google's accountant."""
    found = RdpAccountant(orders=[order]).compose(PoissonSampledDpEvent(rate, GaussianDpEvent(sigma)))
    return float(found._rdp[0])


def test_several_steps_have_q1_first_and_q2_afterwards() -> None:
    """min over λ of (T·α(λ|q1) + T·(T_gd − 1)·α(λ|q2) − ln δ) / λ, α(λ) = λ·D_(λ+1)."""
    q, c, sigma, rounds, steps = 0.05, 0.2, 2.0, 20, 4
    found = accountant(
        AsPublished(cohort_size=2), sigma, num_clients=10, record_rate=q, local_steps=steps
    ).released_epsilon(rounds, "moments")
    expected = min(
        rounds * divergence(c * q, sigma, order)
        + rounds * (steps - 1) * divergence(q, sigma, order)
        - math.log(1.3e-5) / (order - 1)
        for order in range(2, 34)
    )
    assert found == pytest.approx(expected, rel=1e-9)


def test_the_released_epsilon_averages_over_the_number_of_participations() -> None:
    """δ(ε) of the run is the mean of the participant's over a binomial number of participations."""
    from dp_accounting.pld import privacy_loss_distribution as pld
    from scipy.stats import binom

    chosen = accountant(Poisson(sampling_rate=0.1), 1.5, record_rate=0.3, local_steps=2)
    epsilon = chosen.released_epsilon(12)
    step = pld.from_gaussian_mechanism(1.5, sampling_prob=0.3)
    deltas = [0.0] + [step.self_compose(2 * m).get_delta_for_epsilon(epsilon) for m in range(1, 13)]
    mean = sum(float(binom.pmf(m, 12, 0.1)) * delta for m, delta in enumerate(deltas))
    assert mean == pytest.approx(1.3e-5, rel=2e-3)


def test_a_cap_bounds_the_released_epsilon() -> None:
    free = accountant(Poisson(sampling_rate=0.5), 2.0)
    capped = accountant(Poisson(sampling_rate=0.5), 2.0, max_participations=2)
    assert capped.released_epsilon(40) == capped.participant_epsilon(2) < free.released_epsilon(40)
    stopping = accountant(Poisson(sampling_rate=0.5), 2.0, cohort_dependent=True)
    assert stopping.released_epsilon(40, most=7) == stopping.participant_epsilon(7)


def test_always_there_and_all_records_is_the_gaussian_mechanism() -> None:
    from laconic.privacy.accounting.tight import gaussian_epsilon

    chosen = accountant(Poisson(sampling_rate=1.0), 5.0, record_rate=1.0, local_steps=3)
    assert chosen.released_epsilon(4) == pytest.approx(gaussian_epsilon(5 / math.sqrt(12), 1.3e-5), rel=1e-3)
    assert chosen.released_epsilon(4) <= chosen.participant_epsilon(4) + 1e-9
