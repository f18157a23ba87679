"""A ring with room to spare: the same grid, the same noise, the same ε; only the messages are longer."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from scheme_tools import run, scheme

from laconic.errors import ConfigError, PrivacyError
from laconic.experiment.mechanism import Mechanism
from laconic.privacy.accounting.budget import Budget
from laconic.privacy.accounting.sampling import AsPublished
from laconic.scheme import Scheme
from laconic.schemes import fl_sign_dp

CNN = 1_663_370


def published(**options: Any) -> Mechanism:
    """FL-SIGN-DP in the setting of thesis Tab. 8.2 at ε = 1."""
    return Mechanism(
        scheme=fl_sign_dp(noise_multiplier=1.5406, local_lr=0.215, local_steps=5, batch_size=10, **options),
        sampler=AsPublished(cohort_size=100),
        num_clients=6000,
        size=CNN,
        rounds=200,
        budget=Budget(delta=1e-5),
    )


def test_more_room_leaves_the_grid_and_epsilon_as_they_are() -> None:
    tight, roomy = published(), published(ring_bits=22)
    assert tight.grid is not None and roomy.grid is not None
    assert (tight.grid.units, tight.grid.scale) == (roomy.grid.units, roomy.grid.scale) == (1.0, tight.grid.scale)
    assert (tight.grid.bits, roomy.grid.bits) == (16, 22)
    assert roomy.grid.log2_wrap <= tight.grid.log2_wrap
    assert tight.delta_slack() == roomy.delta_slack()
    plan = tight.typical_plan()
    about = {"code_size": CNN, "sensitivity": tight.sensitivity, "plan": plan}
    assert tight.scheme.noise.epsilon_slack(**about) == roomy.scheme.noise.epsilon_slack(**about)  # type: ignore[attr-defined]
    assert tight.accountant is not None and roomy.accountant is not None
    assert tight.accountant.released(200) == roomy.accountant.released(200)
    finer = published(bits=22).grid
    assert finer is not None and finer.units == 112  # what --bits does, and why it is another option


@pytest.mark.usefixtures("noise_by_seed")
@pytest.mark.parametrize("name", ["fl-std-dp", "fl-sign-dp"])
def test_a_run_has_the_same_weights_and_longer_messages(name: str) -> None:
    tight, roomy = (run(scheme(name, **room)) for room in ({}, {"ring_bits": 24}))
    for a, b in zip(tight.model.parameters(), roomy.model.parameters(), strict=True):
        assert torch.equal(a, b)
    assert tight.statement["released"] == roomy.statement["released"]
    assert roomy.ledger["bytes_up"] > tight.ledger["bytes_up"]


def test_a_scheme_without_it_has_the_fingerprint_it_always_had() -> None:
    plain, roomy = scheme("fl-sign-dp"), scheme("fl-sign-dp", ring_bits=24)
    assert "ring_bits" not in plain.noise.to_dict()
    assert plain.fingerprint != roomy.fingerprint and Scheme.from_dict(roomy.to_dict()) == roomy


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ring_bits": 40}, "ring_bits must be 8 to 32, not 40"),
        ({"ring_bits": 16, "noise": "continuous"}, "--ring-bits 16 means nothing with --noise continuous"),
    ],
)
def test_rings_that_cannot_be_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        scheme("fl-std-dp", **options)


def test_a_ring_that_is_too_small_is_refused() -> None:
    with pytest.raises(PrivacyError, match="use --ring-bits 16 or more, or leave it out"):
        _ = published(ring_bits=12).grid
