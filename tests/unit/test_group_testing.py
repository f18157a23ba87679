"""Whether a noisy sum can be one of honest clients: the stated rate of false alarms, and what is noticed."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scheme_tools
import torch
from scipy.stats import ncx2

from laconic.group_testing import MARGIN, Detector, detector_of
from laconic.plan import RoundPlan
from laconic.planning import plan_round
from laconic.privacy.accounting.sampling import FixedSize, Poisson, Sampler
from laconic.round import noise_stream, noisy_in_groups, released_sums
from laconic.scheme import Scheme
from laconic.streams import Stream, Streams

ALL = Poisson(sampling_rate=1.0)
CLIENTS, GROUPS = 60, 6


def scheme(name: str = "fl-std-dp", **changes: Any) -> Scheme:
    return replace(scheme_tools.scheme(name, **changes), groups=GROUPS)


def detector(**changes: Any) -> Detector:
    given: dict[str, Any] = {"code_size": 500, "sensitivity": 0.5, "noise": 1.0, "sums": 1, "largest": 10}
    return Detector(**given | {"false_alarms": 0.001} | changes)


def planned(some: Scheme, sampler: Sampler, round: int = 1, **options: Any) -> RoundPlan:
    return plan_round(some, sampler, streams=Streams(5), round=round, num_clients=CLIENTS, **options)


@pytest.mark.parametrize("code_size", [30, 8000])
@pytest.mark.parametrize("largest", [1, 10, 600])
@pytest.mark.parametrize("false_alarms", [0.1, 1e-6])
def test_the_most_an_honest_group_can_send_is_taken_for_spoilt_as_seldom_as_stated(
    code_size: int, largest: int, false_alarms: float
) -> None:
    """Against the exact tail of a noncentral χ²; and the bound wastes little."""
    test = detector(code_size=code_size, largest=largest, false_alarms=false_alarms)
    tail = ncx2.sf(test.threshold**2, code_size, test.honest)
    assert tail <= false_alarms
    exact = math.sqrt(ncx2.isf(false_alarms, code_size, test.honest))
    assert test.threshold <= 1.35 * exact


def test_a_round_of_many_sums_has_no_more_false_alarms_than_one() -> None:
    one, many = detector(), detector(sums=50)
    assert many.threshold > one.threshold
    assert 50 * ncx2.sf(many.threshold**2, 500, many.honest) <= 0.001


@pytest.mark.parametrize("sampler", [ALL, Poisson(sampling_rate=0.5), FixedSize(cohort_size=40)], ids=str)
@pytest.mark.parametrize("name", ["fl-std-dp", "fl-sign-dp"])
def test_sums_of_clients_that_all_send_as_much_as_they_may_are_not_taken_for_spoilt(
    name: str, sampler: Sampler
) -> None:
    """All codes alike and of the full norm, in real shares of integer noise. Half that threshold is not enough."""
    some, size, alarms, twins = scheme(name), 400, 0, 0
    for number in range(1, 16):
        plan = planned(some, sampler, number)
        clipped = some.clip(
            torch.ones(len(plan.cohort), size) if name == "fl-sign-dp" else torch.full((len(plan.cohort), size), 1e9)
        )
        streams = [noise_stream(Streams(number), plan, int(client)) for client in plan.cohort]
        sent = noisy_in_groups(some, plan, plan.cohort, clipped, streams=streams)
        group = plan.group_of(plan.cohort)
        totals = torch.stack([sent[torch.from_numpy(group == g)].sum(0) for g in range(GROUPS)])
        sums = released_sums(some, plan, totals, survivors=[len(g.cohort) for g in plan.groups], stream=Stream(number))
        test = detector_of(
            some, sampler, plan.sums[0], sums=GROUPS, num_clients=CLIENTS, code_size=size, false_alarms=0.001
        )
        verdict = test(sums)
        alarms += int(verdict.spoilt.sum())
        twins += int((verdict.norms > 0.8 * test.threshold).sum())
    assert alarms == 0
    assert twins > 15 or not sampler.dealt(CLIENTS)  # a threshold a fifth lower would accuse them


def test_the_threshold_follows_from_public_numbers_and_not_from_who_came() -> None:
    sampler = Poisson(sampling_rate=0.5)
    rules: dict[str, Any] = {"sums": GROUPS, "num_clients": CLIENTS, "code_size": 9, "false_alarms": 0.01}
    plans = [planned(scheme(), sampler, number) for number in range(1, 9)]
    tests = {detector_of(scheme(), sampler, plan.sums[0], **rules) for plan in plans}
    assert len(tests) == 1


def test_the_noise_that_is_tested_against_is_the_one_that_is_released() -> None:
    """With slack the server tops up the noise, and the detector knows it."""
    for name in ("fl-std-dp", "fl-sign-dp"):
        some = scheme(name)
        plan = planned(some, ALL, max_dropouts=3, max_colluders=1)
        sums = released_sums(
            some, plan, torch.zeros(GROUPS, 20000, dtype=torch.int64), survivors=[0] * GROUPS, stream=Stream(1)
        )
        test = detector_of(
            some, ALL, plan.sums[0], sums=GROUPS, num_clients=CLIENTS, code_size=20000, false_alarms=0.01
        )
        assert float(sums.std()) == pytest.approx(test.noise, rel=0.01)


def test_boosted_and_broken_sums_are_spoilt_and_only_those_well_above_are_clearly_so() -> None:
    test = detector()
    codes = torch.zeros(5, 500, dtype=torch.float64)
    codes[1, 0], codes[2, 0] = test.threshold + 0.1, test.clear + 0.1
    codes[3, 0], codes[4, 0] = float("nan"), float("inf")
    verdict = test(codes)
    assert verdict.spoilt.tolist() == [False, True, True, True, True]
    assert verdict.clear.tolist() == [False, False, True, True, True]
    assert 0 < test.clear - test.threshold <= MARGIN * 0.5 * (1 + 1e-9)
    assert np.isfinite(verdict.norms[:3]).all()


@pytest.mark.parametrize("changes", [{}, {"code_size": 8000, "noise": 0.8}, {"code_size": 40, "largest": 200}])
def test_no_exchange_of_two_honest_clients_takes_a_clearly_spoilt_sum_below_half_of_the_margin(
    changes: dict[str, Any],
) -> None:
    """The worst exchange of all is along the attacker's own code. A margin a third as wide would not do."""
    test, rng, margins = detector(**changes), np.random.default_rng(0), []
    for norm in np.linspace(test.threshold / 2, 2 * test.clear, 400):
        sent = np.zeros(test.code_size)
        sent[0] = math.sqrt(max(0.0, norm**2 - test.code_size * test.noise**2))
        noisy = sent + rng.normal(scale=test.noise, size=test.code_size)
        moved = noisy.copy()
        moved[0] -= 2 * test.sensitivity
        half = (test.clear - test.threshold) / 2
        if np.linalg.norm(noisy) >= test.clear:
            assert np.linalg.norm(moved) >= test.clear - half
            margins.append((np.linalg.norm(noisy) - np.linalg.norm(moved)) / half)
    assert max(margins) > 1 / 3
