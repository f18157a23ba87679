"""Rounds that are repeated after a crash: how many were agreed, who counts them, and what a run says that ran out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install '.[flower]'")

from flower_tools import PRIVATE, LocalFederation, config_for, run_config
from flwr.app import Message

from laconic.errors import ConfigError, Incomplete
from laconic.federation.flower.server_app import ServerData, server_app
from laconic.federation.node.refusals import planned_epsilons
from laconic.federation.offer import Offer
from laconic.federation.server import members
from laconic.federation.server.members import Members
from laconic.federation.server.outcome import ATTEMPTS
from laconic.privacy.accounting.sampling import Poisson
from laconic.report.summary_lines import result_lines
from laconic.runner.outcome import RunResult
from laconic.store.folder import RunFolder


class Crash(BaseException):
    """The server's process is gone."""


def federation(path: Path, **changes: Any) -> LocalFederation:
    """Two rounds."""
    return LocalFederation(path, config_for("fl-std-dp", **PRIVATE | changes))


def crashing(some: LocalFederation, round: int, times: int) -> RunResult:
    """Run, and crash so often when all uploads of the round are in."""

    def crash(client: int, message: Message, when: str) -> bool:
        if message.metadata.group_id == str(round) and client == 4 and when == "reply":
            raise Crash
        return False

    some.grid.loses = crash
    for number in range(times):
        with pytest.raises(Crash):
            some.run(resume=number > 0)
    some.grid.loses = lambda client, message, when: False
    return some.run(resume=times > 0)


def offer_of(some: LocalFederation) -> Offer:
    members = Members.load(RunFolder(some.path / "run"))
    assert members is not None
    return members.offer


def test_two_crashes_are_planned_for(tmp_path: Path) -> None:
    """Nodes that allow exactly the offered ε take part in every round, repeated ones included."""
    some = federation(tmp_path)
    experiment = some.settled().experiment
    exact = planned_epsilons(replace(experiment, noise_draws="per-client").mechanism, 2)
    for number in range(5):
        limits = f"max_epsilon = {exact[0]!r}\nmax_participant_epsilon = {exact[1]!r}\nmax_delta = 1e-5\n"
        (tmp_path / f"policy-{number}.toml").write_text(limits)
    result = crashing(some, 2, times=2)
    assert result.stop_reason == "rounds"
    assert not any("discarded" in row for row in result.history)
    assert result.federation == {
        "nodes": 5,
        "rounds_planned": 2,
        "spare_rounds": 2,
        "repeated_rounds": 2,
        "absences": [],
        "incomplete": "",
    }
    assert result.statement["released"]["epsilon"]["pld"] == pytest.approx(exact[0])


def test_a_third_crash_ends_the_run_before_a_round_that_nobody_agreed_to(tmp_path: Path) -> None:
    result = crashing(federation(tmp_path), 2, times=3)
    assert (result.stop_reason, len(result.history)) == (ATTEMPTS, 1)
    assert result.federation is not None
    assert result.federation["incomplete"].startswith("the run ended after 1 of 2 rounds: 3 more were charged and lost")
    shown = dict(result_lines(result.summary()))
    assert "federation.spare_rounds = 2" in shown["Incomplete"]
    assert shown["Repeated"] == "3 rounds charged again after a crash, of 2 that were agreed"


def test_a_node_refuses_more_than_was_offered_whatever_the_server_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's own check is taken out: the nodes, which limit no ε, refuse all the same."""
    monkeypatch.setattr("laconic.federation.flower.strategy.may_charge", lambda *_: True)
    result = crashing(federation(tmp_path, federation__spare_rounds=0), 1, times=1)
    refused = (
        "refuses: participation 3 of the offered 2; 3 rounds would be charged, but 2 rounds and 0 spare ones were"
        " offered"
    )
    assert result.federation is not None
    assert {one["why"] for one in result.federation["absences"]} == {refused}
    assert "discarded" in result.history[1]
    assert result.federation["incomplete"].startswith("1 of 2 rounds was lost (round 2; it was charged, and moved")


def test_a_lost_round_is_no_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The app of a real host ends with an error, so that Flower shows a failed run; the results are there."""
    some = federation(tmp_path)
    some.grid.loses = lambda client, message, when: message.metadata.group_id == "2"
    monkeypatch.setattr("laconic.federation.flower.server_app.end_if_orphaned", lambda: None)
    app = server_app(lambda context: ServerData(example=some.test, num_classes=3, test=some.test))
    context = SimpleNamespace(
        run_config=run_config(some.config) | {"out": str(tmp_path / "run")}, state=None, node_config={}
    )
    with pytest.raises(Incomplete, match="1 of 2 rounds was lost"):
        app(some.grid, context)  # type: ignore[arg-type]
    assert (tmp_path / "run/model.safetensors").exists()
    assert '"exit_code": 9' in (tmp_path / "run/failure.json").read_text()


def test_a_small_cohort_that_was_drawn_is_part_of_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_for("fl-std-dp", **PRIVATE | {"sampler.sampling_rate": 0.8, "sampler.max_dropouts": 1})
    some = LocalFederation(tmp_path, config, policy="min_cohort = 1\n")
    monkeypatch.setattr(Poisson, "draw", lambda *_: np.array([3]))
    result = some.run()
    assert ["discarded" in row for row in result.history] == [True, True]
    assert result.federation is not None
    assert result.federation["incomplete"] == ""


def test_noise_for_an_epsilon_leaves_room_for_spare_rounds(tmp_path: Path) -> None:
    """σ of 2 rounds and 2 spare ones is that of 4 rounds; a crash then costs no round."""
    values = {"scheme.clip_norm": 0.5, "privacy.epsilon": 4.0}
    some = LocalFederation(tmp_path, config_for("fl-std-dp", **values))
    result = crashing(some, 2, times=1)
    assert (result.stop_reason, len(result.history)) == ("rounds", 2)
    longer = some.settled(config_for("fl-std-dp", **values | {"run.rounds": 4})).experiment.scheme.noise
    assert offer_of(some).scheme.noise == longer
    assert result.statement["released"]["epsilon"]["pld"] < 4.0


def test_what_was_agreed_cannot_grow(tmp_path: Path) -> None:
    some = federation(tmp_path, run__rounds=1)
    some.run()
    with pytest.raises(ConfigError, match="federation.spare_rounds = 9, but the nodes have agreed to 2"):
        some.run(resume=True, config=some.config.with_values({"federation.spare_rounds": 9}))


def test_spare_rounds_are_a_number_from_zero(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="spare_rounds"):
        config_for("fl-std-dp", federation__spare_rounds=-1)
        members.Settings.of(replace(config_for("fl-std-dp").federation, spare_rounds=-1))
