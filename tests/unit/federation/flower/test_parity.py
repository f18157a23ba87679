"""One scheme object everywhere: a federation of five nodes gives what the one-by-one simulator gives, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install '.[flower]'")

import torch
from flower_tools import PRIVATE, SEED, LocalFederation, config_for, weights_of

from laconic.codecs.scaling import SCALING
from laconic.federation.entropy import TEST_SEED
from laconic.runner import run as simulator
from laconic.secagg.crypto.keys import ENTRY_BYTES

RECORDS = {
    "scheme.clip_norm": 1.0,
    "scheme.noise_multiplier": 1.5,
    "scheme.noise": "integer",
    "scheme.balance": "none",
    "scheme.record_rate": 0.5,
    "scheme.batch_size": 5,
    "run.engine": "per-record",
}
INSIDE = {"scheme.unit": "patient", "scheme.num_units": 27.0, "scheme.noise_multiplier": 1.5, "scheme.clip_norm": 0.5}
SCALED = {"scheme.name": "fl-std-dp", "scaling.kind": "private", "scaling.noise_multiplier": 0.05}
CASES = [
    ("fl-std", {}),
    ("fl-sign", {}),
    ("fl-cs-dp", PRIVATE | {"scheme.ratio": 0.5, "scheme.num_chunks": 3}),
    ("fl-top-dp", PRIVATE | {"scheme.ratio": 0.5}),
    ("fl-sign-dp", {"scheme.noise_multiplier": 1.0, "secagg.consistency": "signed"}),
    ("sign-sgd", {}),
    ("fl-std-half", {"scheme.name": "fl-std", "scheme.downlink": "half"}),
    ("fl-std-record-dp", RECORDS | {"scheme.local_steps": 2}),
    ("fl-sign-record-dp", RECORDS | {"scheme.downlink": "half"}),
    ("patients", INSIDE | {"scheme.name": "fl-std-dp", "scheme.server_lr": 0.5, "scheme.momentum": 0.5}),
    (
        "patients-of-two-nodes",
        INSIDE | {"scheme.name": "fl-std-dp", "scheme.max_owners_per_patient": 2, "scheme.unit_rate": 0.6},
    ),
    (
        "records-in-a-subset",
        INSIDE
        | {"scheme.name": "fl-top-dp", "scheme.unit": "record", "scheme.unit_rate": 0.4, "scheme.ratio": 0.5}
        | {"secagg.consistency": "signed"},
    ),
    ("patients-sensed", INSIDE | {"scheme.name": "fl-cs-dp", "scheme.ratio": 0.5, "scheme.num_chunks": 3}),
    ("scaled-patients-of-two-nodes", INSIDE | SCALED | {"scheme.max_owners_per_patient": 2, "scheme.unit_rate": 0.6}),
    ("scaled-clients", PRIVATE | SCALED),
    ("measured-patients", INSIDE | {"scheme.name": "fl-std-dp", "evaluation.every": 2}),
    ("fl-top-dp-half", PRIVATE | {"scheme.name": "fl-top-dp", "scheme.ratio": 0.5, "scheme.downlink": "half"}),
]


@pytest.fixture(autouse=True)
def known_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TEST_SEED, str(SEED))


@pytest.fixture
def sums(monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    """Every sum that the server's step is given, of all runs in the test."""
    seen: list[torch.Tensor] = []
    step = simulator.server_step

    def noted(scheme: Any, plan: Any, total: torch.Tensor, **options: Any) -> Any:
        seen.append(total.clone())
        return step(scheme, plan, total, **options)

    monkeypatch.setattr(simulator, "server_step", noted)
    return seen


@pytest.mark.parametrize(("scheme", "changes"), CASES, ids=[name for name, _ in CASES])
def test_same_sums_and_weights_as_the_simulator(
    scheme: str, changes: dict[str, Any], tmp_path: Path, sums: list[torch.Tensor]
) -> None:
    shared = "scheme.max_owners_per_patient" in changes
    federation = LocalFederation(tmp_path, config_for(scheme, **changes), shared_patients=shared)
    result, again = federation.run(), federation.simulated()
    assert len(sums) == 4
    if "grid" in result.statement.get("mechanism", {}):  # of masked sums only the residues count
        sums = [total % 2 ** result.statement["mechanism"]["grid"]["bits"] for total in sums]
    assert all(torch.equal(far, near) for far, near in zip(sums[:2], sums[2:], strict=True))
    assert torch.equal(weights_of(result), weights_of(again))
    assert [row["accuracy"] for row in result.history] == [row["accuracy"] for row in again.history]
    assert result.statement.get("released") == again.statement.get("released")
    assert result.statement.get("participant") == again.statement.get("participant")


@pytest.mark.parametrize("changes", [{"scheme.unit_rate": 0.6}, {"scheme.unit": "record"}], ids=["patients", "records"])
def test_what_the_first_round_measured_is_told_to_nodes_as_to_simulated_clients(
    changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[Any] = []
    step = simulator.server_step

    def noted(scheme: Any, plan: Any, total: torch.Tensor, **options: Any) -> Any:
        plans.append(plan)
        return step(scheme, plan, total, **options)

    monkeypatch.setattr(simulator, "server_step", noted)
    monkeypatch.setattr(
        "laconic.codecs.scaling._LEAST_THERE", 0.05
    )  # these records are outside the ranges, and clipped
    federation = LocalFederation(tmp_path, config_for("fl-std-dp", **INSIDE | SCALED | changes))
    result, again = federation.run(), federation.simulated()
    assert torch.equal(weights_of(result), weights_of(again))
    assert [list(plan.shared) for plan in plans] == [[], [SCALING]] * 2
    assert torch.equal(plans[1].shared[SCALING], plans[3].shared[SCALING])
    assert result.history[1]["bytes_once"] == again.history[1]["bytes_once"] > 0


def test_another_seed_is_another_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the test above: it compares something that can differ."""
    federation = LocalFederation(tmp_path, config_for("fl-std-dp", **PRIVATE))
    monkeypatch.setenv(TEST_SEED, str(SEED + 1))
    assert not torch.equal(weights_of(federation.run()), weights_of(federation.simulated()))


def test_payload_is_counted_as_in_the_simulator(tmp_path: Path) -> None:
    """Masked vectors, plans, shares and answers are the same bytes; the roster replaces keys that come one by one."""
    config = config_for("fl-std-dp", **PRIVATE, secagg__mode="masked", run__rounds=1)
    federation = LocalFederation(tmp_path, config)
    far, near = federation.run().history[0], federation.simulated().history[0]
    same = ("bytes_up", "bytes_down", "secagg_keys_up", "secagg_plan_down", "secagg_shares_up", "secagg_unmask_up")
    assert {name: far[name] for name in same} == {name: near[name] for name in same}
    assert (
        far["secagg_keys_down"] == near["secagg_keys_down"] + 5 * ENTRY_BYTES
    )  # a roster has the node's own entry, too
    exchanges = ("keys", "upload", "unmask")
    assert all(far[f"transport_{kind}_{way}"] > 0 for kind in exchanges for way in ("up", "down"))
