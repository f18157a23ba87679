"""What spoilt groups say of clients: honest ones are excluded as seldom as stated, whatever the attackers do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from laconic.group_testing import Findings, Verdict, chance_of_a_group, first_findings, update_findings
from laconic.plan import RoundPlan
from laconic.planning import drawn_cohort
from laconic.privacy.accounting.sampling import Poisson, Sampler
from laconic.streams import Streams

ALL = Poisson(sampling_rate=1.0)
RULES: dict[str, Any] = {"false_exclusions": 1.0, "false_alarms": 0.001}


def planned(
    round: int, *, clients: int, groups: int, seed: int = 0, sampler: Sampler = ALL, excluded: np.ndarray | None = None
) -> RoundPlan:
    """Only who is in which group: as `plan_round` deals, without what a scheme adds."""
    streams, out = Streams(seed), np.zeros(0) if excluded is None else excluded
    drawn = drawn_cohort(sampler, streams, round, 0, clients)
    cohort = drawn[~np.isin(drawn, out)]
    base = RoundPlan(round=round, attempt=0, cohort=cohort, planned_cohort=1, run_seed=0, round_seed=0, fingerprint="")
    dealt = sampler.deal(cohort, clients, groups, streams.key("groups", round, 0) & (2**64 - 1))
    return replace(base, groups=tuple(replace(base, cohort=members) for members in dealt))


def verdict_on(plan: RoundPlan, attackers: np.ndarray) -> Verdict:
    """Every group with an attacker in it is clearly spoilt."""
    spoilt = np.array([np.isin(group.cohort, attackers).any() for group in plan.groups])
    return Verdict(np.where(spoilt, 9.0, 1.0), spoilt, spoilt)


def followed(
    rounds: int,
    attackers: np.ndarray,
    *,
    clients: int,
    groups: int,
    seed: int = 0,
    sampler: Sampler = ALL,
    active: Callable[[int], bool] = lambda round: True,
    factor: float = 1.0,
    **rules: Any,
) -> Findings:
    findings = first_findings(clients, 10**6)
    for number in range(1, rounds + 1):
        plan = planned(
            number,
            clients=clients,
            groups=groups,
            seed=seed,
            sampler=sampler,
            excluded=findings.excluded_before(number),
        )
        attacking = attackers if active(number) else attackers[:0]
        chance = factor * chance_of_a_group(groups, len(plan.cohort), dealt=sampler.dealt(clients))
        findings = update_findings(findings, plan, verdict_on(plan, attacking), chance=chance, **RULES | rules)
    return findings


@pytest.mark.parametrize("sampler", [ALL, Poisson(sampling_rate=0.5)], ids=str)
def test_attackers_are_excluded_and_hardly_anybody_else(sampler: Sampler) -> None:
    attackers = np.array([3, 50, 77, 120, 190])
    found = followed(25, attackers, clients=200, groups=20, sampler=sampler)
    assert set(attackers) <= set(found.excluded)
    assert len(found.excluded) <= 7
    assert (found.excluded_before(1)).tolist() == []
    assert found.excluded_before(26).tolist() == sorted(found.excluded)


def honest_excluded(seeds: int, **rules: Any) -> float:
    """On average over seeds, with attackers that cannot be told from others for long: there are as many as groups."""
    attackers = np.arange(6)
    runs = [followed(30, attackers, clients=36, groups=6, seed=seed, **rules) for seed in range(seeds)]
    return float(np.mean([len(set(found.excluded) - set(attackers.tolist())) for found in runs]))


def test_no_more_honest_clients_are_excluded_than_stated_on_average() -> None:
    assert honest_excluded(25, false_exclusions=3.0) <= 3.0


def test_a_ratio_that_takes_spoilt_groups_for_rarer_than_they_are_excludes_far_more() -> None:
    """The sabotaged twin: a third of the real chance to be in one."""
    assert honest_excluded(5, false_exclusions=3.0, factor=1 / 3) > 6.0


def test_an_honest_clients_ratio_does_not_grow_on_average() -> None:
    """Over all ways to deal: the mean ratio of honest clients after one round is 1 at most, for every β alone."""
    for attackers, clients, groups in ((1, 24, 6), (4, 24, 6), (6, 24, 6), (3, 25, 6)):
        values = []
        for seed in range(400):
            plan = planned(1, clients=clients, groups=groups, seed=seed)
            before = replace(first_findings(clients, 1), running=np.ones((2, clients)))
            chance = chance_of_a_group(groups, clients, dealt=True)
            after = update_findings(before, plan, verdict_on(plan, np.arange(attackers)), chance=chance, **RULES)
            values.append(after.running[:, attackers:].mean(axis=1) - 1 / 6)  # that is what begins after the round
        assert (np.mean(values, axis=0) <= 1.0 + 0.04).all()


def test_false_alarms_that_hit_one_client_alone_exclude_it_no_more_often_than_stated() -> None:
    """In calm rounds the ratio must shrink as well: alarms are seldom, and nearly all rounds have none."""
    alarms, rounds, clients, groups = 0.05, 1500, 200, 20
    plan = planned(1, clients=clients, groups=groups)
    own = np.arange(groups) == plan.group_of(np.array([0]))[0]
    excluded = 0
    for seed in range(3):
        rng, findings = np.random.default_rng(seed), first_findings(clients, 10**6)
        for number, alarm in enumerate(rng.random(rounds) < alarms / groups, 1):
            now, spoilt = replace(plan, round=number), own & alarm
            verdict, rules = Verdict(np.zeros(groups), spoilt, spoilt), RULES | {"false_alarms": alarms}
            findings = update_findings(findings, now, verdict, chance=1 / groups, **rules)
        excluded += 0 in findings.excluded
    assert excluded == 0


def test_attackers_that_behave_at_first_or_come_and_go_are_found_as_well() -> None:
    attackers = np.array([3, 50, 77])
    late = followed(30, attackers, clients=200, groups=20, active=lambda round: round > 15)
    seldom = followed(60, attackers, clients=200, groups=20, active=lambda round: round % 4 == 0)
    assert set(attackers) <= set(late.excluded) and set(attackers) <= set(seldom.excluded)


def test_one_that_is_silent_while_others_attack_is_not_cleared_for_ever() -> None:
    """Client 9 waits for ten rounds in which three others attack, and then attacks."""
    findings, clients = first_findings(200, 10**6), 200
    for number in range(1, 41):
        plan = planned(number, clients=clients, groups=20)
        attacking = np.array([3, 50, 77]) if number <= 10 else np.array([3, 50, 77, 9])
        chance = chance_of_a_group(20, clients, dealt=True)
        findings = update_findings(findings, plan, verdict_on(plan, attacking), chance=chance, **RULES)
    assert 9 in findings.excluded and findings.excluded[9] > 10


def test_nothing_spoilt_says_nothing_of_anybody() -> None:
    found = followed(20, np.arange(0), clients=40, groups=5)
    assert len(set(found.ratios)) == 1 and (found.ratios <= 1).all() and not found.excluded and found.num_suspects == 0


def test_after_calm_rounds_there_is_one_sum_and_a_spoilt_one_brings_the_groups_back() -> None:
    clean = Verdict(np.ones(5), np.zeros(5, dtype=bool), np.zeros(5, dtype=bool))
    one = Verdict(np.ones(1), np.ones(1, dtype=bool), np.ones(1, dtype=bool))
    plan = planned(1, clients=40, groups=5)
    findings = first_findings(40, 2)
    for expected in (False, True):
        findings = update_findings(findings, plan, clean, chance=0.2, **RULES)
        assert findings.one_sum is expected
    findings = update_findings(findings, replace(plan, groups=()), one, chance=1.0, **RULES)
    assert not findings.one_sum and findings.needed == 4 and (findings.ratios <= 1).all()
    for expected in (False, False, False, True):
        findings = update_findings(findings, plan, clean, chance=0.2, **RULES)
        assert findings.one_sum is expected
