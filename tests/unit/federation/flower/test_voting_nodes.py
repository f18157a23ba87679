"""Votes on the kept weights among nodes: the same as in the simulator, and counted by the nodes themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install '.[flower]'")

import torch
from flower_tools import PRIVATE, SEED, LocalFederation, config_for, weights_of

from laconic.federation.entropy import TEST_SEED
from laconic.guard.ledger import composed
from laconic.guard.limits import charged
from laconic.guard.transcript import JOINED, UPLOADED

VOTES = {
    "scheme.ratio": 0.5,
    "scheme.top_selection": "votes",
    "scheme.vote_block": 2,
    "scheme.vote_rounds": 1,
    "run.rounds": 3,
}
NOISE = PRIVATE | {"scheme.vote_noise_multiplier": 1.4}


@pytest.fixture(autouse=True)
def known_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TEST_SEED, str(SEED))


@pytest.mark.parametrize(("name", "more"), [("fl-top-dp", NOISE), ("fl-top", {})])
def test_nodes_vote_and_train_as_in_the_simulator(name: str, more: dict[str, Any], tmp_path: Path) -> None:
    federation = LocalFederation(tmp_path, config_for(name, **(VOTES | more)))
    far, near = federation.run(), federation.simulated()
    assert torch.equal(weights_of(far), weights_of(near))
    assert far.statement.get("released") == near.statement.get("released")
    assert [row["bytes_down"] for row in far.history] == [row["bytes_down"] for row in near.history]
    assert [row["bytes_once"] for row in far.history] == [row["bytes_once"] for row in near.history]
    assert far.history[0]["vote"] == "1 of 1" and far.history[1]["bytes_once"] > 0 == far.history[0]["bytes_once"]
    if more:
        check_log(federation.node(0).log.rows(), far.statement)


def check_log(rows: list[dict[str, Any]], statement: dict[str, Any]) -> None:
    """A node writes down the noise and the cost of its vote."""
    uploads = [row for row in rows if row["what"] == UPLOADED]
    share = 1.4 * statement["mechanism"]["selection"]["marks"] ** 0.5 / 5**0.5  # σ·√M/√|cohort|
    assert uploads[0]["noise"]["share"] == pytest.approx(share, rel=0.01)
    assert uploads[1]["noise"]["share"] == pytest.approx(1.0 * 0.5 / 5**0.5, rel=0.01)
    told = uploads[-1]["participant_epsilon"]
    # The node knows which of its uploads were votes. The server's figure takes the dearer of the two for all.
    assert told == pytest.approx(composed(charged(uploads), 1e-5), rel=1e-9)
    assert told <= statement["participant"]["epsilon"]["pld"]
    # Over a lifetime the smaller noise multiplier counts for all uploads of the run.
    joined = next(row for row in rows if row["what"] == JOINED)
    assert 0.99 < joined["cost"]["noise_multiplier"] <= 1.0


def test_a_server_that_is_killed_in_the_vote_has_it_repeated_and_charged_as_a_vote(tmp_path: Path) -> None:
    federation = LocalFederation(tmp_path, config_for("fl-top-dp", **(VOTES | NOISE)))

    class Killed(Exception):
        pass

    def kill(client: int, message: Any, when: str) -> bool:
        if when == "reply" and client == 2 and "upload" in message.metadata.message_type:
            raise Killed
        return False

    federation.grid.loses = kill
    with pytest.raises(Killed):
        federation.run()
    federation.grid.loses = lambda client, message, when: False
    result = federation.run(resume=True)
    assert result.statement["released"]["rounds_charged"] == 4
    # Everybody takes part: four Gaussians, two of them votes.
    inverse = 2 / 1.4**2 + 2 / 1.0**2
    at_least, at_most = (_gaussian(inverse**-0.5 * factor) for factor in (1.0, 0.996))
    assert at_least <= result.statement["released"]["epsilon"]["pld"] <= at_most


def _gaussian(sigma: float) -> float:
    from dp_accounting import GaussianDpEvent
    from dp_accounting.pld import PLDAccountant

    return float(PLDAccountant(value_discretization_interval=1e-3).compose(GaussianDpEvent(sigma)).get_epsilon(1e-5))
