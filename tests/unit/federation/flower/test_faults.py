"""Nodes that vanish, are slow or refuse, and servers that die: the run finishes, and every round is charged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("flwr", reason="flwr is not installed: pip install '.[flower]'")

from flower_tools import FIRST_NODE, PRIVATE, LocalFederation, config_for, weights_of
from flwr.app import ConfigRecord, Error, Message, RecordDict
from flwr.common.constant import ErrorCode

from laconic.data.population import Records
from laconic.errors import PrivacyError, RunFolderError, TrainingError
from laconic.federation.entropy import TEST_SEED
from laconic.federation.flower.messages import to_reply
from laconic.federation.flower.strategy import FlowerCourier
from laconic.federation.server.members import Settings
from laconic.federation.server.outcome import LostRounds
from laconic.guard.transcript import REFUSED, REVEALED, UPLOADED

STAGES = [(kind, when) for kind in ("upload", "unmask") for when in ("request", "reply")]


class Killed(BaseException):
    """The server's process is gone."""


def federation(path: Path, *, policies: dict[int, str] | None = None, **changes: Any) -> LocalFederation:
    config = config_for("fl-std-dp", **PRIVATE | {"run.rounds": 3} | changes)
    return LocalFederation(path, config, policies or {}, policy="min_cohort = 2\n")


def loser(clients: tuple[int, ...], kind: str, when: str, round: int) -> Callable[[int, Message, str], bool]:
    """Loses messages of one kind to or from some nodes, in one round."""
    current = 0

    def loses(client: int, message: Message, at: str) -> bool:
        nonlocal current
        if message.metadata.group_id:
            current = int(message.metadata.group_id)
        its = message.metadata.message_type.partition(".")[2]
        return (its, at, current) == (kind, when, round) and client in clients

    return loses


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def kinds_in(some: LocalFederation, round: int) -> list[str]:
    """The kinds of messages that were sent in a round."""
    kinds, current = [], 0
    for _, message in some.grid.sent:
        current = int(message.metadata.group_id or current)
        if current == round:
            kinds.append(message.metadata.message_type.partition(".")[2])
    return kinds


@pytest.mark.parametrize(("kind", "when"), STAGES)
def test_a_node_that_vanishes_costs_nothing_but_its_share(kind: str, when: str, tmp_path: Path) -> None:
    some = federation(tmp_path, sampler__max_dropouts=1)
    some.grid.loses = loser((4,), kind, when, round=2)
    result = some.run()
    assert [row["round"] for row in result.history] == [1, 2, 3]
    assert not any("discarded" in row for row in result.history)
    assert [row["messages_up"] for row in result.history] == [5, 4 if kind == "upload" else 5, 5]
    assert [(row["round"], row["attempt"]) for row in rows(tmp_path / "run/charges.jsonl")] == [(1, 0), (2, 0), (3, 0)]
    assert result.statement["participant"]["participations"] == 3
    notices = rows(tmp_path / "run/notices.jsonl")
    expected = [(2, 4)] if kind == "upload" else []  # the others open the sum without it
    assert [(row["round"], row["client"]) for row in notices] == expected
    uploads = 2 if (kind, when) == ("upload", "request") else 3
    assert some.node(4).log.participations(bytes.fromhex(some.node(4).log.rows()[0]["run"])) == uploads


def test_too_few_uploads_are_never_opened(tmp_path: Path) -> None:
    some = federation(tmp_path, sampler__max_dropouts=1)
    some.grid.loses = loser((1, 4), "upload", "reply", round=2)
    result = some.run()
    assert "a sum of fewer than 4 is not opened" in result.history[1]["discarded"]
    assert "discarded" not in result.history[2]
    assert "unmask" not in kinds_in(some, 2)  # nobody was even asked
    assert [row["round"] for row in rows(tmp_path / "run/charges.jsonl")] == [1, 2, 3]
    assert result.statement["released"]["rounds_charged"] == 3
    assert result.history[2]["participant_epsilon"] > result.history[1]["participant_epsilon"]


def test_a_round_that_cannot_be_opened_is_charged_and_the_run_goes_on(tmp_path: Path) -> None:
    some = federation(tmp_path, sampler__max_dropouts=1)
    some.grid.loses = loser((0, 1, 2), "unmask", "request", round=1)
    result = some.run()
    assert "members answered" in result.history[0]["discarded"]
    assert len(rows(tmp_path / "run/charges.jsonl")) == 3
    assert {row["client"] for row in rows(tmp_path / "run/notices.jsonl")} == {0, 1, 2}


def losing(rounds: set[int]) -> Callable[[int, Message, str], bool]:
    """Loses the uploads of two nodes in some rounds: one more than may drop out."""
    losers = [loser((1, 4), "upload", "reply", round=number) for number in rounds]

    def loses(client: int, message: Message, when: str) -> bool:
        found = [one(client, message, when) for one in losers]  # each must see every message
        return any(found)

    return loses


def test_two_discarded_rounds_in_a_row_end_the_run_with_the_remedy(tmp_path: Path) -> None:
    some = federation(tmp_path, sampler__max_dropouts=1, run__rounds=6)
    some.grid.loses = losing({2, 3, 4, 5, 6})
    with pytest.raises(TrainingError) as ended:
        some.run()
    text = str(ended.value)
    assert text.startswith("2 rounds in a row were discarded; each was charged, and moved the model by noise alone.")
    assert "(nodes 1, 4 gave no answer within 0.2 s (federation.round_timeout))" in text
    assert "raise federation.round_timeout (now 0.2 s per exchange)" in text
    assert "TTL" not in text
    assert [row["round"] for row in rows(tmp_path / "run/charges.jsonl")] == [1, 2, 3]  # three of six, and no more

    some.grid.loses = lambda client, message, when: False
    result = some.run(resume=True)
    assert [row["round"] for row in rows(tmp_path / "run/charges.jsonl")] == [1, 2, 3, 4, 5, 6]
    assert ["discarded" in row for row in result.history] == [False, True, True, False, False, False]


@pytest.mark.parametrize(("lost", "most"), [({1, 2, 3}, 4), ({1, 3}, 2)], ids=["four are allowed", "not in a row"])
def test_fewer_discarded_rounds_end_nothing(lost: set[int], most: int, tmp_path: Path) -> None:
    some = federation(tmp_path, sampler__max_dropouts=1, federation__max_discarded=most)
    some.grid.loses = losing(lost)
    assert len(some.run().history) == 3


def test_a_discarded_round_moves_the_model_by_noise_alone(tmp_path: Path) -> None:
    """What docs/federation.md says: the weights change although nothing was opened; without privacy they stay."""
    private = federation(tmp_path / "private", run__rounds=1)
    plain = LocalFederation(tmp_path / "plain", config_for("fl-std", run__rounds=1))
    changes = []
    for some in (private, plain):
        some.grid.loses = loser((0, 1, 2, 3, 4), "upload", "request", round=1)
        result = some.run()
        assert "discarded" in result.history[0]
        before = some.settled().experiment.model
        changes.append((weights_of(result) - torch.cat([p.reshape(-1) for p in before.parameters()])).detach())
    assert 0.03 < float(changes[0].std()) < 0.3  # σ·S/(q·N) = 1.0 · 0.5 / 5 per weight, of 21
    assert not changes[1].any()


def test_cohorts_drawn_too_small_do_not_end_a_run(tmp_path: Path) -> None:
    """Whether a cohort was too small tells how many took part, which the outsider's ε keeps secret."""
    lost = LostRounds(Settings.of(config_for("fl-std-dp").federation))
    for viable in (False, False, True, False):
        lost.after(SimpleNamespace(viable=viable), {"round": 1, "discarded": "why"})  # type: ignore[arg-type]
        lost.check()
    lost.after(SimpleNamespace(viable=True), {"round": 2, "discarded": "why"})  # type: ignore[arg-type]
    with pytest.raises(TrainingError, match="2 rounds in a row"):
        lost.check()


def test_flowers_reasons_are_told_in_our_words(tmp_path: Path) -> None:
    some = federation(tmp_path)
    courier = FlowerCourier(some.grid, list(some.grid.get_node_ids()))
    for kind, option in (("upload", "federation.round_timeout"), ("keys", "federation.join_timeout")):
        messages = courier.messages(kind, {0: {"run": bytes(16)}}, timeout=1.0)
        some.grid.push_messages(messages)
        for code in (ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE):
            void = Message(Error(code, "It may have expired due to its TTL"), reply_to=messages[0])
            assert courier.answers(messages, [void], timeout=1.0).missing == {
                0: f"gave no answer within 1 s ({option})"
            }
        other = Message(Error(ErrorCode.UNKNOWN, "broken"), reply_to=messages[0])
        assert courier.answers(messages, [other], timeout=1.0).missing == {0: "failed: broken"}


@pytest.mark.parametrize("kind", ["upload", "unmask"])
def test_a_killed_server_goes_on_with_a_new_attempt(kind: str, tmp_path: Path) -> None:
    some = federation(tmp_path)
    dies = loser((2,), kind, "reply", round=2)

    def kill(client: int, message: Message, when: str) -> bool:
        if dies(client, message, when):
            raise Killed
        return False

    some.grid.loses = kill
    with pytest.raises(Killed):
        some.run()
    with pytest.raises(RunFolderError, match="resume"):
        some.run()
    some.grid.loses = lambda client, message, when: False
    result = some.run(resume=True)
    assert [row["round"] for row in result.history] == [1, 2, 3]
    charged = [(row["round"], row["attempt"]) for row in rows(tmp_path / "run/charges.jsonl")]
    assert charged == [(1, 0), (2, 0), (2, 1), (3, 0)]
    assert result.statement["participant"]["participations"] == 4
    log = some.node(0).log.rows()
    assert [(row["round"], row["attempt"]) for row in log if row["what"] == UPLOADED] == charged
    revealed = [(row["round"], row["attempt"]) for row in some.node(2).log.rows() if row["what"] == REVEALED]
    assert revealed == [c for c in charged if kind == "unmask" or c != (2, 0)]
    assert log[-2]["participant_epsilon"] == pytest.approx(result.statement["participant"]["epsilon"]["pld"])


def test_no_round_is_wasted_while_too_many_nodes_are_gone(tmp_path: Path) -> None:
    """An outage must not burn the budget: rounds are charged when enough nodes are there, and not before."""
    some = federation(tmp_path, sampler__max_dropouts=1)

    def outage(client: int, message: Message, when: str) -> bool:
        some.grid.offline = {0, 3} if message.metadata.group_id == "2" else some.grid.offline
        return False

    some.grid.loses = outage
    with pytest.raises(TrainingError, match="3 of 5 nodes are there, but a round needs 4: nothing was charged"):
        some.run()
    assert [row["round"] for row in rows(tmp_path / "run/charges.jsonl")] == [1, 2]
    some.grid.offline, some.grid.loses = {3}, loser((3,), "upload", "request", round=3)
    result = some.run(resume=True)
    assert [(row["round"], row["attempt"]) for row in rows(tmp_path / "run/charges.jsonl")] == [(1, 0), (2, 0), (3, 0)]
    assert not any("discarded" in row for row in result.history)


def test_the_budget_stops_the_run_before_it_is_exceeded(tmp_path: Path) -> None:
    result = federation(tmp_path, privacy__epsilon=5.0).run()
    assert result.stop_reason == "budget"
    assert len(result.history) == 1
    assert result.federation is not None
    assert result.federation["incomplete"] == ""  # nothing was repeated: as planned
    assert result.statement["released"]["epsilon"]["pld"] <= 5.0


@pytest.mark.parametrize(
    "sampler", [{"sampler.sampling_rate": 0.6}, {"sampler.kind": "fixed-size", "sampler.cohort_size": 3}]
)
def test_cohorts_are_drawn_from_the_registered_nodes(
    sampler: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TEST_SEED, "4")
    config = config_for("fl-std-dp", **PRIVATE | {"run.rounds": 3} | sampler)
    if "sampler.kind" in sampler:
        data = config.to_dict()
        del data["sampler"]["sampling_rate"]
        config = type(config).from_dict(data)
    some = LocalFederation(tmp_path, config, policy="min_cohort = 1\nallow_test_seed = true\n")
    result = some.run()
    charges = rows(tmp_path / "run/charges.jsonl")
    asked: list[list[int]] = [[] for _ in range(4)]
    for client, message in some.grid.sent:
        if message.metadata.message_type == "train.upload":
            asked[int(message.metadata.group_id)].append(client)
    assert asked[1:] == [row["cohort"] for row in charges]
    sizes = {len(row["cohort"]) for row in charges}
    assert sizes == {3} if "sampler.kind" in sampler else len(sizes) > 1
    assert len(result.history) == 3


def test_a_node_refuses_what_its_policy_forbids_and_the_server_says_why(tmp_path: Path) -> None:
    some = federation(
        tmp_path,
        policies={2: "max_epsilon = 0.5\nmax_delta = 1e-5\n"},
        privacy__epsilon=1.0,
        scheme__noise_multiplier=6.0,
    )
    with pytest.raises(PrivacyError, match=r"node 2 \(1002\) refuses: planned ε 1\.000 is above max_epsilon 0\.5"):
        some.run()
    assert [row["client"] for row in rows(tmp_path / "run/notices.jsonl")] == [2]
    assert [row["what"] for row in some.node(2).log.rows()] == [REFUSED]
    assert not (tmp_path / "run/charges.jsonl").exists()


def test_the_others_go_on_if_that_is_allowed(tmp_path: Path) -> None:
    some = federation(tmp_path, policies={2: 'servers = ["00"]\n'}, federation__min_nodes=4)
    result = some.run()
    assert {row["cohort"] for row in result.history} == {4}
    assert result.statement["sampler"]["num_clients"] == 4
    assert "not among the servers" in rows(tmp_path / "run/notices.jsonl")[0]["reason"]


def test_a_node_that_changes_its_mind_is_a_dropout_with_a_reason(tmp_path: Path) -> None:
    some = federation(tmp_path, sampler__max_dropouts=1)

    def stricter(client: int, message: Message, when: str) -> bool:
        if message.metadata.group_id == "2":
            (tmp_path / "policy-3.toml").write_text("max_participations = 1\n")
        return False

    some.grid.loses = stricter
    result = some.run()
    reasons = [(row["round"], row["client"], row["reason"]) for row in rows(tmp_path / "run/notices.jsonl")]
    over = "(over 3 rounds and 2 spare ones)"
    assert reasons == [(n, 3, f"refuses: up to 5 participations, above max_participations 1 {over}") for n in (2, 3)]
    missing = result.summary()["federation"]
    assert missing["absences"] == [{"node": 3, "rounds": 2, "last_round": 3, "why": reasons[0][2]}]
    assert missing["incomplete"] == ""  # one node may be missing
    assert [row["messages_up"] for row in result.history] == [5, 4, 4]
    assert not any("discarded" in row for row in result.history)


def test_a_plain_scheme_does_without_those_who_are_missing(tmp_path: Path) -> None:
    some = LocalFederation(tmp_path, config_for("fl-std"))
    some.grid.loses = loser((0, 1, 2, 3, 4), "upload", "request", round=1)
    result = some.run()
    assert [row["messages_up"] for row in result.history] == [0, 5]
    assert result.history[0]["discarded"] == "no node sent a code"


def test_what_goes_wrong_at_a_node_stays_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unexpected error may quote records: the server learns nothing of it, and the owner all."""
    some = federation(tmp_path, federation__min_nodes=5)

    def quoting(client: int) -> Records:
        raise ValueError("could not convert 'Jane Doe, born 1950'")

    monkeypatch.setattr(some.population, "records", quoting)
    some.run()
    assert not (tmp_path / "run/notices.jsonl").exists(), "noise alone looks like any other code"
    assert not [row for row in some.node(0).log.rows() if row["what"] == REFUSED]
    assert "Jane" in (some.node(0).bad_records or "")
    assert not any(b"Jane" in path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file())


def test_an_answer_from_elsewhere_does_not_count(tmp_path: Path) -> None:
    """Only the node that was asked can answer; an error may come from the SuperLink on its behalf."""
    some = federation(tmp_path)
    courier = FlowerCourier(some.grid, list(some.grid.get_node_ids()))
    messages = courier.messages("unmask", {0: {"run": bytes(16)}, 1: {"run": bytes(16)}}, timeout=1.0)
    some.grid.push_messages(messages)
    forged = to_reply({"reveal": b"x"}, messages[0])
    forged.metadata._src_node_id = FIRST_NODE + 4
    failed = Message(Error(5, "node unavailable"), reply_to=messages[1])
    failed.metadata._src_node_id = 1
    answers = courier.answers(messages, [forged, failed], timeout=1.0)
    assert answers.given == {}
    assert answers.missing == {
        0: "gave no answer within 1 s (federation.round_timeout)",
        1: "is gone: its SuperNode no longer reports to the SuperLink",
    }


def test_a_nodes_reason_is_one_short_line(tmp_path: Path) -> None:
    """It is a stranger's text, and goes to a terminal."""
    some = federation(tmp_path)
    courier = FlowerCourier(some.grid, list(some.grid.get_node_ids()))
    messages = courier.messages("upload", {0: {"run": bytes(16)}, 1: {"run": bytes(16)}}, timeout=1.0)
    some.grid.push_messages(messages)
    replies = [
        to_reply({REFUSED: "no\n\x1b[2Jlaconic: error: all is well" + "!" * 10_000}, messages[0]),
        Message(Error(ErrorCode.UNKNOWN, "no\n\x1b[2J" + "!" * 10_000), reply_to=messages[1]),
    ]
    answers = courier.answers(messages, replies, timeout=1.0)
    assert set(answers.missing) == {0, 1}
    assert all(reason.isprintable() and len(reason) < 400 for reason in answers.missing.values())


def test_a_node_that_sends_what_cannot_be_read_is_missing_and_ends_nothing(tmp_path: Path) -> None:
    some = federation(tmp_path)
    courier = FlowerCourier(some.grid, list(some.grid.get_node_ids()))
    messages = courier.messages("upload", {0: {"run": bytes(16)}, 1: {"run": bytes(16)}}, timeout=1.0)
    some.grid.push_messages(messages)
    odd = Message(RecordDict({"own": ConfigRecord({"code": [1.0, 2.0]})}), reply_to=messages[0])
    answers = courier.answers(messages, [odd, to_reply({"code": b"x"}, messages[1])], timeout=1.0)
    assert answers.missing == {0: "sent an answer that cannot be read"} and set(answers.given) == {1}
