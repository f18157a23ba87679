"""Nodes that attack a federation: unchanged server, unchanged honest nodes, and the same sums as in the simulator."""

from __future__ import annotations

import functools
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from laconic.adversary.attacks.gradient_ascent import GradientAscent, SignInversion
from laconic.errors import ConfigError
from laconic.federation.node.node import Node
from laconic.federation.node.training import NodeWork
from laconic.federation.offer import Offer
from laconic.federation.server.members import resolve_federated
from laconic.guard.guard import Guard, Ticket
from laconic.plan import RoundPlan

try:
    with warnings.catch_warnings():  # Flower's own, on import
        warnings.simplefilter("ignore")
        from flower_tools import LocalFederation, config_for
except ImportError:
    pytest.skip("flwr is not installed: pip install '.[flower]'", allow_module_level=True)

WHO = (1, 3)
ATTACKS = {
    "sign-inversion": SignInversion(malicious=WHO, boost=20.0),
    "gradient-ascent": GradientAscent(malicious=WHO, boost=20.0, collude=False),
}


@pytest.fixture
def lying_nodes(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Nodes 1 and 3 train with an attack, once it is chosen, and have guards of their own that mask whatever they are
    handed: their owners want it so."""
    chosen: dict[str, Any] = {}
    honest, vector, send = Node._training, NodeWork.vector, Guard.send

    def training(node: Node, client: int, offer: Offer) -> NodeWork:
        if client in WHO:
            node._options = {**node._options, "attack": chosen["attack"]}
        return honest(node, client, offer)

    def forged(work: NodeWork, plan: RoundPlan, weights: torch.Tensor) -> torch.Tensor:
        return (work.code if work.client in WHO else functools.partial(vector, work))(plan, weights)

    def masked(guard: Guard, ticket: Ticket, code: np.ndarray | None) -> bytes:
        if ticket.client not in WHO or ticket.member is None or code is None:
            return send(guard, ticket, code)
        return ticket.member.mask(code)

    monkeypatch.setattr(NodeWork, "vector", forged)
    monkeypatch.setattr(Guard, "send", masked)

    monkeypatch.setenv("LACONIC_TEST_ONLY_SEED", "3")
    monkeypatch.setattr(Node, "_training", training)
    return chosen


@pytest.mark.parametrize(
    ("scheme", "kind"),
    [
        *((scheme, "sign-inversion") for scheme in ("fl-std", "fl-sign", "fl-std-dp", "fl-sign-dp")),
        ("fl-std-dp", "gradient-ascent"),
    ],
)
def test_a_federation_is_attacked_as_the_simulator_is(
    scheme: str, kind: str, tmp_path: Path, lying_nodes: dict[str, Any]
) -> None:
    lying_nodes["attack"] = ATTACKS[kind]
    private = {"scheme__noise_multiplier": 1.0, "scheme__ring_bits": 24} if scheme.endswith("-dp") else {}
    private |= {"scheme__clip_norm": 0.5} if scheme == "fl-std-dp" else {}
    config = config_for(scheme, **private)
    federation = LocalFederation(tmp_path, config)
    remote = federation.run()
    attacked = {"attack.kind": kind, "attack.malicious": "1,3", "attack.boost": 20.0, "attack.collude": False}
    simulated = federation.simulated(config.with_values(attacked))
    plain = federation.simulated(config)
    weights = [torch.cat([p.detach().reshape(-1) for p in r.model.parameters()]) for r in (remote, simulated, plain)]
    assert torch.allclose(weights[0], weights[1], atol=1e-6) and not torch.allclose(weights[0], weights[2], atol=1e-3)


def test_real_nodes_are_not_asked_to_attack() -> None:
    config = config_for("fl-std", attack__kind="random-update")
    with pytest.raises(ConfigError, match="--attack is for simulations: the nodes of a federation are real clients"):
        resolve_federated(config)
