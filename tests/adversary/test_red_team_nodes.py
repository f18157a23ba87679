"""What a red team did to nodes: state that was deleted or reused, and limits that held for one run only."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from adversary_knowledge import Watch
from adversary_world import SERVER, World, model
from e2e_tools import call

from laconic import schemes
from laconic.federation.node.kept import KeptWork
from laconic.federation.node.node import Node
from laconic.federation.offer import Offer, sign_offer
from laconic.federation.requests import REFUSED
from laconic.guard.guard import Guard
from laconic.guard.ledger import composed, gaussian_epsilon
from laconic.guard.limits import charged
from laconic.guard.transcript import JOINED

DELTA, UPLOADS = 1e-5, 6


@pytest.fixture
def watch() -> Iterator[Watch]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield Watch(patch)


def dear(world: World) -> Offer:
    """The world's offer: σ = 1, as the accountant counts it."""
    return world.offer


def cheap(world: World) -> Offer:
    """The same run, and uploads that are said to cost next to nothing."""
    scheme = schemes.fl_std_dp(clip_norm=0.5, noise_multiplier=10_000.0, local_lr=0.1, local_steps=1)
    return replace(world.offer, scheme=scheme)


def logged(world: World, client: int = 0) -> float:
    """ε against the servers over all runs, by the node's log."""
    return composed(charged(world.folder(client).log.rows()), DELTA)


def uploaded(world: World, count: int = UPLOADS) -> float:
    """So many rounds; what they cost every node in truth."""
    world.invite_all()
    for round in range(1, count + 1):
        assert world.whole_round(world.attempt(round=round)) == []
    release = world.offer.contract.release(1)
    return gaussian_epsilon(math.sqrt(count) / release.multiplier, DELTA)


def test_a_deleted_run_cannot_be_offered_anew_for_less(tmp_path: Path, watch: Watch) -> None:
    """The owner deletes the folder of a run that is over, as the manual allows. Its log keeps the run and its offer."""
    world = World(tmp_path)
    truth = uploaded(world)
    assert logged(world) == pytest.approx(truth, rel=1e-6)
    shutil.rmtree(tmp_path / "node-0" / world.offer.run.hex())
    assert "another offer of the same run" in world.invite(0, cheap(world))
    assert world.invite(0, dear(world)) == "", "the very same offer is no other one"
    assert logged(world) == pytest.approx(truth, rel=1e-6)


def test_uploads_keep_their_price_where_an_older_version_let_a_run_be_offered_twice(
    tmp_path: Path, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards the test above: without the first of the two fixes the log says the truth all the same."""
    world = World(tmp_path)
    truth = uploaded(world)
    monkeypatch.setattr(Guard, "_knows", lambda self, signed, contract: False)
    newest = [row for row in world.folder(0).log.rows(world.offer.run) if row["what"] == JOINED]
    assert len(newest) == 1
    assert world.invite(0, cheap(world)) == ""
    assert logged(world) == pytest.approx(truth, rel=1e-6)


def test_work_that_is_kept_belongs_to_one_offer(tmp_path: Path, watch: Watch) -> None:
    """Two offers of one run have two digests, so the noise of one never goes with the price of the other."""
    world, kept, began = World(tmp_path), KeptWork(4), list[str]()
    first, second = dear(world).digest, cheap(world).digest
    assert first != second
    for digest in (first, second, first):
        kept.of(digest, lambda digest=digest: began.append(digest.hex()) or SimpleNamespace())  # type: ignore[misc, arg-type, return-value]
    assert began == [first.hex(), second.hex()]


def test_a_node_names_its_kept_work_by_the_offer(tmp_path: Path, watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    world, names = World(tmp_path), list[bytes]()
    of = KeptWork.of

    def noted(self: KeptWork, name: bytes, make: Any) -> Any:
        names.append(name)
        return of(self, name, make)

    monkeypatch.setattr(KeptWork, "of", noted)
    kept = KeptWork(2)
    monkeypatch.setattr(
        world,
        "node",
        lambda client: Node(
            world.folder(client),
            world.policy,
            nonces=world.processes[client],
            kept=kept if client == 0 else None,
            model=lambda offer: model(),
            records=lambda offer: world.population.records(client),
        ),
    )
    world.invite_all()
    assert world.whole_round(world.attempt()) == []
    assert names == [world.offer.digest]


def test_the_folder_of_another_offer_is_not_gone_on_with(tmp_path: Path, watch: Watch) -> None:
    """Somebody puts another offer into the run's folder: it is not what the log says was joined."""
    world = World(tmp_path)
    world.invite_all()
    other = sign_offer(cheap(world), 0, SERVER)
    world.folder(0).keep(world.offer.run, "offer", other)
    assert world.ask_upload(world.attempt(), 0) != ""
    assert "not the one that the log says" in world.folder(0).log.rows()[-1]["detail"]


def test_limits_on_one_run_are_not_said_to_limit_all(
    tmp_path: Path, watch: Watch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After several runs within their limits the owner is told what nothing limits."""
    world = World(tmp_path)
    truth = uploaded(world, 2)
    policy = tmp_path / "policy.toml"
    policy.write_text("max_epsilon = 10.0\nmax_participant_epsilon = 10.0\nmax_delta = 1e-5\n")
    told = call(capsys, "node", "status", tmp_path / "node-0", "--policy", policy).out
    assert "in order" not in told
    assert "over all runs has no limit: set one of lifetime_participant_epsilon" in told
    assert call(capsys, "node", "status", tmp_path / "node-0", "--policy", policy, "--json").json["unlimited"]
    policy.write_text(policy.read_text() + f"lifetime_participant_epsilon = {2 * truth}\n")
    told = call(capsys, "node", "status", tmp_path / "node-0", "--policy", policy).out
    assert "no limit" not in told


def test_an_offer_of_another_shape_blocks_no_other_run(tmp_path: Path, watch: Watch) -> None:
    world = World(tmp_path)
    odd = replace(world.offer, run=b"another run, 16b", num_classes=2)
    assert world.invite(0, odd) == ""
    assert world.folder(0).attention is None
    world.invite_all()
    assert world.whole_round(world.attempt()) == []
    assert world.folder(0).attention is None and world.folder(0).bad_records is None


def test_a_node_refuses_what_it_cannot_read_and_never_what_it_cannot_train(tmp_path: Path, watch: Watch) -> None:
    """Weights of the wrong length are refused before the charge; weights that break training are not refused at all."""
    world = World(tmp_path)
    world.invite_all()
    request = world.request(world.attempt())
    assert REFUSED in world.send(0, "upload", request | {"weights": torch.zeros(3).numpy().tobytes()})
    assert world.folder(0).log.participations(world.offer.run) == 0
