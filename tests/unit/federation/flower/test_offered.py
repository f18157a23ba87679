"""What a node must know of a run is in the signed offer, and nothing that an offer names is imported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install '.[flower]'")

from flower_tools import LocalFederation, config_for, offer_of, refusal, weights_of

from laconic.errors import ConfigError
from laconic.federation.node.own_model import own_model


def test_nodes_learn_the_options_of_the_model_from_the_offer_alone(tmp_path: Path) -> None:
    some = LocalFederation(tmp_path, config_for("fl-std", run__rounds=1))  # the nodes know this configuration only
    result = some.run(config=some.config.with_values({"model.name": "mlp", "model.hidden": 3}))
    assert weights_of(result).numel() == (6 * 3 + 3) + (3 * 3 + 3) + (3 * 3 + 3)


@pytest.mark.parametrize("name", ["subprocess:getoutput", "getoutput", "auto"])
def test_an_offer_makes_no_node_import_anything(tmp_path: Path, name: str) -> None:
    """Whoever offers a run chooses the model's name and options. They must not become a function that is called."""
    trace = tmp_path / "ran"
    some = LocalFederation(tmp_path, config_for("fl-std"))
    told = refusal(some, offer_of(some, model=name, model_options={"cmd": f"touch {trace}"}))
    assert "a model of your own is named by each node's owner" in told and not trace.exists()


def test_the_owners_own_model_is_built_with_the_offers_options(tmp_path: Path) -> None:
    some = LocalFederation(tmp_path, config_for("fl-std"))
    offer = offer_of(some, model="package.module:of_somebody", model_options={"hidden": 5})
    assert own_model(offer, "laconic.models.networks:mlp")[1].out_features == 5


@pytest.mark.parametrize(
    "options",
    [
        {"hidden": {"deep": 1}},
        {"hidden": [[1]]},
        {"hidden": float("nan")},
        {"hidden": 2**70},
        {"hidden": [1] * 1000},
        {"a b": 1},
        {f"option{number}": 1 for number in range(100)},
        "hidden",
    ],
)
def test_options_that_are_not_plain_are_no_offer(tmp_path: Path, options: Any) -> None:
    some = LocalFederation(tmp_path, config_for("fl-std"))
    with pytest.raises(ConfigError, match="an offer"):
        offer_of(some, model_options=options)


def test_options_of_a_huge_model_take_no_memory_at_a_node(tmp_path: Path) -> None:
    some = LocalFederation(tmp_path, config_for("fl-std"))
    told = refusal(some, offer_of(some, model="mlp", model_options={"hidden": 10**8}))
    assert told == "this node's model has 10000001100000003 weights, the server's 21"
