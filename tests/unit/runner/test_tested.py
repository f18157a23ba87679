"""Runs with group testing: who is left out, what is charged, and that such a run is resumed to the bit."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import laconic
from conftest import make_population, make_records
from laconic.adversary.attacks.gradient_ascent import GradientAscent
from laconic.aggregate.medians import Median
from laconic.audit.setups import check_auditable
from laconic.errors import ConfigError
from laconic.experiment.experiment import Experiment
from laconic.experiment.mechanism import Mechanism
from laconic.privacy.accounting.sampling import FixedSize, Poisson, Sampler
from laconic.report import summary_lines
from laconic.runner.run import Run
from laconic.runner.tested import shrinkage
from laconic.scheme import Scheme

CLIENTS = 40
ATTACKERS = (3, 17)
ATTACK = GradientAscent(malicious=ATTACKERS, boost=400.0)
ALL = Poisson(sampling_rate=1.0)


def scheme(**changes: Any) -> Scheme:
    some = laconic.schemes.fl_std_dp(
        clip_norm=0.3, noise_multiplier=1.0, local_lr=0.3, local_steps=2, batch_size=4, ring_bits=24
    )
    return replace(some, groups=8, **changes)


def linear() -> nn.Linear:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Linear(6, 3)


def options(**changes: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "model": linear(),
        "clients": make_population([4] * CLIENTS),
        "test": make_records(60, seed=1),
        "sampler": ALL,
        "rounds": 12,
        "delta": 1e-3,
        "workers": 1,
        "attack": ATTACK,
        "group_testing": True,
    }
    return given | changes


def weights(result: laconic.RunResult) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in result.model.parameters()])


def experiment(some: Scheme | None = None, sampler: Sampler = ALL, **changes: Any) -> Experiment:
    given = options(**changes)
    population, delta = given.pop("clients"), given.pop("delta")
    given["test"], _ = None, given.pop("sampler")
    budget = laconic.Budget(delta=delta)
    return Experiment(scheme=some or scheme(), population=population, sampler=sampler, budget=budget, **given)


@pytest.fixture(scope="module")
def result() -> laconic.RunResult:
    return laconic.run(scheme(), **options())


def test_attackers_are_excluded_and_there_is_one_sum_again(result: laconic.RunResult) -> None:
    testing = result.group_testing
    assert testing is not None
    assert {one["client"] for one in testing["excluded"]} == set(ATTACKERS)
    assert (testing["attackers_excluded"], testing["honest_excluded"], testing["attackers"]) == (2, 0, 2)
    groups = [row["groups"] for row in result.history]
    last = max(one["after_round"] for one in testing["excluded"])
    assert groups == [8] * (last + 2) + [1] * (12 - last - 2)
    for row in result.history:
        assert row["cohort"] == CLIENTS - sum(one["after_round"] < row["round"] for one in testing["excluded"])
        assert row["spoilt_sums"] == (row["spoilt_groups"] if row["round"] <= last else 0)
    assert any("newly_excluded" in row for row in result.history)
    assert json.loads(json.dumps(result.summary()["group_testing"])) == testing
    texts = dict(summary_lines.testing_lines(testing))
    assert "2 of 2 attackers, and 0 honest" in texts["  of them"] and "1 honest clients or fewer" in texts["  expected"]


def test_spoilt_groups_move_nothing(result: laconic.RunResult) -> None:
    """The same run without attackers ends close by; without group testing it does not."""
    clean = laconic.run(scheme(), **options(attack=None))
    spoilt = laconic.run(scheme(), **options(group_testing=False))
    assert clean.group_testing is not None and clean.group_testing["excluded"] == []
    assert "attackers" not in clean.group_testing
    near, far = (float((weights(one) - weights(clean)).norm()) for one in (result, spoilt))
    assert near < 3 and far > 10 * near


def test_exclusion_costs_no_privacy_and_who_is_excluded_is_charged_all_the_same(
    result: laconic.RunResult, tmp_path: Path
) -> None:
    without = laconic.run(scheme(), **options(group_testing=False, rounds=12))
    for one in ("released", "participant"):
        assert result.statement[one]["epsilon"] == without.statement[one]["epsilon"]
    laconic.run(scheme(), **options(out=tmp_path / "run"))
    charges = [json.loads(line) for line in (tmp_path / "run" / "charges.jsonl").read_text().splitlines()]
    assert all(len(charge["cohort"]) == CLIENTS for charge in charges)


@pytest.mark.parametrize(
    ("sampler", "slack"),
    [(Poisson(sampling_rate=0.9), {}), (FixedSize(cohort_size=40), {"max_dropouts": 1, "dropout_rate": 0.05})],
    ids=["coins", "fixed size, dropouts"],
)
def test_a_masked_run_is_the_simulated_one_and_so_is_one_that_was_interrupted(
    sampler: Sampler, slack: dict[str, Any], tmp_path: Path
) -> None:
    same = options(sampler=sampler, rounds=8, **slack)
    simulated = laconic.run(scheme(aggregator=Median()), noise_draws="per-client", **same)
    masked = same | {"secagg": "masked", "out": tmp_path / "run"}

    def interrupt(row: dict[str, Any]) -> None:
        if row["round"] == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        laconic.run(scheme(aggregator=Median()), observer=interrupt, **masked)
    resumed = laconic.run(scheme(aggregator=Median()), resume=True, **masked)
    assert torch.equal(weights(simulated), weights(resumed))
    assert simulated.group_testing == resumed.group_testing
    assert simulated.group_testing is not None and len(simulated.group_testing["excluded"]) >= 2
    keys = ("groups", "spoilt_sums", "largest_sum", "suspects", "excluded", "cohort")
    assert [[row[key] for key in keys] for row in simulated.history] == [
        [row[key] for key in keys] for row in resumed.history
    ]


def test_what_was_found_is_kept_between_rounds_to_the_bit(tmp_path: Path) -> None:
    e = experiment()
    from laconic.store.checkpoint import parsed_state, state_bytes

    run = Run(e)
    run.begin()
    for number in range(1, 7):
        run._one_round(number)
    state, _ = parsed_state(state_bytes(run.state, "head"), tmp_path, run.model.size, run.device)
    kept, found = state.findings, run.state.findings
    assert kept is not None and found is not None
    assert (kept.running == found.running).all() and kept.running.any()
    assert replace(kept, running=found.running) == found and kept.excluded


def test_a_spoilt_sum_of_all_is_not_used_and_brings_the_groups_back() -> None:
    """Attackers that wait until there is one sum: no step, and then they are found."""
    waiting = replace(ATTACK, from_round=4)
    found = laconic.run(scheme(), **options(attack=waiting, rounds=14))
    rows = {row["round"]: row for row in found.history}
    assert [rows[n]["groups"] for n in (1, 2, 3, 4, 5)] == [8, 8, 1, 1, 8]
    assert rows[4]["no_step"] == "1 of 1 sums are spoilt" and rows[4]["weights"] == rows[3]["weights"]
    assert found.group_testing is not None and found.group_testing["attackers_excluded"] == 2


def test_where_fewer_clients_are_left_there_are_fewer_groups_of_two_at_least() -> None:
    attack = replace(ATTACK, malicious=(0, 1, 2, 3))
    small = options(clients=make_population([4] * 16), attack=attack, rounds=25, false_exclusions=3.0)
    found = laconic.run(scheme(), **small)
    assert found.group_testing is not None and found.group_testing["excluded"]
    assert all(row["cohort"] >= 2 * row["groups"] for row in found.history)


@pytest.mark.parametrize("sampler", [ALL, FixedSize(cohort_size=CLIENTS)], ids=str)
def test_fewer_groups_are_large_enough_for_the_dropouts_of_those_that_they_replace(sampler: Sampler) -> None:
    """20 groups of two with one dropout each. 19 groups would have two dropouts each, and none could be opened."""
    run = Run(experiment(replace(scheme(), groups=20), sampler=sampler, max_dropouts=1))
    run.begin()
    assert run.state.findings is not None
    for count in range(19):
        run.state.findings = replace(run.state.findings, excluded=dict.fromkeys(range(count), 0))
        plan = run.plan(1)
        assert all(one.viable and one.released_variance > 0 for one in plan.sums)
        assert (len(plan.sums) == 20) is (count == 0)


def test_in_one_sum_as_many_may_drop_out_or_collude_as_in_all_groups() -> None:
    e = experiment(max_dropouts=1, max_colluders=1)
    run = Run(e)
    run.begin()
    plan = run.plan(1)
    assert [(one.max_dropouts, one.max_colluders) for one in plan.sums] == [(1, 1)] * 8
    assert run.state.findings is not None
    run.state.findings = replace(run.state.findings, one_sum=True, excluded={7: 0, 9: 0})
    plan = run.plan(1)
    assert (plan.max_dropouts, plan.max_colluders, len(plan.cohort), plan.least_cohort) == (8, 8, 38, 38)
    assert plan.excluded.tolist() == [7, 9] and len(plan.drawn) == 40 and plan.viable
    assert plan.noise_shares == 38 - 16


def test_the_statement_says_what_exclusions_rest_on_and_that_they_are_kept_secret(result: laconic.RunResult) -> None:
    text = json.dumps(result.statement, ensure_ascii=False)
    assert "no more than 8 clients attack in a round" in text
    assert "Who is excluded shows who took part" in text


@pytest.mark.parametrize(
    ("sampler", "slack", "amplified"),
    [
        (Poisson(sampling_rate=0.5), 0, True),
        (Poisson(sampling_rate=0.5), 1, False),
        (FixedSize(cohort_size=20), 0, False),
    ],
    ids=str,
)
def test_amplification_is_claimed_only_where_exclusions_do_not_show_who_came(
    sampler: Sampler, slack: int, amplified: bool
) -> None:
    mechanism: Mechanism = experiment(sampler=sampler, max_dropouts=slack, attack=None).mechanism
    assert mechanism.accountant is not None and mechanism.accountant.amplified(1) is amplified
    assert replace(mechanism, group_testing=False, max_dropouts=0).accountant.amplified(1)  # type: ignore[union-attr]


def test_the_mean_of_groups_is_shrunk_as_far_as_it_is_noise() -> None:
    rng = torch.Generator().manual_seed(0)
    noise = torch.randn(16, 5000, generator=rng) * 3
    signal = torch.zeros(5000)
    signal[0] = 3 * (5000 / 16) ** 0.5  # as long as the noise in the mean
    assert shrinkage(noise, 3.0) < 0.1
    assert shrinkage(noise + signal, 3.0) == pytest.approx(0.5, abs=0.05)
    assert shrinkage(noise + 100 * signal, 3.0) > 0.99 and shrinkage(torch.zeros(3, 5), 1.0) == 0
    errors = [float((f * (noise + signal).mean(0) - signal).norm()) for f in (shrinkage(noise + signal, 3.0), 1.0)]
    assert errors[0] < 0.8 * errors[1]


def test_what_cannot_be_tested_is_refused_with_the_way_out() -> None:
    plain = laconic.schemes.fl_std(local_lr=0.1, local_steps=1)
    for change, words in (
        ({"scheme": plain, "budget": None, "attack": None}, r"adds no noise.*--aggregator median"),
        ({"scheme": replace(scheme(), groups=1)}, r"needs groups to test: add --groups"),
        ({"false_exclusions": 40.0}, r"--false-exclusions 40 of 40 clients"),
        ({"false_alarms": 0.0}, r"false_alarms must be strictly between 0 and 1"),
        ({"calm_rounds": 0}, r"calm_rounds must be"),
    ):
        with pytest.raises(ConfigError, match=words):
            replace(experiment(), **change)


def test_an_audit_of_group_testing_is_refused_with_the_way_out() -> None:
    with pytest.raises(ConfigError, match="audit the run without it"):
        check_auditable(experiment(attack=None))
