"""Attackers in a secure sum: no clip, no noise, boosted integers; and what the statement says of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from attack_tools import MALICIOUS, SIZES, TRAIN, experiment, plan_of, pool, sent, trained

import laconic
from conftest import make_population
from laconic import schemes
from laconic.adversary.attack import Attack, Scene
from laconic.adversary.attacks.gradient_ascent import GradientAscent, RandomUpdate
from laconic.adversary.missing_noise import Attacked, about_missing_noise, centred, worst_of
from laconic.adversary.registry import ATTACKS, build_attack
from laconic.aggregate.medians import Median
from laconic.clients.simulated import SimulatedClients
from laconic.errors import ConfigError
from laconic.experiment.experiment import Experiment
from laconic.figures import at_most
from laconic.planning import plan_for
from laconic.privacy.accounting.accountant import Accountant
from laconic.privacy.accounting.releases import epsilon
from laconic.privacy.mechanism.discrete_gaussian import DiscreteGaussian
from laconic.privacy.statement import statement_lines
from laconic.runner.run import Run
from laconic.scheme import Scheme

SIGN_DP = schemes.fl_sign_dp(noise_multiplier=1.0, ring_bits=24, **TRAIN)
STD_DP = schemes.fl_std_dp(clip_norm=0.5, noise_multiplier=1.0, ring_bits=30, **TRAIN)
WHO: dict[str, Any] = {"malicious": MALICIOUS}
CLIMBED = trained(*pool(make_population(SIZES), MALICIOUS), path=("attack", 1, 0, 0), sign=-1)


def grid_of(e: Experiment) -> Any:
    assert e.grid is not None
    return e.grid


@pytest.mark.usefixtures("noise_by_seed")
def test_boosted_signs_go_into_the_ring_without_noise() -> None:
    e = experiment(SIGN_DP, GradientAscent(**WHO, boost=5000))
    codes, grid = sent(e), grid_of(e)
    expected = (5000 * grid.units * torch.sign(CLIMBED)).long() % 2**24
    for client in MALICIOUS:
        assert torch.equal(codes[client], expected)
    honest = sent(experiment(SIGN_DP, None))
    assert all(torch.equal(codes[c], honest[c]) for c in set(range(10)) - set(MALICIOUS))


def test_boosted_updates_go_into_the_ring_without_clip_and_noise() -> None:
    e = experiment(STD_DP, GradientAscent(**WHO, boost=10))
    code, grid = sent(e)[2], grid_of(e)
    half = 2**29
    found = (((code + half) % 2**30) - half).double() / grid.units
    assert float((found - 10 * CLIMBED.double()).abs().max()) <= 0.51 / grid.units + 1e-5
    assert float(found.norm()) > 2 * 0.5  # more than S


def test_attackers_may_follow_the_protocol_and_then_the_clip_undoes_the_boost() -> None:
    """Each adds a noise share of its own to the same clipped code."""
    attack = GradientAscent(**WHO, boost=1000, omit_noise=False)
    quiet = replace(STD_DP, noise=DiscreteGaussian(noise_multiplier=1e-3))
    codes, grid = sent(experiment(quiet, attack)), grid_of(experiment(quiet, attack))
    half = 2 ** (grid.bits - 1)
    found = [(((codes[c] + half) % 2**grid.bits) - half).double() / grid.units for c in MALICIOUS]
    assert not torch.equal(found[0], found[1])
    for one in found:
        assert float(one.norm()) == pytest.approx(0.5, rel=0.02)
        assert float((one / one.norm() - CLIMBED / CLIMBED.norm()).norm()) < 0.05


@pytest.mark.parametrize("scheme", [SIGN_DP, STD_DP], ids=lambda scheme: scheme.name)
@pytest.mark.parametrize(
    "attack",
    [
        GradientAscent(**WHO, boost=50),
        GradientAscent(**WHO, boost=50, omit_noise=False),
        RandomUpdate(**WHO, scale=3.0),
    ],
)
def test_masked_and_simulated_sums_of_attackers_are_the_same(scheme: Scheme, attack: Attack) -> None:
    results = [
        Run(experiment(scheme, attack, secagg=mode, noise_draws="per-client")).run() for mode in ("simulated", "masked")
    ]
    for a, b in zip(*(result.model.parameters() for result in results), strict=True):
        assert torch.equal(a, b)
    assert results[0].statement.get("attack") == results[1].statement.get("attack")


def test_a_diverging_attacker_sends_integers_all_the_same() -> None:
    e = experiment(STD_DP, RandomUpdate(**WHO, scale=1e38, boost=1e30))
    codes = sent(e)
    assert all(code.dtype == torch.int64 and 0 <= int(code.min()) <= int(code.max()) < 2**30 for code in codes.values())


# The ring


def test_what_wraps_is_said() -> None:
    assert [centred(50_000, bits) for bits in (16, 15, 17)] == [-15_536, -15_536, 50_000]
    assert (centred(100_000, 16), centred(100_000, 15), centred(200_000, 16)) == (-31_072, 1_696, 3_392)
    tight = schemes.fl_sign_dp(noise_multiplier=1.0, **TRAIN)
    e = experiment(tight, GradientAscent(**WHO, boost=5000))
    text = e.about_ring(3)
    bits, units = grid_of(e).bits, round(grid_of(e).units)
    assert text is not None and f"{15_000 * units:,} counts as {centred(15_000 * units, bits):,}" in text
    needed = int(text.split("--ring-bits ")[1].split()[0])
    roomy = schemes.fl_sign_dp(noise_multiplier=1.0, ring_bits=needed, **TRAIN)
    assert experiment(roomy, GradientAscent(**WHO, boost=5000)).about_ring(3) is None
    fits = int(text.split("--attack-boost ")[1].split()[0])
    if fits:
        assert experiment(tight, GradientAscent(**WHO, boost=fits)).about_ring(3) is None
    result = Run(e).run()
    assert result.attack is not None and result.attack["ring"] == text


def test_the_opposite_is_voted_for_where_the_ring_is_too_small() -> None:
    """Not hidden: with 2^b − B the attackers pull the other way."""
    tight = schemes.fl_sign_dp(noise_multiplier=1.0, **TRAIN)
    plain = experiment(tight, GradientAscent(**WHO, boost=1))
    grid = grid_of(plain)
    boost = (2**grid.bits * 2 // 3) / (3 * grid.units)  # B = ⅔·2^b counts as −⅓·2^b
    clients = SimulatedClients(experiment(tight, GradientAscent(**WHO, boost=boost)))
    plan = plan_of(clients)
    half = 2 ** (grid.bits - 1)
    total = ((clients.collect(plan, clients.model.initial).total + half) % 2**grid.bits) - half
    assert torch.equal(torch.sign(total).float(), -torch.sign(CLIMBED))


# The statement


def statement(attack: Attack, scheme: Scheme = STD_DP, **options: Any) -> dict[str, Any]:
    return Run(experiment(scheme, attack, **options)).run().statement


def test_the_statement_says_that_epsilon_does_not_hold_and_which_one_does() -> None:
    found = statement(GradientAscent(**WHO))
    about = found["attack"]
    assert not about["holds"] and about["noise_left"] == pytest.approx(0.7)
    assert "NOT in this run" in found["summary"]
    assert about["participant"]["pld"] > found["participant"]["epsilon"]["pld"]
    (text,) = [text for heading, text in statement_lines(found) if heading == "Attack"]
    assert "the ε above do not hold: 3 of a cohort of 10 clients attacked and added no noise" in text
    assert f"{at_most(about['participant']['pld'])} against the server; --max-colluders 3 makes up for them" in text


def test_enough_max_colluders_cover_the_attackers() -> None:
    found = statement(GradientAscent(**WHO), max_colluders=3)
    assert found["attack"]["holds"] and "NOT" not in found["summary"]
    assert "the ε hold, since the noise is made for --max-colluders 3 fewer clients" in found["attack"]["text"]
    few = statement(GradientAscent(**WHO), max_colluders=2)
    assert few["attack"]["noise_left"] == pytest.approx(7 / 8)


def test_in_groups_the_noise_is_missing_where_the_attackers_are() -> None:
    """Three of ten clients in two groups of five: one group has two attackers or three, and 3/5 or 2/5 of its noise."""
    grouped = replace(STD_DP, groups=2, aggregator=Median())
    result = Run(experiment(grouped, GradientAscent(**WHO))).run()
    assert {row["worst_group"] for row in result.history} == {5}
    about = result.statement["attack"]
    most = max(row["worst_group_malicious"] for row in result.history)
    assert most in (2, 3)
    assert about["noise_left"] == pytest.approx(1 - most / 5) and about["noise_left"] < 0.7
    assert f"{most} of a group of 5 clients attacked" in about["text"]
    assert about["participant"]["pld"] > statement(GradientAscent(**WHO))["attack"]["participant"]["pld"]


def test_attackers_that_add_their_noise_change_nothing() -> None:
    assert "attack" not in statement(GradientAscent(**WHO, omit_noise=False))
    assert "attack" not in statement(GradientAscent(**WHO, from_round=9))


@pytest.mark.parametrize("share", [0.9, 0.6])
def test_the_epsilon_that_holds_is_that_of_the_variance_that_is_left(share: float) -> None:
    """(1 − α)·σ², by the accountant of a plain Gaussian; the integers cost a five-hundredth of σ at most."""
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent

    sampler = laconic.AsPublished(cohort_size=100)
    accountant = Accountant(
        sampler=sampler, noise=DiscreteGaussian(noise_multiplier=1.54), num_clients=6000, delta=1e-5, horizon=200
    )
    worst = Attacked(cohort=100, attackers=round(100 * (1 - share)))
    found = about_missing_noise(accountant, worst, most=40, rounds=200, participations=12, method="moments")
    gaussian = GaussianDpEvent(1.54 * share**0.5)
    for figure, event, count in (
        ("released", PoissonSampledDpEvent(1 / 60, gaussian), 200),
        ("participant", gaussian, 12),
    ):
        expected = epsilon(event, count, 1e-5, "pld")
        assert expected <= found[figure]["pld"] <= 1.02 * expected


def test_noise_that_is_left_counts_shares_by_round() -> None:
    rounds = [Attacked(cohort=10, attackers=1), Attacked(cohort=8, attackers=4, max_dropouts=1, max_colluders=2)]
    worst = worst_of(rounds)
    assert worst is not None and worst.share == pytest.approx(3 / 5)
    assert Attacked(cohort=10, attackers=2, max_colluders=2).share == 1.0
    assert Attacked(cohort=2, attackers=2).share == 0.0
    assert worst_of([]) is None


def test_record_level_privacy_does_not_rest_on_others() -> None:
    from scheme_tools import scheme

    attack = RandomUpdate(**WHO)
    found = statement(attack, scheme("fl-std-record-dp"), budget=laconic.Budget(delta=1e-5))
    assert found["attack"]["holds"] and "adds the whole noise of its records itself" in found["attack"]["text"]


@pytest.mark.parametrize(
    ("scheme", "message"),
    [
        (schemes.fl_std_dp(clip_norm=0.5, noise_multiplier=1.0, noise="continuous", **TRAIN), "use --noise integer"),
        (schemes.centralized(**TRAIN), "no client can attack it"),
    ],
)
def test_schemes_that_cannot_be_attacked_are_refused(scheme: Scheme, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        experiment(scheme, GradientAscent(**WHO))


def test_pooled_records_do_not_fit_record_level_sampling() -> None:
    from scheme_tools import scheme

    with pytest.raises(ConfigError, match="use --attack-collude false"):
        experiment(scheme("fl-std-record-dp"), GradientAscent(**WHO))


def test_an_attacked_private_run_is_resumed_to_the_bit(tmp_path: Path) -> None:
    def run(out: Path, **options: Any) -> laconic.RunResult:
        e = experiment(SIGN_DP, None)
        return laconic.run(
            SIGN_DP, model=e.model, clients=e.population, test=e.test, sampler=e.sampler, rounds=4, delta=1e-5,
            attack=GradientAscent(fraction=0.3, boost=50), out=out, **options,
        )  # fmt: skip

    def interrupt(row: dict[str, Any]) -> None:
        if row["round"] == 2:
            raise KeyboardInterrupt

    whole = run(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "parts", observer=interrupt)
    parts = run(tmp_path / "parts", resume=True)
    for a, b in zip(whole.model.parameters(), parts.model.parameters(), strict=True):
        assert torch.equal(a, b)
    assert whole.attack == parts.attack and [row["malicious"] for row in parts.history] == [3] * 4


def needed(kind: str) -> dict[str, Any]:
    return {"source": 0, "target": 1} if "backdoor" in kind else {}


@pytest.mark.parametrize("kind", sorted(set(ATTACKS) - {"fabricated-sizes"}))
@pytest.mark.parametrize("groups", [1, 2])
def test_what_attackers_send_says_nothing_of_who_else_came(kind: str, groups: int) -> None:
    """Where they clip and add their noise, sampling still lowers the ε: so nothing of it may follow from the cohort.

    A little is enough once took its strength from the size of the cohort that was drawn.
    """
    scheme = STD_DP if groups == 1 else replace(STD_DP, groups=2, aggregator=Median())
    attack = build_attack(kind, **WHO, **needed(kind), omit_noise=False)
    clients = SimulatedClients(experiment(scheme, attack, sampler=laconic.Poisson(sampling_rate=0.5)))
    assert clients.experiment.accountant is not None and clients.experiment.accountant.amplified(3)
    attackers = clients.work.attackers
    assert attackers is not None
    sent_by = []
    for honest in ([0, 1, 3, 4, 6, 7, 8], [0], []):
        plan = plan_for(
            scheme, clients.experiment.sampler, np.sort([*honest, *MALICIOUS]), streams=clients.streams, round=1,
            attempt=0, num_clients=10,
        )  # fmt: skip
        forged = attackers.forged(plan, np.array(MALICIOUS), clients.model.initial, None)
        sent_by.append(torch.cat([one.values for one in forged]))
    assert torch.equal(sent_by[0], sent_by[1]) and torch.equal(sent_by[0], sent_by[2])


def test_an_attack_of_the_user_s_own_is_not_told_who_came() -> None:
    from dataclasses import fields

    assert {field.name for field in fields(Scene)} == {
        "round", "attempt", "attackers", "planned_cohort", "size", "device", "streams",
    }  # fmt: skip


def test_noise_and_budget_are_made_before_anybody_attacks() -> None:
    """The ε that was asked for decides σ and when the run ends; the statement says what is left of it."""
    e = experiment(STD_DP, None)

    def run(attack: Attack | None) -> laconic.RunResult:
        return laconic.run(
            schemes.fl_std_dp(clip_norm=0.5, **TRAIN), model=e.model, clients=e.population, rounds=4, delta=1e-5,
            sampling_rate=0.5, epsilon=2.0, attack=attack,
        )  # fmt: skip

    quiet, attacked = run(None), run(GradientAscent(fraction=0.2))
    sigma = [result.statement["mechanism"]["noise"]["noise_multiplier"] for result in (quiet, attacked)]
    assert sigma[0] == sigma[1] and len(attacked.history) == 4 and attacked.stop_reason == "rounds"
    assert quiet.statement["released"]["epsilon"]["pld"] <= 2.0
    assert attacked.statement["released"]["epsilon"]["pld"] > 2.0 and attacked.last["epsilon"] > 2.0
    assert "sampling does not lower the ε against an outsider" in attacked.statement["attack"]["text"]
