"""Patients inside the nodes of a federation: crashes, a node that vanishes, a policy that knows other units."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install '.[flower]'")

import torch
from flower_tools import LocalFederation, config_for, offer_of, refusal
from flwr.app import Message

from laconic.federation.node.lifetime import logged_costs, spent
from laconic.federation.node.training import NodeWork
from laconic.guard.transcript import UPLOADED
from laconic.privacy.accounting.releases import PATIENT

INSIDE = {
    "scheme.unit": "patient",
    "scheme.num_units": 27.0,
    "scheme.unit_rate": 0.5,
    "scheme.clip_norm": 0.5,
    "scheme.noise_multiplier": 3.0,
}


class Crash(BaseException):
    """The server's process is gone."""


def federation(path: Path, policy: str = "", **changes: Any) -> LocalFederation:
    return LocalFederation(path, config_for("fl-std-dp", **INSIDE | changes), policy=policy or "min_cohort = 2\n")


def test_a_round_that_is_repeated_has_new_coins_and_is_charged_again_by_server_and_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes: dict[tuple[int, int, int], torch.Tensor] = {}
    vector = NodeWork.vector

    def noted(work: NodeWork, plan: Any, weights: Any) -> torch.Tensor:
        codes[work.client, plan.round, plan.attempt] = vector(work, plan, weights)
        return codes[work.client, plan.round, plan.attempt]

    monkeypatch.setattr(NodeWork, "vector", noted)
    some = federation(tmp_path)

    def crash(client: int, message: Message, when: str) -> bool:
        if message.metadata.group_id == "2" and client == 4 and when == "reply":
            raise Crash
        return False

    some.grid.loses = crash
    with pytest.raises(Crash):
        some.run()
    some.grid.loses = lambda client, message, when: False
    result = some.run(resume=True)
    assert result.statement["released"]["rounds_charged"] == 3
    assert result.statement["released"]["epsilon"] == result.statement["participant"]["epsilon"]
    assert not torch.equal(codes[0, 2, 0], codes[0, 2, 1])
    for number in range(5):
        rows = some.node(number).log.rows()
        uploads = [(row["round"], row["attempt"]) for row in rows if row["what"] == UPLOADED]
        assert uploads == [(1, 0), (2, 0), (2, 1)]
        figure = spent(logged_costs(rows).values(), result.statement["delta"], PATIENT)
        assert figure.participant_epsilon == pytest.approx(result.statement["participant"]["epsilon"]["pld"], rel=1e-6)


def test_a_node_that_vanishes_leaves_the_noise_whole(tmp_path: Path) -> None:
    """The others' shares make it up, the server tops it up, and who was away is charged by nobody but the server."""
    some = federation(tmp_path, sampler__max_dropouts=1)
    some.grid.loses = lambda client, message, when: client == 3 and message.metadata.group_id == "2"
    result = some.run()
    assert [row["messages_up"] for row in result.history] == [5, 4]
    assert not any("discarded" in row for row in result.history)
    counts = [sum(row["what"] == UPLOADED for row in some.node(number).log.rows()) for number in range(5)]
    assert counts == [2, 2, 2, 1, 2]
    shares = {row["noise"]["share"] for row in some.node(0).log.rows() if row["what"] == UPLOADED}
    assert 4 * min(shares) ** 2 >= (0.5 * 3.0) ** 2 * (1 - 1e-9)


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        ("max_delta = 1e-2\nmax_epsilon = 50\n", "has no ε for this node's data as a whole, which max_epsilon would"),
        ("max_delta = 1e-2\nmax_patient_epsilon = 0.01\n", "planned ε of a patient"),
        ("max_delta = 1e-2\nmax_record_epsilon = 0.01\n", "planned ε of a record"),
        ("max_delta = 1e-2\nmax_patient_epsilon = 50\nmax_record_epsilon = 50\nmin_cohort = 5\n", ""),
        ("min_cohort = 6\n", "fewer than min_cohort 6"),
    ],
)
def test_a_policy_knows_every_unit(policy: str, reason: str, tmp_path: Path) -> None:
    some = federation(tmp_path, policy)
    told = refusal(some, offer_of(some))
    assert (reason in told) if reason else told == ""


def test_a_node_whose_records_have_no_patients_refuses_before_it_reads_them(tmp_path: Path) -> None:
    some = federation(tmp_path)
    some.of_patients = False
    assert "--patient-column" in refusal(some, offer_of(some))
