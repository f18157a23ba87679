"""Evaluations at nodes: the same as in the simulator bit for bit, repeated after a crash, and stopped on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install '.[flower]'")

import torch
from flower_tools import PRIVATE, SEED, LocalFederation, config_for, weights_of

from laconic.federation.entropy import TEST_SEED
from laconic.guard.transcript import MEASURED, UPLOADED
from laconic.privacy.accounting.tight import gaussian_epsilon

EVALUATED = {"evaluation.every": 2, "run.rounds": 4}
NOISE = PRIVATE | {"evaluation.noise_multiplier": 0.4}


@pytest.fixture(autouse=True)
def known_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TEST_SEED, str(SEED))


@pytest.mark.parametrize(("name", "more"), [("fl-std-dp", NOISE), ("fl-top", {"scheme.ratio": 0.5})])
def test_nodes_measure_as_in_the_simulator(name: str, more: dict[str, Any], tmp_path: Path) -> None:
    federation = LocalFederation(tmp_path, config_for(name, **(EVALUATED | more)))
    far, near = federation.run(), federation.simulated()
    assert torch.equal(weights_of(far), weights_of(near))
    measured = [row["clients_accuracy"] for row in far.history if "evaluation" in row]
    assert len(measured) == 2
    assert measured == [row["clients_accuracy"] for row in near.history if "evaluation" in row]
    assert [row["bytes_down"] for row in far.history] == [row["bytes_down"] for row in near.history]
    assert far.statement.get("released") == near.statement.get("released")
    uploads = [row for row in federation.node(3).log.rows() if row["what"] == UPLOADED]
    rounds = [row["round"] for row in federation.node(3).log.rows() if row["what"] == MEASURED]
    assert rounds == [uploads[1]["round"], uploads[3]["round"]]
    if more is NOISE:
        told = uploads[-1]["participant_epsilon"]
        assert told == pytest.approx(far.statement["participant"]["epsilon"]["pld"])
        assert told == pytest.approx(gaussian_epsilon((2 / 1.0**2 + 2 / 0.4**2) ** -0.5, 1e-5), rel=0.01)


def test_a_server_that_is_killed_in_an_evaluation_has_it_repeated_and_charged_as_one(tmp_path: Path) -> None:
    federation = LocalFederation(tmp_path, config_for("fl-std-dp", **(EVALUATED | NOISE | {"run.rounds": 2})))

    class Killed(Exception):
        pass

    uploads: list[int] = []

    def kill(client: int, message: Any, when: str) -> bool:
        if when == "reply" and "upload" in message.metadata.message_type:
            uploads.append(client)
            if len(uploads) == 8:  # in round 2, after three of five
                raise Killed
        return False

    federation.grid.loses = kill
    with pytest.raises(Killed):
        federation.run()
    federation.grid.loses = lambda client, message, when: False
    result = federation.run(resume=True)
    assert result.statement["released"]["rounds_charged"] == 3
    exact = gaussian_epsilon((1 / 1.0**2 + 2 / 0.4**2) ** -0.5, 1e-5)
    assert exact <= result.statement["released"]["epsilon"]["pld"] <= 1.01 * exact


def test_a_federation_stops_early_on_what_its_nodes_measured(tmp_path: Path) -> None:
    more = NOISE | {"run.rounds": 20, "run.patience": 1, "scheme.local_lr": 1e-9, "evaluation.noise_multiplier": 0.2}
    result = LocalFederation(tmp_path, config_for("fl-std-dp", **(EVALUATED | more))).run()
    assert result.stop_reason == "patience" and len(result.history) < 20
    assert result.statement["released"]["rounds_planned"] == 20
