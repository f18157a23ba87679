"""A federation whose server looks at single codes gives what the simulator gives, bit for bit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install '.[flower]'")

import torch
from flower_tools import SEED, LocalFederation, config_for, weights_of
from torch import Tensor

from laconic import catalogue, schemes
from laconic.aggregate.base import Aggregator
from laconic.aggregate.names import AGGREGATORS
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
    monkeypatch.setitem(catalogue.SCHEMES, "fl-median", entry)
    some = LocalFederation(tmp_path, config_for("fl-median", scheme__local_lr=0.3, scheme__local_steps=2))
    assert torch.equal(weights_of(some.run()), weights_of(some.simulated()))


@pytest.mark.parametrize("name", [name for name in AGGREGATORS if name != "mean"])
def test_a_robust_rule_in_a_federation_is_the_simulators(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TEST_SEED, str(SEED))
    options: dict[str, Any] = {"centred-clipping": {"radius": 0.1}, "norm-bound": {}}.get(name, {"byzantine": 0})
    rule = {f"aggregator__{key}": value for key, value in options.items()}
    chosen = config_for("fl-std", scheme__local_lr=0.3, scheme__local_steps=2, aggregator__name=name, **rule)
    some = LocalFederation(tmp_path, chosen)
    assert torch.equal(weights_of(some.run()), weights_of(some.simulated()))
