"""Robust, private and masked at once: a cohort that is summed in groups, each with the whole noise."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scheme_tools
import torch
from torch import Tensor

import laconic
from conftest import make_population, make_records
from laconic.adversary.attacks.gradient_ascent import SignInversion
from laconic.aggregate.medians import Median, TrimmedMean
from laconic.clients.simulated import SimulatedClients
from laconic.errors import ConfigError, PrivacyError
from laconic.experiment.experiment import Experiment
from laconic.plan import RoundPlan
from laconic.planning import plan_for, plan_round
from laconic.privacy.accounting.sampling import FixedSize, Poisson, Sampler
from laconic.round import noise_stream, noisy_codes, noisy_in_groups, released_sums, sums_step
from laconic.runner.run import Run
from laconic.runner.statement import counted_attackers
from laconic.scheme import Scheme
from laconic.streams import Stream, Streams

GROUPS = 5
ALL = Poisson(sampling_rate=1.0)


def scheme(name: str = "fl-std-dp", groups: int = GROUPS, **changes: Any) -> Scheme:
    return replace(scheme_tools.scheme(name, **changes), groups=groups, aggregator=Median())


def experiment(some: Scheme, sampler: Sampler = ALL, **options: Any) -> Experiment:
    return Experiment(
        scheme=some,
        model=scheme_tools.model(),
        population=make_population(scheme_tools.SIZES),
        sampler=sampler,
        budget=laconic.Budget(delta=1e-5),
        test=make_records(60, seed=1),
        public=make_records(20, seed=2),
        **({"rounds": 3, "workers": 1} | options),
    )


def run(some: Scheme, sampler: Sampler = ALL, *, tamper: Any = None, **options: Any) -> laconic.RunResult:
    e = experiment(some, sampler, **options)
    return Run(e, clients=SimulatedClients(e, tamper=tamper)).run()


def weights(result: laconic.RunResult) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in result.model.parameters()])


def planned(
    sampler: Sampler, *, num_clients: int = 40, groups: int = GROUPS, round: int = 1, **slack: int
) -> RoundPlan:
    return plan_round(scheme(groups=groups), sampler, streams=Streams(7), round=round, num_clients=num_clients, **slack)


SAMPLERS: list[Sampler] = [ALL, Poisson(sampling_rate=0.5), FixedSize(cohort_size=23)]


@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
def test_every_client_of_a_cohort_is_in_one_group_and_groups_are_new_in_every_round(sampler: Sampler) -> None:
    plans = [planned(sampler, round=number) for number in range(1, 30)]
    for plan in plans:
        members = np.concatenate([group.cohort for group in plan.groups])
        assert sorted(members.tolist()) == plan.cohort.tolist()
        assert all((np.diff(group.cohort) > 0).all() for group in plan.groups)
        for number, group in enumerate(plan.groups):
            assert (plan.group_of(group.cohort) == number).all()
    together = Counter(
        (int(a), int(b)) for plan in plans for g in plan.groups for a in g.cohort for b in g.cohort if a < b
    )
    assert max(together.values()) < len(plans)  # no two clients are always together
    assert [g.cohort.tolist() for g in planned(sampler).groups] == [g.cohort.tolist() for g in plans[0].groups]


def test_groups_that_are_dealt_differ_by_one_client_at_most() -> None:
    for sampler, total in ((ALL, 40), (FixedSize(cohort_size=23), 23)):
        sizes = [len(group.cohort) for group in planned(sampler).groups]
        assert sum(sizes) == total and max(sizes) - min(sizes) <= 1
        assert planned(sampler).groups[0].planned_cohort == total / GROUPS


def test_a_clients_group_does_not_depend_on_who_else_came_where_cohorts_are_drawn_by_coins() -> None:
    """What amplification rests on: given the coins of the others, nothing but the client's own code depends on it."""
    sampler, some = Poisson(sampling_rate=0.3), scheme()
    cohort = np.arange(0, 200, 3)
    options: dict[str, Any] = {"streams": Streams(1), "round": 4, "attempt": 0, "num_clients": 200}
    whole = plan_for(some, sampler, cohort, **options)
    for left_out in cohort[::7]:
        others = cohort[cohort != left_out]
        without = plan_for(some, sampler, others, **options)
        assert (without.group_of(others) == whole.group_of(others)).all()


def test_groups_of_coins_are_uniform() -> None:
    """χ² of 2,000 clients in 5 groups in each of 50 rounds: a false alarm once in 10⁶ (200 degrees of freedom)."""
    from scipy.stats import chi2

    cohort, some, statistic = np.arange(2000), scheme(), 0.0
    for round in range(50):
        plan = plan_for(
            some, Poisson(sampling_rate=0.5), cohort, streams=Streams(3), round=round, attempt=0, num_clients=2000
        )
        sizes = np.array([len(group.cohort) for group in plan.groups])
        statistic += float(((sizes - 400) ** 2 / 400).sum())
    assert chi2.ppf(1e-6, 200) < statistic < chi2.isf(1e-6, 200)


@pytest.mark.parametrize(
    ("name", "sampler"), [("fl-std-dp", ALL), ("fl-sign-dp", SAMPLERS[1]), ("fl-top-dp", SAMPLERS[2])], ids=str
)
def test_the_sum_of_a_group_is_that_of_its_members_and_masked_sums_are_the_same(name: str, sampler: Sampler) -> None:
    some = experiment(scheme(name), sampler)
    totals = {}
    for mode in ("simulated", "masked"):
        clients = SimulatedClients(replace(some, secagg=mode, noise_draws="per-client"))
        run = Run(clients.experiment, clients=clients)
        run.begin()
        plan = run.plan(1)
        totals[mode] = clients.collect(plan, run.state.weights)
    bits = clients.experiment.grid.bits  # type: ignore[union-attr]
    codes = {
        int(client): values
        for chunk in SimulatedClients(some).work.codes(plan, run.state.weights)
        for client, values in zip(chunk.clients, chunk.values, strict=True)
    }
    for number, group in enumerate(plan.groups):
        expected = sum(codes[client] for client in group.cohort.tolist())
        for sent in totals.values():
            if len(group.cohort):
                assert torch.equal(sent.total[number] % 2**bits, expected % 2**bits)
            assert sent.groups is not None and sent.groups[number] == len(group.cohort)


@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
def test_a_masked_run_is_the_simulated_one_bit_for_bit_and_so_is_a_resumed_one(
    sampler: Sampler, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"max_dropouts": 2, "dropout_rate": 0.1, "dropout_stage": "any"}
    some = scheme(noise_multiplier=0.8)
    simulated = run(some, sampler, noise_draws="per-client", **options)
    masked = run(some, sampler, secagg="masked", **options)
    assert torch.equal(weights(simulated), weights(masked))
    assert [row["lost_groups"] for row in simulated.history] == [row["lost_groups"] for row in masked.history]

    def interrupt(row: dict[str, Any]) -> None:
        if row["round"] == 2:
            raise KeyboardInterrupt

    same: dict[str, Any] = {
        "model": scheme_tools.model(),
        "clients": make_population(scheme_tools.SIZES),
        "test": make_records(60, seed=1),
        "public": make_records(20, seed=2),
        "sampler": sampler,
        "rounds": 3,
        "delta": 1e-5,
        "secagg": "masked",
        "workers": 1,
        "out": tmp_path / "run",
    } | options
    with pytest.raises(KeyboardInterrupt):
        laconic.run(some, observer=interrupt, **same)
    resumed = laconic.run(some, resume=True, **same)
    assert torch.equal(weights(resumed), weights(masked))
    assert resumed.ledger["bytes_up"] == masked.ledger["bytes_up"]


def test_a_client_is_not_asked_for_two_sums_of_one_attempt() -> None:
    clients = SimulatedClients(experiment(scheme(), secagg="masked"))
    assert clients.secure is not None
    plan = planned(ALL)
    clients.secure.attempt(plan.groups[0], plan)
    clients.secure.attempt(plan.groups[1], plan)
    both = np.sort(np.append(plan.groups[2].cohort, plan.groups[0].cohort[:1]))
    with pytest.raises(ConfigError, match=r"round 1, attempt 0 is not after \(1, 0\)"):
        clients.secure.attempt(replace(plan.groups[2], cohort=both, largest_cohort=20), plan)


def test_dropouts_of_one_group_do_not_touch_another() -> None:
    """A group that loses more than it may releases noise alone; the sums of the others stay what they are."""
    some = experiment(scheme(), max_dropouts=1, dropout_rate=0.15)
    clients = SimulatedClients(some)
    run = Run(some, clients=clients)
    run.begin()
    for number in range(1, 30):
        plan = run.plan(number)
        sent = clients.collect(plan, run.state.weights)
        assert sent.groups is not None
        if 0 < sent.groups.count(0) < GROUPS:
            break
    else:
        raise AssertionError("no round lost some groups only")
    assert clients.secure is not None
    attempts = clients.secure.attempts(plan)
    for count, attempt, group, total in zip(sent.groups, attempts, plan.groups, sent.total, strict=True):
        assert attempt is not None
        lost = len(group.cohort) - len(attempt.clients) > 1
        assert (count == 0) == lost == (attempt.foretold != "") == (not total.any())
    assert not sent.lost and sent.messages == sum(sent.groups)


def noise_of_groups(some: Scheme, plan: RoundPlan, draw: Any) -> np.ndarray:
    """The noise in each group's released sum, in units of S·σ, of many coordinates; all codes are 0."""
    streams = [noise_stream(Streams(11), plan, int(client)) for client in plan.cohort]
    sent, groups = draw(torch.zeros(len(plan.cohort), 4000), streams), plan.group_of(plan.cohort)
    released = []
    for number, group in enumerate(plan.groups):
        total = sent[torch.from_numpy(groups == number)].sum(0)
        opened = some.noise.released(
            total, sensitivity=0.7, plan=group, survivors=len(group.cohort), rng=Stream(number)
        )
        released.append(opened.numpy() / (0.7 * some.noise.noise_multiplier))  # type: ignore[attr-defined]
    return np.array(released)


def whole(variance: float, noise: np.ndarray) -> list[bool]:
    """χ² of each group's 4,000 coordinates: of five groups, one gives a false alarm once in 10⁶ (Bonferroni)."""
    from scipy.stats import chi2

    low, high = chi2.ppf(1e-7, 4000), chi2.isf(1e-7, 4000)
    return [bool(low < (row.astype(float) ** 2).sum() / variance < high) for row in noise]


@pytest.mark.parametrize("noise", ["integer", "continuous"])
def test_the_sum_of_every_group_has_the_whole_noise(noise: str) -> None:
    """Shares that are sized for the whole cohort give a fifth of the variance, and are caught."""
    some, plan = scheme(noise=noise), planned(ALL)

    def honest(codes: Tensor, streams: list[Stream]) -> Tensor:
        return noisy_in_groups(some, plan, plan.cohort, codes, streams=streams)

    def sabotaged(codes: Tensor, streams: list[Stream]) -> Tensor:
        return noisy_codes(some, plan, codes, streams=streams)

    assert all(whole(1.0, noise_of_groups(some, plan, honest)))
    assert not any(whole(1.0, noise_of_groups(some, plan, sabotaged)))
    assert all(whole(1 / GROUPS, noise_of_groups(some, plan, sabotaged)))


def test_with_slack_the_noise_of_every_group_is_topped_up_to_the_same() -> None:
    """The smallest group has four clients, of whom two may be missing, so V = 4/(4 − 2) for all of them."""
    some, plan = scheme(noise="continuous"), planned(FixedSize(cohort_size=23), max_dropouts=1, max_colluders=1)

    def draw(codes: Tensor, streams: list[Stream]) -> Tensor:
        return noisy_in_groups(some, plan, plan.cohort, codes, streams=streams)

    assert all(whole(2.0, noise_of_groups(some, plan, draw)))


@pytest.mark.parametrize("noise", ["integer", "continuous"])
@pytest.mark.parametrize("sampler", [Poisson(sampling_rate=0.5), ALL, FixedSize(cohort_size=20)], ids=str)
def test_the_epsilon_is_that_of_one_sum(noise: str, sampler: Sampler) -> None:
    """Also on integers: here both grids are the coarsest that there is."""
    draws = {"noise_draws": "per-client"}  # as many of them
    grouped = experiment(scheme(noise=noise), sampler, max_dropouts=0, **draws).accountant
    one = experiment(scheme_tools.scheme("fl-std-dp", noise=noise), sampler, **draws).accountant
    assert grouped is not None and one is not None
    assert grouped.released_epsilon(7) == one.released_epsilon(7)
    assert grouped.participant_epsilon(3) == one.participant_epsilon(3)


def test_on_a_finer_grid_the_epsilon_differs_by_less_than_half_a_percent() -> None:
    told = {"sampler": ALL, "noise": scheme().noise, "num_clients": 6000, "delta": 1e-5, "sensitivity": 0.7}
    some, one = laconic.Accountant(**told, groups=60), laconic.Accountant(**told)
    assert one.participant_epsilon(5) < some.participant_epsilon(5) < 1.005 * one.participant_epsilon(5)


def test_with_slack_small_groups_of_coins_end_the_amplification() -> None:
    """A group of ten with two dropouts is often too small to be opened, which shows; one sum of a hundred never is."""
    options: dict[str, Any] = {
        "sampler": Poisson(sampling_rate=1 / 60),
        "noise": scheme().noise,
        "num_clients": 6000,
        "delta": 1e-5,
        "slack": 2,
    }
    assert laconic.Accountant(**options).amplified(20)
    assert not laconic.Accountant(**options, groups=10).amplified(20)


@pytest.mark.parametrize("secagg", ["simulated", "masked"])
def test_attackers_spoil_their_groups_and_the_median_survives(secagg: str) -> None:
    """Two of forty send ten thousand times the opposite, without clip and noise; of the mean nothing is left."""
    attack = SignInversion(malicious=(3, 17), boost=1e4)
    quiet: dict[str, Any] = {"noise_multiplier": 0.05, "ring_bits": 30}
    options: dict[str, Any] = {"rounds": 8, "secagg": secagg}
    clean = run(scheme(**quiet), **options).last["accuracy"]
    robust = run(scheme(**quiet), attack=attack, **options)
    plain = run(scheme_tools.scheme("fl-std-dp", **quiet), attack=attack, **options).last["accuracy"]
    assert plain < 0.6 and robust.last["accuracy"] > 0.8 and robust.last["accuracy"] > clean - 0.1
    assert all(row["malicious"] == 2 and 1 <= row["spoilt_groups"] <= 2 for row in robust.history)


def test_a_statement_counts_the_noise_that_is_missing_in_the_worst_group() -> None:
    """Of eight clients in a group one or two add no noise: an eighth or a quarter of its variance is not there."""
    attack = SignInversion(malicious=(3, 17), boost=10.0)
    found = run(scheme(), attack=attack)
    most = max(row["most_malicious_in_a_group"] for row in found.history)
    assert found.statement["attack"]["noise_left"] == 1 - most / 8
    assert f"{most} of a group of 8 clients attacked and added no noise" in found.statement["attack"]["text"]
    assert run(scheme(), attack=attack, max_colluders=2).statement["attack"]["holds"]


def test_an_attack_is_counted_in_the_group_with_the_least_noise_left() -> None:
    attack = SignInversion(malicious=(0, 1, 2, 3), boost=2.0)
    e = experiment(scheme(groups=3), attack=attack)
    plan = planned(ALL, groups=3)
    groups = [np.array([0, 10, 11]), np.array([1, 2, 3, *range(12, 26)]), np.arange(26, 39)]
    uneven = replace(plan, groups=tuple(replace(plan.groups[0], cohort=cohort) for cohort in groups))
    uneven = replace(uneven, cohort=np.sort(np.concatenate(groups)))
    assert counted_attackers(e, uneven) == {
        "malicious": 4,
        "spoilt_groups": 2,
        "most_malicious_in_a_group": 3,
        "worst_group": 3,
        "worst_group_malicious": 1,
    }


def test_the_mean_of_equal_groups_is_the_mean_of_the_cohort() -> None:
    some = replace(scheme(noise_multiplier=1e-3, noise="continuous"), aggregator=laconic.Scheme.aggregator)
    plan = planned(ALL)
    totals = torch.arange(50.0).reshape(5, 10)
    released = released_sums(some, plan, totals, survivors=[8] * 5, stream=Stream(1))
    after, _ = sums_step(some, plan, released, weights=torch.zeros(10), state={})
    assert torch.allclose(after, totals.sum(0) / 40, atol=1e-2)


def test_a_group_that_is_opened_with_too_few_messages_is_refused() -> None:
    with pytest.raises(PrivacyError, match="7 messages, but the noise needs 8"):
        released_sums(
            scheme(noise="continuous"), planned(ALL), torch.zeros(5, 10), survivors=[8, 8, 7, 8, 8], stream=Stream(1)
        )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"groups": 21}, r"--groups 21 of a cohort of 40 leaves fewer than two clients in a group, .*--groups 20 or"),
        ({"max_dropouts": 4, "max_colluders": 4}, "= 8 leaves none of a group of 8 to add the noise"),
    ],
    ids=str,
)
def test_groups_that_a_cohort_cannot_fill_are_refused(change: dict[str, Any], message: str) -> None:
    groups = change.pop("groups", GROUPS)
    with pytest.raises(ConfigError, match=message):
        experiment(scheme(groups=groups), **change)


def test_groups_that_do_not_go_with_the_scheme_are_refused() -> None:
    with pytest.raises(ConfigError, match="groups have secure sums with noise: use --groups with a scheme in -dp"):
        replace(scheme_tools.scheme("fl-std"), groups=3)
    with pytest.raises(ConfigError, match="TrimmedMean takes 7 sums or more, but there are 5: raise --groups"):
        replace(scheme(), aggregator=TrimmedMean(byzantine=3))
    with pytest.raises(ConfigError, match="use it without noise shares, or with --groups"):
        replace(scheme(), groups=1)


def test_groups_are_part_of_the_fingerprint_unless_there_is_one() -> None:
    one = scheme_tools.scheme("fl-std-dp")
    assert "groups" not in one.to_dict() and Scheme.from_dict(one.to_dict()) == one
    assert Scheme.from_dict(scheme().to_dict()) == scheme()
    assert scheme().fingerprint != scheme(groups=4).fingerprint


def test_a_statement_says_how_many_groups_there_are_and_what_they_cost() -> None:
    statement = run(scheme(), max_dropouts=1).statement
    about = statement["mechanism"]["groups"]
    assert (about["groups"], about["planned_size"], about["spoilt_groups_tolerated"]) == (5, 8, 2)
    assert about["noise_factor"] == pytest.approx(5 * 0.5356, rel=0.1)  # the median of five normals has variance 0.287
    assert any(text.startswith("of a group, at most 1 drop out") for text in statement["assumptions"])
    assert any("split at random into 5 groups" in text for text in statement["assumptions"])
