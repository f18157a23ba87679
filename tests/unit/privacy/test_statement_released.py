"""What of an attacked run's statement and card may leave the server."""

from __future__ import annotations

import json

import pytest
import torch

import laconic
from laconic import schemes
from laconic.adversary.attacks.gradient_ascent import SignInversion
from laconic.audience import Sentence
from laconic.privacy.released import released_statement
from laconic.report.model_card import model_card

SCHEME = schemes.fl_std_dp(clip_norm=0.5, noise_multiplier=2.0, local_lr=0.1, local_steps=1)


@pytest.fixture(scope="module", params=[0, 4])
def attacked(request: pytest.FixtureRequest) -> laconic.RunResult:
    """Three of twenty add no noise; the ε holds with four colluders, not with none."""
    data = [(torch.randn(3, 4), torch.arange(3) % 2) for _ in range(20)]
    return laconic.run(
        SCHEME,
        model=torch.nn.Linear(4, 2),
        clients=data,
        sampler=laconic.FixedSize(cohort_size=17),
        rounds=3,
        delta=1e-5,
        attack=SignInversion(malicious=(0, 1, 2), boost=2.0),
        max_colluders=request.param,
    )


def test_an_attack_is_told_without_cohorts_and_the_servers_epsilon(attacked: laconic.RunResult) -> None:
    whole = attacked.statement
    assert "of a cohort of 17 clients" in whole["attack"]["text"]
    released = released_statement(whole)
    card = model_card(attacked.summary(), {}, released_only=True)
    for text in (json.dumps(released["attack"]), card):
        assert "cohort of" not in text and "noise_left" not in text and "participant" not in text
    if not whole["attack"]["holds"]:
        weaker = min(value for value in whole["attack"]["participant"].values() if value is not None)
        assert f"{weaker:.3f}" in whole["attack"]["text"] and f"{weaker:.3f}" not in card
    assert released["attack"]["holds"] == whole["attack"]["holds"]


def test_an_epsilon_that_does_not_hold_is_never_told_without_saying_so(attacked: laconic.RunResult) -> None:
    holds = attacked.statement["attack"]["holds"]
    told = "NOT in this run: attackers left out noise"
    assert (told not in released_statement(attacked.statement)["summary"]) == holds
    for released_only in (False, True):
        card = model_card(attacked.summary(), {}, released_only=released_only)
        assert ("promise does not hold in this run" not in card) == holds


def test_how_many_records_are_left_out_is_not_told(attacked: laconic.RunResult) -> None:
    told = "training records are left out: their hospital has fewer than 5"
    note = Sentence(f"4711 {told}", outsider=told)
    assert released_statement(attacked.statement | {"not_covered": [note]})["not_covered"] == [told]
