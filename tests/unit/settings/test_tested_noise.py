"""Noise that is calibrated for group testing: enough for all rounds, also where sampling does not lower the ε."""

from __future__ import annotations

from typing import Any

import pytest

from laconic.settings.build import settle
from laconic.settings.config import RunConfig


@pytest.mark.parametrize(
    "sampler",
    [{"kind": "fixed-size", "cohort_size": 30}, {"sampling_rate": 0.5, "max_dropouts": 1}, {"sampling_rate": 0.5}],
    ids=["fixed size", "slack", "coins"],
)
def test_a_promised_epsilon_lasts_for_all_rounds_with_group_testing(sampler: dict[str, Any]) -> None:
    config = RunConfig.from_dict(
        {
            "data": {"dataset": "digits", "num_clients": 60},
            "scheme": {"name": "fl-std-dp", "clip_norm": 0.3},
            "sampler": sampler,
            "aggregator": {"groups": 10, "group_testing": True},
            "privacy": {"epsilon": 16.0, "delta": 1e-3},
            "run": {"rounds": 6},
        }
    )
    accountant = settle(config).experiment.mechanism.accountant
    assert accountant is not None
    assert 15.9 < accountant.released_epsilon(6) <= 16.0
