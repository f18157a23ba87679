"""`laconic advise` keeps to the limits, shows the accountant's ε, and gives a command that promises the same."""

from __future__ import annotations

import json
import shlex
from typing import Any

import numpy as np
import pytest
import torch
from e2e_tools import call, words

import laconic
from laconic.advice import ranking
from laconic.advice.answer import run_command, with_noise
from laconic.advice.question import Question
from laconic.advice.ranking import best_cap, factors, farthest, noise_ratio
from laconic.advice.search import against_outsider, against_server, candidate
from laconic.codecs.base import Identity
from laconic.errors import ConfigError
from laconic.server.rules import Average

HEAD: dict[str, Any] = {"num_clients": 6000, "classes": 10, "records": 10, "epsilon": 1.0, "max_rounds": 60}
SMALL: dict[str, Any] = {"num_clients": 479, "weights": 650, "epsilon": 4.0, "max_rounds": 40}


@pytest.fixture(scope="module")
def advice() -> Any:
    return laconic.advise(**HEAD, bytes_up=110_880, bytes_down=110_880, round_seconds=2.0)


def test_the_best_setting_keeps_every_limit(advice: Any) -> None:
    for setting in (advice.best, *advice.others):
        assert setting.bytes_up <= 110_880 and setting.bytes_down <= 110_880
        assert setting.rounds <= 60 and setting.seconds == 2.0 * setting.rounds
        assert setting.epsilon_server <= 1.0 and setting.epsilon_outsider <= 1.0


def test_against_the_server_everyone_takes_part_and_both_epsilons_are_one(advice: Any) -> None:
    assert advice.best.sampling_rate == 1.0
    assert advice.best.epsilon_server == pytest.approx(advice.best.epsilon_outsider) == pytest.approx(1.0, abs=1e-3)


def test_the_epsilon_shown_is_the_accountants() -> None:
    advice = laconic.advise(**SMALL, cohort=100, max_participations=5)
    best = advice.best
    assert best.cohort <= 100 and best.participations is not None and best.participations <= 5

    def server(sigma: float) -> float:
        accountant = laconic.Accountant(
            sampler=laconic.Poisson(sampling_rate=best.sampling_rate),
            noise=laconic.DiscreteGaussian(noise_multiplier=sigma),
            num_clients=479,
            delta=1e-5,
        )
        return accountant.participant_epsilon(best.participations)

    assert server(best.noise_multiplier) == pytest.approx(best.epsilon_server, rel=1e-6)
    assert server(best.noise_multiplier) <= 4.0 < server(0.99 * best.noise_multiplier)  # σ is the smallest


OUTSIDER: dict[str, Any] = {"cohort": 100, "against": "outsider", "max_rounds": 20}


@pytest.mark.parametrize("extra", [{}, {"cohort": 100}, pytest.param(OUTSIDER, marks=pytest.mark.slow)])
def test_the_command_promises_and_costs_what_was_advised(extra: dict[str, Any], capsys: Any) -> None:
    advice = laconic.advise(**(SMALL | extra))
    parts = shlex.split(advice.command)
    assert parts[:2] == ["laconic", "run"]
    plan = call(capsys, "plan", *parts[2:], "--json").json
    best, privacy = advice.best, plan["privacy"]
    assert plan["size"] == best.weights
    assert privacy["noise_multiplier"] == pytest.approx(best.noise_multiplier)
    assert privacy["released"][str(best.rounds)]["pld"] == pytest.approx(best.epsilon_outsider, rel=1e-6)
    if best.participations is not None:
        participant = privacy["participant"][str(best.participations)]["pld"]
        assert participant == pytest.approx(best.epsilon_server, rel=1e-6) and participant <= 4.0
    assert plan["bits_up_per_value"] == best.bits_up
    assert plan["bytes_up_in_all"] / 479 >= best.bytes_up - 1  # a cap loses some participations


def test_more_of_anything_never_hurts(advice: Any) -> None:
    assert all(relaxed.gain >= 0 for relaxed in advice.relaxed)
    assert {"ε", "clients in all", "bytes up and down"} <= set(advice.binding)
    gains = [relaxed.gain for relaxed in advice.relaxed]
    assert gains == sorted(gains, reverse=True)


def test_the_noise_ratio_is_that_of_the_server_rule() -> None:
    """Noise alone through the rule itself: its norm relative to that of equal updates of norm S."""
    rounds, size, sigma, cohort, clip = 12, 20_000, 3.0, 50.0, 0.1
    rule, codec = Average(server_lr=2.0, momentum=0.6), Identity()
    noise, signal = torch.zeros(size), torch.zeros(size)
    states = [rule.init(size, size, torch.device("cpu")) for _ in range(2)]
    same, rng = torch.full((size,), clip / size**0.5), torch.Generator().manual_seed(0)
    for _ in range(rounds):
        drawn = torch.randn(size, generator=rng) * sigma * clip / cohort
        step, states[0] = rule.step(drawn, states[0], codec, size, None)  # type: ignore[arg-type]
        noise += step
        step, states[1] = rule.step(same, states[1], codec, size, None)  # type: ignore[arg-type]
        signal += step
    expected = noise_ratio(size, sigma, cohort=cohort, rounds=rounds, momentum=0.6)
    assert float(noise.norm() / signal.norm()) == pytest.approx(expected, rel=0.03)
    assert factors(rounds, 0.0) == (rounds, pytest.approx(rounds))


def test_the_cap_has_the_smallest_noise_for_what_is_left() -> None:
    cap, kept = best_cap(0.1, 100, None)
    draws = np.random.default_rng(0).binomial(100, 0.1, size=200_000)
    assert kept == pytest.approx(np.minimum(draws, cap).mean() / 10, rel=0.01)
    ratios = {p: np.sqrt(p) / np.minimum(draws, p).mean() for p in range(3, 25)}
    assert min(ratios, key=lambda p: ratios[p]) == pytest.approx(cap, abs=1)


def test_the_search_is_close_to_the_calibrated_noise() -> None:
    exact = laconic.calibrate_noise(
        epsilon=1.0, delta=1e-5, rounds=17, sampler=laconic.Poisson(sampling_rate=1.0), num_clients=100
    )
    assert against_server(1.0, 1e-5, 17) == pytest.approx(exact, rel=1e-3)
    rdp = laconic.calibrate_noise(
        epsilon=2.0, delta=1e-5, rounds=50, sampler=laconic.Poisson(sampling_rate=0.1), num_clients=100, method="rdp"
    )
    assert against_outsider(2.0, 1e-5, 0.1, 50) == pytest.approx(rdp, rel=0.05)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"epsilon": 0.0}, "epsilon must be a positive number"),
        ({"epsilon": float("nan")}, "epsilon must be a positive number"),
        ({"num_clients": 0}, "num_clients must be a whole number"),
        ({"delta": 0.5}, "delta 0.5 is not below 1/479"),
        ({"delta": 2.0}, "delta must be strictly between 0 and 1"),
        ({"against": "serfer"}, "did you mean 'server'"),
        ({"classes": 10}, "give either --weights"),
        ({"weights": None}, "give either --weights"),
        ({"features": 10}, "--features is the most features"),
        ({"bytes_up": 5}, "not even one round fits within the bytes"),
        ({"bytes_down": -1}, "bytes_down must be a positive number"),
        ({"max_seconds": 10}, "--max-seconds needs --round-seconds"),
        ({"max_seconds": 1, "round_seconds": 2}, "no time for one round"),
        ({"max_rounds": 0}, "max_rounds must be a whole number"),
        ({"weights": 650, "classes": None, "cohort": 0}, "cohort must be a whole number"),
    ],
)
def test_bad_questions_are_answered_in_a_line(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        laconic.advise(**(SMALL | changes))
    assert "insist" not in str(caught.value)


def test_the_command_line_reads_bytes_with_units(capsys: Any) -> None:
    line = "--num-clients 479 --weights 650 --epsilon 4 --max-rounds 20 --bytes-up 20kB --bytes-down 0.02MB"
    ended = call(capsys, "advise", *words(line), "--json")
    assert ended.json["question"]["bytes_up"] == ended.json["question"]["bytes_down"] == 20_000
    assert ended.json["best"]["bytes_up"] <= 20_000
    assert json.dumps(ended.json["relaxed"])


def test_the_command_line_prints_a_table_and_the_run(capsys: Any) -> None:
    line = "--num-clients 479 --classes 10 --records 3 --epsilon 4 --max-rounds 10 --round-seconds 3"
    ended = call(capsys, "advise", *words(line))
    assert "What binds" in ended.out and "laconic run fl-std-dp" in ended.out and "seconds" in ended.out
    assert call(capsys, "advise", "--num-clients", "479", "--weights", "650").code == 2
    assert "12q" in call(capsys, "advise", *words(line), "--bytes-up", "12q").err


def test_few_rounds_with_everyone_are_preconditioned_and_others_are_not() -> None:
    question = Question(num_clients=6000, classes=10, records=10, epsilon=1.0)
    few, many, some = (
        with_noise(question, candidate(question, cohort=cohort, rounds=rounds, features=100), 12.0, "rdp")
        for cohort, rounds in ((6000, 10), (6000, 40), (3000, 10))
    )
    assert few.precondition == 0.15 and "--momentum 0.4 --precondition 0.15" in run_command(question, few)
    assert many.precondition is None and some.precondition is None
    assert "precondition" not in run_command(question, many)
    assert few.reach == pytest.approx(1.4 * farthest(few.noise_ratio))


def test_the_farthest_reach_has_the_least_error() -> None:
    reaches = np.geomspace(1, 1000, 4000)
    error = ranking.REACH * reaches**-ranking.REACH_POWER + ranking.NOISE * (0.05 * reaches) ** 2
    assert farthest(0.05) == pytest.approx(reaches[error.argmin()], rel=5e-3)


def test_few_clients_are_asked_whom_they_protect() -> None:
    assert "add --num-units" in laconic.advise(num_clients=20, weights=650, epsilon=1.0, max_rounds=10).whom
    assert laconic.advise(**SMALL).whom == ""


def test_patients_inside_clients_have_the_promise_with_less_noise(capsys: Any) -> None:
    asked: dict[str, Any] = {"num_clients": 10, "weights": 650, "epsilon": 1.0, "max_rounds": 10, "num_units": 20_000}
    advice = laconic.advise(**asked)
    found = advice.inside
    assert found is not None
    # Both have the same rounds, and so the same σ: only how many share the noise differs, and the momentum.
    assert found.rounds == advice.best.rounds == 10
    assert found.noise_multiplier == pytest.approx(advice.best.noise_multiplier)
    averaged = [factors(10, momentum)[1] for momentum in (0.9, advice.best.momentum)]
    expected = 20_000 / 10 * np.sqrt(averaged[0] / averaged[1])
    assert advice.best.noise_ratio / found.noise_ratio == pytest.approx(expected)
    assert f"{expected:,.3g} times less noise" in advice.whom
    # The digits do not say whose they are: each is a patient of its own.
    records = found.command.replace("--unit patient", "--unit record")
    plan = call(capsys, "plan", *shlex.split(records)[2:], "--json").json
    assert plan["privacy"]["protects"] == "one record of one client"
    assert plan["privacy"]["noise_multiplier"] == pytest.approx(found.noise_multiplier)
    assert plan["privacy"]["participant"]["10"]["pld"] == pytest.approx(found.epsilon, rel=1e-6)
    out = call(capsys, "advise", *words("--num-clients 10 --weights 650 --epsilon 1 --max-rounds 10 --num-units 20000"))
    assert found.command in out.out
    with pytest.raises(ConfigError, match="20,000 patients"):
        laconic.advise(**(asked | {"delta": 1e-4}))
