"""Who asks → what the owner declared → what it costs → charged on disk → only then the records.

Until something is charged, a node's answers are the same, byte for byte, whatever its records are. Afterwards all that
differs is noise: an upload has the same length, and no refusal depends on a record.
"""

from __future__ import annotations

import itertools
import os
import secrets
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from adversary_world import SERVER, Attempt, World, make_offer, model

from laconic.clients import wire
from laconic.data.population import Records
from laconic.errors import RunFolderError
from laconic.federation.node.node import Node
from laconic.federation.node.training import NodeWork
from laconic.federation.offer import Offer, sign_offer
from laconic.federation.requests import REFUSED, Fields
from laconic.guard import folder
from laconic.guard.keys import keyring
from laconic.guard.transcript import UPLOADED
from laconic.guard.withheld import WITHHELD
from laconic.packing import FLOAT32
from laconic.privacy.accounting.budget import Budget

GOOD = Records(torch.randn(5, 6, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 0, 1]))
RECORDS: dict[str, Records | None] = {
    "plain": GOOD,
    "others": Records(torch.randn(2_317, 6, generator=torch.Generator().manual_seed(1)), torch.arange(2_317) % 3),
    "a label that is too large": Records(GOOD.inputs, torch.tensor([0, 1, 7, 0, 1])),
    "a shape that does not fit": Records(torch.zeros(5, 4), GOOD.targets),
    "no numbers": Records(GOOD.inputs * float("nan"), GOOD.targets),
    "none at all": Records(GOOD.inputs[:0], GOOD.targets[:0]),
    "a file that cannot be read": None,
}


@pytest.fixture(autouse=True)
def entropy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The same nonces and run keys in every world."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    _repeat(monkeypatch)
    yield


def _repeat(patch: pytest.MonkeyPatch) -> None:
    numbers = itertools.count()
    patch.setattr(secrets, "token_bytes", lambda size: next(numbers).to_bytes(size, "little"))
    made = SimpleNamespace(private_bytes_raw=lambda: next(numbers).to_bytes(32, "little"))
    patch.setattr(keyring, "Ed25519PrivateKey", SimpleNamespace(generate=lambda: made))


def run_offer(number: int, **changes: Any) -> Offer:
    return replace(make_offer(6, dropouts=1, colluders=1), run=bytes([number]) * 16, **changes)


class Watched(World):
    """A world in which node 0 has given records, and says when it reads them."""

    def __init__(self, path: Path, records: Records | None, **policy: Any) -> None:
        super().__init__(path, **policy)
        self.records, self.read, self.answers = records, False, list[Fields]()
        agreement = path / "node-0" / self.offer.run.hex() / "agreement.key"
        agreement.parent.mkdir(mode=0o700)
        agreement.write_bytes(b"key of the run".ljust(32, b"."))
        agreement.chmod(0o600)

    def node(self, client: int) -> Node:
        if client:
            return super().node(client)
        return Node(
            self.folder(0),
            self.policy,
            nonces=self.processes[0],
            model=lambda offer: model(),
            records=lambda offer: self._records(),
        )

    def _records(self) -> Records:
        self.read = True
        charged = [row for row in self.folder(0).log.rows() if row["what"] == UPLOADED]
        assert charged, "records are read, and nothing is charged yet"
        if self.records is None:
            raise OSError("no such file")
        return self.records

    def send(self, client: int, kind: str, fields: Fields) -> Fields:
        answer = super().send(client, kind, fields)
        if client == 0:
            self.answers.append(dict(answer))
        return answer


def pry(world: Watched) -> None:
    """All that a server may try before it pays: offers of every kind, and rounds that are not well formed."""
    for number, change in enumerate(
        (
            *({"budget": Budget(delta=delta)} for delta in (0.1, 1 / 2_317, 1 / 5, 1e-5)),
            *({"num_classes": classes} for classes in (2, 3, 7, 8, 100)),
            *({"input_shape": shape} for shape in ((6,), (4,), (2, 3))),
            {"rounds": 10_000},
        )
    ):
        world.send(0, "keys", {"offer": sign_offer(run_offer(100 + number, **change), 0, SERVER)})
    world.invite_all()
    attempt = world.attempt()
    good = world.request(attempt)
    for bent in (
        {"weights": b""},
        {"weights": bytes(50)},
        {"weights": good["weights"][:-4]},  # type: ignore[index]
        {"plan": b"none"},
        {"round": 2},
        {"attempt": 9},
        {"roster": b"none"},
    ):
        world.send(0, "upload", good | bent)
    world.send(0, "consent", {"run": world.offer.run, "survivors": b"all"})
    world.send(0, "unmask", {"run": world.offer.run, "request": b"all"})


@pytest.mark.parametrize("records", RECORDS)
def test_answers_before_a_charge_are_the_same_for_any_records(records: str, tmp_path: Path) -> None:
    world = Watched(tmp_path / "any", RECORDS[records])
    pry(world)
    assert not world.read
    assert not [row for row in world.folder(0).log.rows() if row["what"] == UPLOADED]
    with pytest.MonkeyPatch.context() as patch:
        _repeat(patch)
        plain = Watched(tmp_path / "plain", GOOD)
        pry(plain)
    assert world.answers == plain.answers
    assert sum(REFUSED in answer for answer in world.answers) >= 10


@pytest.mark.parametrize("records", RECORDS)
def test_an_upload_shows_nothing_of_records_that_cannot_be_used(records: str, tmp_path: Path) -> None:
    """The sum is opened, and the node goes on: what it sends looks like any other code."""
    world = Watched(tmp_path, RECORDS[records])
    world.invite_all()
    lengths = []
    for round in (1, 2):
        attempt = world.attempt(round=round)
        assert world.whole_round(attempt) == []
        lengths.append(len(attempt.uploads[0]))
        assert lengths[-1] == len(attempt.uploads[1])
    assert len(set(lengths)) == 1
    told = world.folder(0).bad_records
    assert (told is None) == (records in ("plain", "others")), "the owner is told, and nobody else"
    assert world.invite(0, run_offer(9)) == "", "and other runs go on"


@pytest.mark.parametrize(
    "vector",
    [torch.zeros(3), torch.zeros(2, 9), torch.zeros(21, dtype=torch.complex64)],
    ids=["short", "square", "complex"],
)
def test_a_vector_that_is_none_leaves_as_noise(
    vector: torch.Tensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That training could have it refused would be a message of as many bits as a shape has."""
    world = Watched(tmp_path, GOOD)
    world.invite_all()
    monkeypatch.setattr(NodeWork, "vector", lambda self, plan, weights: vector)
    attempt = world.attempt()
    assert world.ask_upload(attempt, 0) == ""
    assert world.folder(0).bad_records is not None


def test_a_full_disk_does_not_tell_that_the_records_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = Watched(tmp_path, None)
    world.invite_all()
    replace_file = folder.replace_file

    def full(target: Path, data: bytes) -> None:
        if target.name == "records.txt":
            raise RunFolderError("No space left on device")
        replace_file(target, data)

    monkeypatch.setattr(folder, "replace_file", full)
    assert world.whole_round(world.attempt()) == []
    assert world.read and world.folder(0).bad_records is None


def test_hostile_weights_are_trained_or_replaced_by_noise_and_never_refused(tmp_path: Path) -> None:
    """Weights that single out a record by making its training fail would be a question about it."""
    world = Watched(tmp_path, GOOD)
    world.invite_all()
    size = world.offer.size
    for round, weights in enumerate((torch.full((size,), float("nan")), torch.full((size,), 3e38)), start=1):
        attempt: Attempt = world.attempt(round=round)
        message = wire.Message("weights", round, 0, 0, 0.0, world.offer.scheme.fingerprint, weights)
        answer = world.send(0, "upload", world.request(attempt) | {"weights": wire.encode(message, FLOAT32)})
        assert REFUSED not in answer


def test_refusals_for_what_was_spent_are_counted_for_each_server(tmp_path: Path) -> None:
    """A server that tries out offers to learn what others were given is told three times, and then nothing."""
    world = World(tmp_path, lifetime_participations=20, max_delta=1e-5)
    world.invite_all()
    for round in range(1, 6):
        assert world.whole_round(world.attempt(round=round)) == []
    told = [world.invite(0, run_offer(50 + rounds, rounds=rounds)) for rounds in (20, 19, 18, 17, 1, 2)]
    assert told == [WITHHELD] * 6
    details = [row["detail"] for row in world.folder(0).log.rows() if row["what"] == "refused"]
    assert ["participations would be" in detail for detail in details] == [True] * 3 + [False] * 3
    assert "max_past_refusals 3" in details[-1]
    # Runs that were joined before go on.
    assert world.whole_round(world.attempt(round=6)) == []
    world.policy = replace(world.policy, max_past_refusals=100)
    assert world.invite(0, run_offer(61, rounds=1)) == ""


@pytest.mark.parametrize("limit", ["lifetime_epsilon", "lifetime_participant_epsilon"])
def test_an_offer_that_was_refused_for_what_was_spent_is_refused_again(limit: str, tmp_path: Path) -> None:
    world = World(tmp_path, max_delta=1e-5, **{limit: 1.0})
    assert [world.invite(0, run_offer(70, rounds=20)) for _ in range(2)] == [WITHHELD] * 2
    assert sum("past" in row for row in world.folder(0).log.rows()) == 2


def test_offers_that_were_accepted_before_tell_nothing_of_what_was_spent(tmp_path: Path) -> None:
    """A ladder of offers, accepted while there was room for each, would tell at any time how much is left."""
    world = World(tmp_path, lifetime_participations=20, max_delta=1e-5)
    ladder = [run_offer(50 + rounds, rounds=rounds) for rounds in range(1, 20)]
    assert [world.invite(0, offer) for offer in ladder] == [""] * len(ladder)
    world.invite_all()
    for round in range(1, 6):
        assert world.whole_round(world.attempt(round=round)) == []
    before = len(world.folder(0).log.rows())
    for _ in range(3):
        assert [world.invite(0, offer) for offer in ladder] == [""] * len(ladder)
    assert len(world.folder(0).log.rows()) == before


def test_uploads_that_are_refused_for_what_was_spent_are_counted_too(tmp_path: Path) -> None:
    world = World(tmp_path, lifetime_participations=2, max_delta=1e-5)
    world.policy = replace(world.policy, lifetime_participations=20)
    offers = [run_offer(50 + number, rounds=5) for number in range(8)]
    for offer in offers:
        world.invite_all(offer)
    world.policy = replace(world.policy, lifetime_participations=2)
    for round in (1, 2):
        assert world.whole_round(world.attempt(world.told(offers[0]), round=round)) == []
    told = [world.ask_upload(world.attempt(world.told(offer)), 0) for offer in offers[1:]]
    assert told == [WITHHELD] * 7
    rows = world.folder(0).log.rows()
    assert sum("past" in row for row in rows) == 3
    world.policy = replace(world.policy, lifetime_participations=3)
    assert world.ask_upload(world.attempt(world.told(offers[1])), 0) == WITHHELD, "whether there is room is not told"
    world.policy = replace(world.policy, max_past_refusals=4)
    assert world.ask_upload(world.attempt(world.told(offers[1])), 0) == ""


def test_a_declared_shape_is_judged_without_the_records(tmp_path: Path) -> None:
    world = Watched(tmp_path, GOOD, classes=3, record_shape=(6,))
    assert "7 classes, and the policy declares 3" in world.invite(0, run_offer(2, num_classes=7))
    assert "records of 4 values, and the policy declares 6" in world.invite(0, run_offer(3, input_shape=(4,)))
    assert not world.read
    world.invite_all()


def test_joins_and_long_offers_fill_no_disk(tmp_path: Path) -> None:
    """Sixty joins of a megabyte each took 180 MB. An offer is short now, and a day has so many joins."""
    world = World(tmp_path)
    long = run_offer(2, model_options={f"option_{n}": ["x" * 200] * 200 for n in range(20)})
    assert "too long" in world.invite(0, long)
    answers = [world.invite(0, replace(world.offer, run=n.to_bytes(16, "little"))) for n in range(1, 90)]
    assert answers[:64] == [""] * 64
    assert set(answers[64:]) == {WITHHELD}
    folder = tmp_path / "node-0"
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < 2_000_000
