"""What is foretold of group testing agrees with simulations."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from laconic.group_testing import Detector, Prospects, Verdict, chance_of_a_group, first_findings, update_findings
from laconic.plan import RoundPlan

CLIENTS, GROUPS, SIZE = 400, 20, 3000


def prospects(**changes: Any) -> Prospects:
    about: dict[str, Any] = {"code_size": SIZE, "sensitivity": 1.0, "noise": 2.0, "false_alarms": 0.001}
    return replace(
        Prospects(
            test=Detector(sums=GROUPS, largest=CLIENTS // GROUPS, **about),
            one_sum=Detector(sums=1, largest=CLIENTS, **about),
            chance=chance_of_a_group(GROUPS, CLIENTS, dealt=True),
            rate=1.0,
            num_clients=CLIENTS,
            planned_cohort=CLIENTS,
            false_exclusions=1.0,
        ),
        **changes,
    )


def norms(test: Detector, sent: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Of noisy sums whose codes have these norms."""
    noise = rng.normal(size=(len(sent), 2)) * test.noise
    rest = rng.chisquare(test.code_size - 1, len(sent)) * test.noise**2
    return np.sqrt((sent + noise[:, 0]) ** 2 + rest)


def simulated(about: Prospects, attackers: int, norm: float, seed: int) -> float:
    """The round in which an attacker is excluded, on average over them; 80 at most."""
    rng, findings = np.random.default_rng(seed), first_findings(CLIENTS, 10**6)
    for number in range(1, 81):
        left = np.setdiff1d(np.arange(CLIENTS), findings.excluded_before(number))
        coming = left[rng.random(len(left)) < about.rate]
        order = rng.permutation(coming)
        base = RoundPlan(
            round=number, attempt=0, cohort=coming, planned_cohort=1, run_seed=0, round_seed=0, fingerprint=""
        )
        plan = replace(base, groups=tuple(replace(base, cohort=np.sort(order[g::GROUPS])) for g in range(GROUPS)))
        # attackers send the same, honest clients nothing
        sent = norm * np.array([(group.cohort < attackers).sum() for group in plan.groups], dtype=float)
        found = norms(about.test, sent, rng)
        verdict = Verdict(found, found > about.test.threshold, found > about.test.clear)
        findings = update_findings(
            findings, plan, verdict, chance=about.chance, false_exclusions=1.0, false_alarms=about.test.false_alarms
        )
        if all(client in findings.excluded for client in range(attackers)):
            break
    return float(np.mean([findings.excluded.get(client, 80) for client in range(attackers)]))


@pytest.mark.parametrize(("attackers", "norm", "rate"), [(1, 1000, 1.0), (4, 300, 1.0), (4, 300, 0.25), (10, 300, 1.0)])
def test_attackers_are_excluded_after_about_as_many_rounds_as_foretold(
    attackers: int, norm: float, rate: float
) -> None:
    about = prospects(rate=rate, chance=1 / GROUPS if rate < 1 else prospects().chance)
    rounds = np.mean([simulated(about, attackers, norm, seed) for seed in range(12)])
    assert about.rounds_to_exclude(attackers, norm) == pytest.approx(rounds, rel=0.3, abs=1.5)


def test_near_the_threshold_it_is_not_foretold_that_attackers_are_excluded_sooner_than_they_are() -> None:
    """There groups are spoilt more often than clearly so: others' count against an attacker whose own is not clear."""
    about = prospects()
    norm = 1.15 * about.noticed
    rounds = np.mean([simulated(about, 4, norm, seed) for seed in range(4)])
    assert about.rounds_to_exclude(4, norm) >= 0.8 * rounds


def test_an_attacker_that_sends_against_honest_clients_is_noticed_no_earlier_than_foretold() -> None:
    about, rng, others = prospects(), np.random.default_rng(3), CLIENTS // GROUPS - 1
    against = norms(about.test, np.full(4000, about.noticed) - others, rng) > about.test.threshold
    assert against.mean() < 0.1
    most = about.hidden_bias_at_most * CLIENTS
    assert (norms(about.test, np.full(4000, most) - others, rng) > about.test.threshold).mean() == pytest.approx(
        0.5, abs=0.03
    )
    assert about.hidden_bias < about.hidden_bias_at_most < about.hidden_bias_in_one_sum


def test_how_often_a_group_shows_is_as_foretold() -> None:
    about, rng = prospects(), np.random.default_rng(1)
    for norm in (about.noticed, 1.1 * about.noticed, 1.3 * about.noticed):
        found = norms(about.test, np.full(4000, norm), rng) > about.test.clear
        assert found.mean() == pytest.approx(about.shown(norm), abs=0.03)
    half = norms(about.test, np.full(4000, about.noticed), rng) > about.test.threshold
    assert half.mean() == pytest.approx(0.5, abs=0.03)
    assert about.shown(0.5 * about.noticed) < 0.01 and math.isinf(about.rounds_to_exclude(3, 0.5 * about.noticed))


def test_what_a_hidden_attacker_can_do_is_bounded_by_what_is_noticed() -> None:
    """Its code is in one of g groups, whose means are averaged: B·S/(q·N), against noise √(m·g)·v/(q·N)."""
    about = prospects()
    moved = about.noticed * 1.0 / (CLIENTS / GROUPS) / GROUPS
    noise = np.linalg.norm(np.random.default_rng(2).normal(size=(GROUPS, SIZE)).mean(0) * 2.0 / (CLIENTS / GROUPS))
    assert about.hidden_bias == pytest.approx(moved)
    assert about.hidden_bias_to_noise == pytest.approx(moved / noise, rel=0.05)
    assert about.noticed_in_one_sum > about.noticed


def test_the_seldomer_clients_come_the_longer_it_takes() -> None:
    often, seldom = prospects(), prospects(rate=0.05)
    assert seldom.rounds_to_exclude(4, 300) > 10 * often.rounds_to_exclude(4, 300)
