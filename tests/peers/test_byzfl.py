"""The robust rules against ByzFL's, where it is installed."""

from __future__ import annotations

import pytest

from benchmarks.peers.byzfl_rules import byzfl_rules, furthest


def test_the_rules_are_byzfls() -> None:
    if byzfl_rules(3) is None:
        pytest.skip("ByzFL is not installed (python -m benchmarks.peers.setup byzfl)")
    assert max(furthest(3).values()) < 1e-6
