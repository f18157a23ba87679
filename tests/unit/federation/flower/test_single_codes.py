"""A federation whose server looks at single codes, or at sums of groups, is the simulator bit for bit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install '.[flower]'")

import torch
from flower_tools import PRIVATE, SEED, LocalFederation, config_for, weights_of
from torch import Tensor

from laconic import catalogue, schemes
from laconic.aggregate.base import Aggregator
from laconic.federation.entropy import TEST_SEED
from laconic.scheme import Scheme


@dataclass(frozen=True, kw_only=True)
class MiddleOfAll(Aggregator):
    """The median of each coordinate."""

    def combine(self, codes: Tensor, weights: Tensor) -> Tensor:
        return codes.median(dim=0).values


def robust(**options: Any) -> Scheme:
    """FL-STD with the median of each coordinate."""
    return replace(schemes.fl_std(**options), name="fl-median", aggregator=MiddleOfAll())


def test_a_median_in_a_federation_is_the_simulators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TEST_SEED, str(SEED))
    entry = replace(catalogue.SCHEMES["fl-std"], build=robust)
    monkeypatch.setitem(catalogue.SCHEMES._entries, "fl-median", entry)
    some = LocalFederation(tmp_path, config_for("fl-median", scheme__local_lr=0.3, scheme__local_steps=2))
    assert torch.equal(weights_of(some.run()), weights_of(some.simulated()))


@pytest.mark.parametrize("name", ["krum", "bulyan", "geometric-median", "centred-clipping"])
def test_a_robust_rule_in_a_federation_is_the_simulators(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TEST_SEED, str(SEED))
    options: dict[str, Any] = {"radius": 0.1} if name == "centred-clipping" else {"byzantine": 0}
    rule = {f"aggregator__{key}": value for key, value in options.items()}
    chosen = config_for("fl-std", scheme__local_lr=0.3, scheme__local_steps=2, aggregator__name=name, **rule)
    some = LocalFederation(tmp_path, chosen)
    assert torch.equal(weights_of(some.run()), weights_of(some.simulated()))


GROUPED = PRIVATE | {"aggregator.name": "median", "aggregator.groups": 2}


@pytest.mark.parametrize(("consistency", "downlink"), [("plain", "half"), ("signed", "weights")])
def test_a_federation_in_groups_is_the_simulators(
    consistency: str, downlink: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TEST_SEED, str(SEED))
    changes = {"secagg.consistency": consistency, "scheme.downlink": downlink}
    chosen = config_for("fl-std-dp", **changes).with_values(GROUPED)
    some = LocalFederation(tmp_path, chosen)
    result, simulated = some.run(), some.simulated(chosen.with_values({"secagg.mode": "masked"}))
    assert torch.equal(weights_of(result), weights_of(simulated))
    assert torch.equal(weights_of(result), weights_of(some.simulated()))
    assert [(row["groups"], row["lost_groups"]) for row in result.history] == [(2, 0), (2, 0)]
    for key in ("messages_up", "bytes_up", "bytes_down", "epsilon", "participant_epsilon"):
        assert result.last[key] == simulated.last[key], key


def test_a_group_that_loses_too_many_nodes_does_not_touch_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five nodes in groups of three and two: one that does not answer costs its own group, and no other."""
    monkeypatch.setenv(TEST_SEED, str(SEED))
    some = LocalFederation(tmp_path, config_for("fl-std-dp").with_values(GROUPED))
    some.grid.loses = lambda client, message, when: client == 0 and message.metadata.message_type.endswith("upload")
    history = some.run().history
    assert [row["lost_groups"] for row in history] == [1, 1] and not any("discarded" in row for row in history)
    assert all(2 <= row["messages_up"] <= 4 for row in history)
