"""Steps that get shorter, and the mean of the last iterates as the final model."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scheme_tools
import torch
from hypothesis import given
from hypothesis import strategies as st
from scheme_tools import scheme

import laconic
from laconic.codecs.base import Identity
from laconic.errors import ConfigError, LaconicError
from laconic.parts import Part
from laconic.plan import RoundPlan
from laconic.server.rules import Average, ServerRule
from laconic.server.steps import Scheduled
from laconic.settings.build import settle
from laconic.settings.check import problems_in
from laconic.settings.config import RunConfig


def plan(number: int) -> RoundPlan:
    return RoundPlan(
        round=number,
        attempt=0,
        cohort=np.arange(1),
        planned_cohort=1,
        largest_cohort=1,
        run_seed=0,
        round_seed=0,
        fingerprint="",
    )


def iterates(rule: ServerRule, means: torch.Tensor, skipped: frozenset[int] = frozenset()) -> list[torch.Tensor]:
    """The weights after every round, from 0."""
    size = means.shape[1]
    weights, state, found = torch.zeros(size), rule.init(size, size, torch.device("cpu")), []
    for number, mean in enumerate(means, 1):
        if number not in skipped:
            change, state = rule.step(mean, state, Identity(), size, plan(number))
            weights = weights + change
        found.append(weights)
    return found


@given(rounds=st.integers(1, 12), data=st.data(), momentum=st.sampled_from([0.0, 0.6]))
def test_the_last_round_ends_in_the_mean_of_the_last_iterates(rounds: int, data: Any, momentum: float) -> None:
    last = data.draw(st.integers(1, rounds))
    means = torch.randn(rounds, 4, generator=torch.Generator().manual_seed(rounds))
    plain = Average(server_lr=0.5, momentum=momentum)
    expected = iterates(plain, means)
    found = iterates(Scheduled(rule=plain, rounds=rounds, average_last=last), means)
    for one, other in zip(found[:-1], expected[:-1], strict=True):
        torch.testing.assert_close(one, other, msg="before the last round nothing is another")
    torch.testing.assert_close(found[-1], torch.stack(expected[-last:]).mean(0))


def test_a_discarded_round_does_not_count() -> None:
    means = torch.randn(6, 3, generator=torch.Generator().manual_seed(1))
    skipped = frozenset({5})
    expected = iterates(Average(), means, skipped)
    found = iterates(Scheduled(rule=Average(), rounds=6, average_last=3), means, skipped)
    torch.testing.assert_close(found[-1], torch.stack([expected[3], expected[5]]).mean(0))


def test_steps_fall_in_a_straight_line() -> None:
    rule = Scheduled(rule=Average(), rounds=5, step_decay=0.8)
    assert [round(rule.factor(number), 6) for number in range(1, 6)] == [1.0, 0.8, 0.6, 0.4, 0.2]
    found = iterates(rule, torch.ones(5, 2))
    torch.testing.assert_close(found[-1], torch.full((2,), 3.0))
    assert Scheduled(rule=Average(), rounds=1, step_decay=0.8).factor(1) == 1.0


def test_it_is_written_down_and_read_back_with_its_rule() -> None:
    rule = Scheduled(rule=Average(server_lr=0.5, momentum=0.3), rounds=5, step_decay=0.5, average_last=2)
    assert Part.from_dict(rule.to_dict()) == rule and rule.momentum == 0.3 and rule.same_step is None


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"average_last": 6}, "no more than --rounds"),
        ({"average_last": 0}, "average_last"),
        ({"step_decay": 1.0}, "step_decay"),
    ],
)
def test_what_cannot_be_is_refused(values: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        Scheduled(rule=Average(), rounds=5, **values)


def config(**values: Any) -> RunConfig:
    base = {"data.dataset": "digits", "scheme.name": "fl-std", "run.rounds": 4, "data.num_clients": 20}
    return RunConfig().with_values(base | {key.replace("__", "."): value for key, value in values.items()})


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"server__average_last": 5}, "no more than --rounds|fewer rounds"),
        ({"server__step_decay": -0.1}, "step.decay"),
        ({"scheme__name": "sign-sgd", "server__step_decay": 0.5}, "signs of equal"),
        (
            {
                "scheme__name": "fl-std-dp",
                "scheme__clip_norm": 1.0,
                "scheme__noise_multiplier": 1.0,
                "evaluation__every": 2,
                "evaluation__noise_multiplier": 1.0,
                "server__average_last": 2,
            },
            "that is an evaluation",
        ),
    ],
)
def test_a_configuration_that_cannot_be_is_refused(values: dict[str, Any], reason: str) -> None:
    with pytest.raises(LaconicError, match=reason):
        settle(config(**values))
    assert any(re.search(reason, one) for one in problems_in(config(**values))), "before data are loaded"


def test_privacy_and_bytes_are_those_of_the_plain_rule() -> None:
    plain, both = (
        settle(config(scheme__name="fl-std-dp", scheme__clip_norm=1.0, scheme__noise_multiplier=2.0, **more)).experiment
        for more in ({}, {"server__step_decay": 0.5, "server__average_last": 2})
    )
    assert isinstance(both.scheme.rule, Scheduled) and both.scheme.rule.rule == plain.scheme.rule
    results = [laconic.Run(one).run() for one in (plain, both)]
    assert results[0].last["epsilon"] == results[1].last["epsilon"]
    assert results[0].ledger == results[1].ledger
    assert results[0].last["weights"] != results[1].last["weights"]


def test_a_run_that_was_interrupted_goes_on_to_the_same_mean(tmp_path: Path) -> None:
    one = scheme("fl-std-dp", noise_multiplier=1.0)
    rule = Scheduled(rule=one.rule, rounds=4, step_decay=0.5, average_last=3)
    both = dataclasses.replace(one, rule=rule)
    whole = scheme_tools.run(both, rounds=4, out=tmp_path / "whole")

    def interrupt(row: dict[str, Any]) -> None:
        if row["round"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        scheme_tools.run(both, rounds=4, out=tmp_path / "cut", observer=interrupt)
    again = scheme_tools.run(both, rounds=4, out=tmp_path / "cut", resume=True)
    assert again.last["weights"] == whole.last["weights"]
