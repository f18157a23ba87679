"""Group testing that cannot be, in one line and before data are loaded."""

from __future__ import annotations

from typing import Any

import pytest

from laconic.errors import ConfigError
from laconic.settings.check import check_config
from laconic.settings.config import RunConfig

PRIVATE = {"name": "fl-std-dp", "clip_norm": 0.3, "noise_multiplier": 1.0}


@pytest.mark.parametrize(
    ("scheme", "aggregator", "said"),
    [
        (PRIVATE, {"group_testing": True}, "add --groups"),
        ({"name": "fl-std"}, {"group_testing": True}, "single codes"),
        (PRIVATE, {"groups": 10, "false_alarms": 0.01}, "only group testing uses --false-alarms"),
        (PRIVATE, {"groups": 10, "calm_rounds": 5, "false_exclusions": 2.0}, "--false-exclusions, --calm-rounds"),
        (
            {**PRIVATE, "name": "fl-top-dp", "ratio": 0.1, "top_selection": "votes"},
            {"groups": 10, "group_testing": True},
            "leave out --top-selection votes",
        ),
    ],
)
def test_group_testing_that_cannot_be_is_refused(scheme: dict[str, Any], aggregator: dict[str, Any], said: str) -> None:
    config = RunConfig.from_dict({"scheme": scheme, "aggregator": aggregator, "privacy": {"delta": 1e-3}})
    with pytest.raises(ConfigError, match=said):
        check_config(config)
