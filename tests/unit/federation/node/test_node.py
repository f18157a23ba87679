"""A node on its own: what it answers, what it refuses, and what it remembers."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from node_tools import SERVER, SIZES, DirectCourier, Small, make_offer

from laconic import schemes
from laconic.errors import ConfigError, DataError, PrivacyError, RunFolderError, WireError
from laconic.federation.entropy import TEST_SEED, FederationStreams, SystemStream, federation_streams
from laconic.federation.node.node import _check_kind
from laconic.federation.node.serve.watched import WatchedNode
from laconic.federation.offer import Offer, read_offer, sign_offer
from laconic.federation.requests import REFUSED, Answers, Fields, UploadRequest, bytes_in
from laconic.federation.server import remote_clients as server
from laconic.federation.server.members import Members
from laconic.guard.folder import NodeFolder
from laconic.guard.keys import wrapping
from laconic.guard.keys.change import encrypt_keys
from laconic.guard.keys.secret import Secret
from laconic.guard.policy import Policy
from laconic.guard.roster import read_roster
from laconic.guard.transcript import Transcript
from laconic.guard.withheld import WITHHELD
from laconic.operations import EventLog
from laconic.privacy.accounting.budget import Budget
from laconic.privacy.accounting.sampling import FixedSize, Poisson
from laconic.secagg.attempts import Nonces
from laconic.secagg.crypto.keys import PublicKeys, RunKey
from laconic.streams import Streams


def test_a_round_without_any_carrier(tmp_path: Path) -> None:
    small = Small(tmp_path)
    clients = small.join()
    sent = clients.collect(small.plan(clients), clients.model.initial)
    assert (sent.messages, sent.lost) == (3, "")
    log = NodeFolder(tmp_path / "node-1").log
    assert [row["what"] for row in log.rows()] == ["joined", "uploaded", "revealed"]
    assert log.participations(small.offer.run) == 1
    assert log.rows()[1]["participant_epsilon"] == pytest.approx(4.387, abs=1e-3)
    assert "test_seed" not in log.rows()[1]


def test_keys_are_for_their_owner_alone(tmp_path: Path) -> None:
    small = Small(tmp_path)
    small.join()
    secret = list((tmp_path / "node-0").rglob("*.key"))
    assert len(secret) == 2
    assert all(p.stat().st_mode & 0o077 == 0 for p in secret)


def test_nothing_is_uploaded_twice_under_one_attempt(tmp_path: Path) -> None:
    small = Small(tmp_path)
    clients = small.join()
    plan = small.plan(clients)
    requests = clients.requests(plan, clients.model.initial)
    first = small.node(0).answer("upload", requests[0])
    assert small.node(0).answer("upload", requests[0]) == first  # the same bytes tell nothing new
    small.restart(0)
    assert small.node(0).answer("upload", requests[0])["upload"] == first["upload"]
    assert NodeFolder(tmp_path / "node-0").log.participations(small.offer.run) == 1
    other = requests[0] | {"weights": clients._weights_message(plan, clients.model.initial + 1)}
    assert "this client is past it" in str(small.node(0).answer("upload", other)[REFUSED])
    small.policy = Policy(max_rounds=50)
    assert "this client is past it" in str(small.node(0).answer("upload", requests[0])[REFUSED])
    again = clients.requests(small.plan(clients, attempt=1), clients.model.initial)
    assert "upload" in small.node(0).answer("upload", again[0])
    assert NodeFolder(tmp_path / "node-0").log.participations(small.offer.run) == 2


def test_a_member_reveals_once_also_after_a_restart(tmp_path: Path) -> None:
    small = Small(tmp_path)
    clients = small.join()
    asked: list[Fields] = []
    ask = small.courier.ask

    def noted(kind: str, requests: Mapping[int, Fields], **options: Any) -> Answers:
        asked.extend([requests[0]] if kind == "unmask" else [])
        return ask(kind, requests, **options)

    small.courier.ask = noted  # type: ignore[method-assign]
    clients.collect(small.plan(clients), clients.model.initial)
    small.restart(0)
    assert "reveal" in small.node(0).answer("unmask", asked[0])
    assert len([row for row in NodeFolder(tmp_path / "node-0").log.rows() if row["what"] == "revealed"]) == 1
    request = bytes_in(asked[0], "request")
    for changed in (request + b"\0", request[:-1] + bytes([request[-1] ^ 1])):
        assert REFUSED in small.node(0).answer("unmask", asked[0] | {"request": changed})
    small.policy = Policy(max_rounds=50)
    assert "past it" in str(small.node(0).answer("unmask", asked[0])[REFUSED])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"round": 2}, "message of round 1.0, but this is round 2.0"),
        ({"run": bytes(16)}, "not joined run"),
        ({"weights": b"short"}, "shorter than its header"),
        ({"plan": b""}, "shorter than its header"),
    ],
)
def test_bent_requests_are_refused(change: dict[str, Any], reason: str, tmp_path: Path) -> None:
    small = Small(tmp_path)
    clients = small.join()
    request = clients.requests(small.plan(clients), clients.model.initial)[0]
    assert reason in str(small.node(0).answer("upload", request | change)[REFUSED])
    assert NodeFolder(tmp_path / "node-0").log.participations(small.offer.run) == 0


def test_fields_that_are_missing_or_wrong() -> None:
    whole: Fields = {"run": bytes(16), "round": 1, "attempt": 0, "weights": b"w"}
    assert UploadRequest.from_fields(whole).to_fields() == whole
    for name, value in (("run", b"short"), ("round", -1), ("attempt", True), ("weights", "text")):
        with pytest.raises(WireError):
            UploadRequest.from_fields(whole | {name: value})


def test_the_roster_is_fixed_and_holds_the_nodes_own_key(tmp_path: Path) -> None:
    small = Small(tmp_path)
    clients = small.join()
    request = clients.requests(small.plan(clients), clients.model.initial)[0]
    entries = read_roster(small.members.roster)
    swapped = replace(entries[0], agreement=entries[1].agreement)
    bad = b"".join(entry.entry() for entry in (swapped, *entries[1:]))
    assert "own key is not in the roster" in str(small.node(0).answer("upload", request | {"roster": bad})[REFUSED])
    assert "upload" in small.node(0).answer("upload", request)
    identity = NodeFolder(tmp_path / "node-1").identity()
    other = PublicKeys.signed(small.offer.context, 1, RunKey.generate(), identity)
    another = b"".join(entry.entry() for entry in (entries[0], other, entries[2]))
    later = clients.requests(small.plan(clients, round=2), clients.model.initial)[0]
    assert "another roster before" in str(small.node(0).answer("upload", later | {"roster": another})[REFUSED])


def test_strangers_in_the_roster_are_refused(tmp_path: Path) -> None:
    small = Small(tmp_path)
    known = [NodeFolder(tmp_path / f"node-{n}").identity().public_key().public_bytes_raw().hex() for n in (0, 1)]
    small.policy = Policy(identities=tuple(known))
    clients = small.join()
    request = clients.requests(small.plan(clients), clients.model.initial)[0]
    assert "nodes [2] of the roster are not among the identities" in str(
        small.node(0).answer("upload", request)[REFUSED]
    )


def test_a_small_sum_is_refused_by_the_node_itself(tmp_path: Path) -> None:
    small = Small(tmp_path, Policy(min_cohort=1), max_dropouts=1, sampler=Poisson(sampling_rate=0.9))
    clients = small.join()
    plan = replace(small.plan(clients), cohort=np.array([0, 1]))
    request = clients.requests(plan, clients.model.initial)[0]
    small.policy = Policy(min_cohort=2)
    assert "honest nodes may be opened, fewer than min_cohort 2" in str(
        small.node(0).answer("upload", request)[REFUSED]
    )
    small.policy = Policy(min_cohort=1)
    assert "upload" in small.node(0).answer("upload", request)


def test_a_sum_of_other_values_than_the_schemes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With too few bits the sum would wrap, and tell something of what wrapped."""
    small = Small(tmp_path)
    clients = small.join()
    honest = server.sum_plan
    monkeypatch.setattr(server, "sum_plan", lambda *some: replace(honest(*some), bits=8))
    request = clients.requests(small.plan(clients), clients.model.initial)[0]
    assert "values of 8 bits; the scheme has 21 of" in str(small.node(0).answer("upload", request)[REFUSED])


def test_seeds_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = Small(tmp_path)
    fields: Fields = {"offer": sign_offer(small.offer, 0, SERVER)}
    monkeypatch.setenv(TEST_SEED, "7")
    assert f"{TEST_SEED} is set on this node" in str(small.node(0).answer("keys", fields)[REFUSED])
    small.policy = Policy(allow_test_seed=True)
    assert "announcement" in small.node(0).answer("keys", fields)
    monkeypatch.setenv(TEST_SEED, "many")
    with pytest.raises(ConfigError, match="whole number"):
        federation_streams(0)


def test_public_streams_follow_from_the_public_seed_and_nothing_else_does() -> None:
    one, other = FederationStreams(4), FederationStreams(4)
    assert one.key("public", 1, 0) == other.key("public", 1, 0) == Streams(4).key("public", 1, 0)
    assert one.key("model") == Streams(4).key("model")
    for path in (("cohort", 1, 0), ("batches", 1, 0, 2)):
        assert len({one.key(*path), other.key(*path), Streams(4).key(*path)}) == 3
    assert "secret" not in repr(one)


def test_noise_comes_from_the_operating_system(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    stream = FederationStreams(4).stream("noise", 1, 0, 2)
    assert isinstance(stream, SystemStream)
    assert isinstance(stream.fork("whole"), SystemStream)
    assert not torch.equal(stream.words(8, cpu), stream.words(8, cpu))
    monkeypatch.setattr(os, "urandom", lambda count: bytes(range(count)))
    assert stream.words(2, cpu).tolist() == [0x0706050403020100, 0x0F0E0D0C0B0A0908]
    with pytest.raises(PrivacyError, match="integers"):
        stream.normal((2,), cpu)


def test_an_offer_is_what_it_was_when_it_was_signed() -> None:
    offer = make_offer(budget=Budget(delta=1e-5, epsilon=2.0), consistency="signed")
    data = sign_offer(offer, 1, SERVER)
    assert read_offer(data) == (1, offer)
    with pytest.raises(WireError, match="not signed"):
        read_offer(data.replace(b'"rounds":5', b'"rounds":6'))
    with pytest.raises(WireError, match="not signed"):
        read_offer(data[:5] + (2).to_bytes(4, "little") + data[9:])
    with pytest.raises(WireError, match="protocol version 1, but this is version 3: install the same"):
        read_offer(data[:4] + b"\x01" + data[5:])
    with pytest.raises(WireError, match="install the same on all machines"):
        read_offer((1).to_bytes(4, "little") + data[41:])  # as it was before protocols had numbers
    with pytest.raises(WireError, match="to client 3 of 3"):
        read_offer(sign_offer(offer, 3, SERVER))
    for damaged in (data[:4], data[:10], data[:-5], data[:105]):
        with pytest.raises(WireError):
            read_offer(damaged)


@pytest.mark.parametrize(
    ("bent", "reason"),
    [
        ({"loss": "anything"}, "unknown loss"),
        ({"budget": None}, "needs a delta"),
        ({"sampler": FixedSize(cohort_size=4).to_dict()}, "larger than the population"),
        ({"budget": Budget(delta=1e-5, epsilon=50.0, participant_epsilon=50.0).to_dict()}, "max-participations"),
        (
            {
                "sampler": FixedSize(cohort_size=2).to_dict(),
                "budget": Budget(delta=1e-5, max_participations=2).to_dict(),
            },
            "no proof covers",
        ),
    ],
)
def test_what_no_server_can_run_is_refused_before_a_record_is_read(
    bent: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    """No honest server makes such an offer. Once joined, it would look as if the node's records had failed, and the
    node would wait for its owner."""
    small = Small(tmp_path)

    class Bent:
        server = small.offer.server

        def to_bytes(self) -> bytes:
            values = json.loads(small.offer.to_bytes()) | bent
            return json.dumps(values, sort_keys=True, separators=(",", ":")).encode()

    told = small.node(0).answer("keys", {"offer": sign_offer(cast(Offer, Bent()), 0, SERVER)})
    assert reason in str(told[REFUSED])
    assert NodeFolder(tmp_path / "node-0").attention is None


def test_a_run_is_joined_on_one_offer_only(tmp_path: Path) -> None:
    small = Small(tmp_path)
    small.join()
    cheaper = replace(small.offer, rounds=500)
    answer = small.node(0).answer("keys", {"offer": sign_offer(cheaper, 0, SERVER)})
    assert "another offer of the same run" in str(answer[REFUSED])
    assert "announcement" in small.node(0).answer("keys", {"offer": sign_offer(small.offer, 0, SERVER)})


@pytest.mark.parametrize(
    ("votes", "reason"), [({"vote_rounds": 5}, "leaves none to train in"), ({"vote_block": 10**9}, "blocks of")]
)
def test_votes_that_cannot_be_are_refused_before_the_run_is_joined(
    votes: dict[str, int], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a round it would look like a failure of the records, and the node would wait for its owner."""
    options = {"ratio": 0.5, "top_selection": "votes", "vote_rounds": 1, "vote_block": 2} | votes
    scheme = schemes.fl_top_dp(clip_norm=0.5, noise_multiplier=1.0, local_lr=0.1, local_steps=2, **options)
    with monkeypatch.context() as lying:
        lying.setattr("laconic.experiment.experiment.check_votes", lambda *_: None)
        offered = sign_offer(make_offer(scheme=scheme), 0, SERVER)
    small = Small(tmp_path)
    answer = small.node(0).answer("keys", {"offer": offered})
    assert reason in str(answer.get(REFUSED))
    assert NodeFolder(tmp_path / "node-0").attention is None


def test_another_model_is_refused(tmp_path: Path) -> None:
    small = Small(tmp_path)
    for changes, reason in (({"initial": "0" * 32}, "initial weights"), ({"size": 20}, "21 weights, the server's 20")):
        fields: Fields = {"offer": sign_offer(replace(small.offer, **changes), 0, SERVER)}
        assert reason in str(small.node(0).answer("keys", fields)[REFUSED])


def test_members_are_kept_in_the_run_folder(tmp_path: Path) -> None:
    from laconic.store.folder import RunFolder

    small = Small(tmp_path)
    small.join()
    folder = RunFolder(tmp_path / "run")
    folder.make()
    assert Members.load(folder) is None
    small.members.save(folder)
    assert Members.load(folder) == small.members
    folder.write("federation.json", "{}")
    with pytest.raises(RunFolderError, match="damaged"):
        Members.load(folder)


def test_half_a_row_is_no_row(tmp_path: Path) -> None:
    log, run = Transcript(tmp_path / "log.jsonl"), bytes(16)
    log.add("uploaded", run, round=1)
    with open(tmp_path / "log.jsonl", "a") as stream:
        stream.write('{"what": "uploa')
    assert log.participations(run) == 1
    log.add("uploaded", run, round=2)
    assert [row["round"] for row in log.rows(run)] == [1, 2]
    assert log.participations(b"another") == 0


def test_a_damaged_log_stops_the_node(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text('{"what": "uploaded", "run": "00"}\nnothing\n{"what": "x", "run": "00"}\n')
    with pytest.raises(RunFolderError, match="line 2: damaged"):
        Transcript(tmp_path / "log.jsonl").rows()


def test_a_copy_of_a_folder_answers_nothing(tmp_path: Path) -> None:
    """A server could have the copy mask a second vector in an attempt of before, or open another set of survivors."""
    small = Small(tmp_path)
    clients = small.join()
    shutil.copytree(tmp_path / "node-0", tmp_path / "before")
    plan = small.plan(clients)
    requests = clients.requests(plan, clients.model.initial)
    assert "upload" in small.courier.nodes[0].answer("upload", requests[0])
    os.replace(tmp_path / "node-0", tmp_path / "lost")
    shutil.copytree(tmp_path / "before", tmp_path / "node-0")  # as from a nightly copy
    restored = small.node(0)
    for kind in ("keys", "upload", "consent", "unmask"):
        assert restored.answer(kind, requests[0]) == {REFUSED: WITHHELD}
    assert "is a copy" in (NodeFolder(tmp_path / "node-0").copied or "")


def test_without_that_check_a_copy_would_mask_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the test above: this is what it prevents, where nonces do not prevent it first."""
    monkeypatch.setattr(NodeFolder, "copied", None)
    monkeypatch.setattr(Transcript, "_set_back", lambda self, noted: None)
    monkeypatch.setattr(Nonces, "check", lambda self, run, nonce: None)
    small = Small(tmp_path)
    clients = small.join()
    shutil.copytree(tmp_path / "node-0", tmp_path / "before")
    requests = clients.requests(small.plan(clients), clients.model.initial)
    first = small.courier.nodes[0].answer("upload", requests[0])
    assert small.courier.nodes[0].answer("upload", requests[0]) == first
    os.replace(tmp_path / "node-0", tmp_path / "lost")
    shutil.copytree(tmp_path / "before", tmp_path / "node-0")
    second = small.node(0).answer("upload", requests[0])
    assert "upload" in second and second != first


def rounds(small: Small, clients: server.RemoteClients, number: int, **options: Any) -> tuple[int, list[str]]:
    """How many uploads are in the sum of a round, and which messages were sent for it."""
    kinds: list[str] = []
    ask = DirectCourier.ask

    def noted(self: DirectCourier, kind: str, *some: Any, **more: Any) -> Answers:
        kinds.append(kind)
        return ask(self, kind, *some, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DirectCourier, "ask", noted)
        sent = clients.collect(small.plan(clients, round=number, **options), clients.model.initial)
    return sent.messages, kinds


def test_nonces_need_no_exchange_of_their_own(tmp_path: Path) -> None:
    """They come with the announcement and with every answer. A server that was started again asks for them once."""
    small = Small(tmp_path)
    clients = small.join()
    assert rounds(small, clients, 1) == (3, ["upload", "unmask"])
    assert rounds(small, clients, 2) == (3, ["upload", "unmask"])
    resumed = small.server()
    assert rounds(small, resumed, 3) == (3, ["ready", "upload", "unmask"])
    assert rounds(small, resumed, 4) == (3, ["upload", "unmask"])


def test_a_node_that_was_restarted_is_missing_in_one_round_and_then_back(tmp_path: Path) -> None:
    """Its refusal brings its nonce, so that nothing else is asked."""
    small = Small(tmp_path, max_dropouts=1)
    clients = small.join()
    told: list[str] = []
    clients.notice = lambda client, reason: told.append(f"{client} {reason}")
    small.restart(1)
    assert rounds(small, clients, 1) == (2, ["upload", "unmask"])
    assert len(told) == 1 and told[0].startswith("1 refuses: the plan has another nonce")
    assert NodeFolder(tmp_path / "node-1").log.participations(small.offer.run) == 0, "charged for nothing"
    assert rounds(small, clients, 2) == (3, ["upload", "unmask"])


def test_a_node_whose_answer_was_lost_is_asked_for_its_nonce(tmp_path: Path) -> None:
    small = Small(tmp_path, max_dropouts=1)
    clients = small.join()
    answer = small.courier.nodes[1].answer
    small.courier.nodes[1].answer = lambda kind, fields: answer(kind, fields) and {REFUSED: "lost"}  # type: ignore[method-assign]
    assert rounds(small, clients, 1) == (2, ["upload", "unmask"])
    small.courier.nodes[1].answer = answer  # type: ignore[method-assign]
    assert rounds(small, clients, 2) == (3, ["ready", "upload", "unmask"])


def test_a_node_that_is_not_ready_is_not_asked_for_more(tmp_path: Path) -> None:
    small = Small(tmp_path, max_dropouts=1)
    small.join()
    clients = small.server()
    told: list[str] = []
    clients.notice = lambda client, reason: told.append(f"{client} {reason}")
    shutil.rmtree(tmp_path / "node-2" / small.offer.run.hex())
    assert rounds(small, clients, 1) == (2, ["ready", "upload", "unmask"])
    assert len(told) == 1 and "has not joined" in told[0]


def test_a_node_restarted_between_upload_and_unmasking_still_opens(tmp_path: Path) -> None:
    small = Small(tmp_path)
    clients = small.join()
    plan = small.plan(clients)
    requests = clients.requests(plan, clients.model.initial)
    answers = small.courier.ask("upload", requests, timeout=1.0)
    for number in range(len(SIZES)):
        small.restart(number)
    sent = clients.collected(plan, requests, answers)
    assert (sent.messages, sent.lost) == (3, "")
    # The answers to that brought the new processes' nonces.
    assert rounds(small, clients, 2) == (3, ["upload", "unmask"])


def test_a_federation_with_encrypted_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wrapping, "SCRYPT_N", 2)
    secret = Secret(kind="key file", value=bytes(range(32)))
    for number in range(len(SIZES)):
        NodeFolder(tmp_path / f"node-{number}").identity()
        encrypt_keys(tmp_path / f"node-{number}", secret)
    monkeypatch.setattr("laconic.guard.keys.keyring.found_secret", lambda: secret)
    small = Small(tmp_path)
    clients = small.join()
    sent = clients.collect(small.plan(clients), clients.model.initial)
    assert (sent.messages, sent.lost) == (3, "")
    agreed = list(tmp_path.rglob("agreement.key"))
    assert len(agreed) == 3
    assert all(wrapping.is_sealed(path.read_bytes()) for path in agreed)


def test_a_full_disk_stops_the_answer_and_is_said_to_the_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small, events = Small(tmp_path), EventLog(tmp_path / "events")
    clients = small.join()
    node = WatchedNode(small.courier.nodes[0], events)
    requests = clients.requests(small.plan(clients), clients.model.initial)
    with monkeypatch.context() as full:

        def fsync(handle: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        full.setattr("laconic.guard.transcript.os.fsync", fsync)
        with pytest.raises(RunFolderError, match="No space left on device; nothing was sent"):
            node.answer("upload", requests[0])
    assert json.loads((tmp_path / "events").read_text())["reason"].endswith("No space left on device; nothing was sent")
    again = clients.requests(small.plan(clients, attempt=1), clients.model.initial)
    assert "upload" in node.answer("upload", again[0])
    assert NodeFolder(tmp_path / "node-0").log.participations(small.offer.run) == 1
    events.close()


def test_classes_are_not_learnt_as_quantities_nor_the_other_way_round() -> None:
    offer = make_offer()
    _check_kind(offer, quantities=False)
    _check_kind(replace(offer, num_classes=1), quantities=True)
    with pytest.raises(DataError, match="targets are quantities, and the run learns classes"):
        _check_kind(offer, quantities=True)
    with pytest.raises(DataError, match="targets are classes, and the run learns quantities"):
        _check_kind(replace(offer, num_classes=1), quantities=False)
