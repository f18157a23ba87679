"""What docs/federation.md says of folders that are copied, moved, restored and deleted, done as a person does it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from e2e_tools import call
from key_tools import cheap_scrypt, private_file
from node_tools import SIZES, Small

from laconic.errors import LaconicError
from laconic.federation.requests import REFUSED
from laconic.federation.server.remote_clients import RemoteClients
from laconic.guard.folder import NodeFolder
from laconic.guard.keys.secret import read_key_file
from laconic.guard.policy import Policy
from laconic.guard.withheld import WITHHELD

pytestmark = pytest.mark.usefixtures("cheap_scrypt")
__all__ = ["cheap_scrypt"]
COPIES = {
    "cp": ["cp -a {node} {copy}"],
    "rsync": ["rsync -a {node}/ {copy}/"],
    "tar": ["mkdir -m 700 {copy}", "tar -C {node} -cf {copy}.tar .", "tar -C {copy} -xf {copy}.tar"],
}


def typed(line: str, **names: object) -> None:
    """A command, as a person types it."""
    command = line.format(**names).split()
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed here")
    subprocess.run(command, check=True)


def uploads(small: Small, clients: RemoteClients, round: int) -> list[int]:
    """Who is in the sum of a round."""
    missing: list[int] = []
    clients.notice = lambda client, reason: missing.append(client)
    sent = clients.collect(small.plan(clients, round=round), clients.model.initial)
    assert sent.messages == len(SIZES) - len(missing)
    return [client for client in range(len(SIZES)) if client not in missing]


@pytest.mark.parametrize("way", COPIES)
def test_a_copy_answers_nothing_until_the_owner_says_that_the_node_has_moved(
    way: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = Small(tmp_path, max_dropouts=1)
    clients, node, copy = small.join(), tmp_path / "node-0", tmp_path / "copy"
    assert uploads(small, clients, 1) == [0, 1, 2]
    for line in COPIES[way]:
        typed(line, node=node, copy=copy)
    typed("mv {node} {lost}", node=node, lost=tmp_path / "lost")
    typed("mv {copy} {node}", copy=copy, node=node)
    small.restart(0)
    assert uploads(small, clients, 2) == [1, 2]
    assert small.courier.nodes[0].answer("ready", {"run": small.offer.run}) == {REFUSED: WITHHELD}
    assert "this folder is a copy" in call(capsys, "node", "status", node).out
    assert call(capsys, "keys", "moved", node, "--yes").code == 0
    assert uploads(small, clients, 3) == [0, 1, 2]
    assert NodeFolder(node).log.participations(small.offer.run) == 2


def test_a_folder_that_was_renamed_is_no_copy(tmp_path: Path) -> None:
    small = Small(tmp_path / "here")
    clients = small.join()
    assert uploads(small, clients, 1) == [0, 1, 2]
    typed("mv {here} {there}", here=tmp_path / "here", there=tmp_path / "there")
    small.path = tmp_path / "there"
    small.courier.nodes[:] = [small.node(number) for number in range(len(SIZES))]
    assert uploads(small, clients, 2) == [0, 1, 2]


@pytest.mark.parametrize("damage", ["rm {log}", "truncate -s 100 {log}", "sed -i 1d {log}"])
def test_a_log_that_was_deleted_or_shortened_stops_the_node(damage: str, tmp_path: Path) -> None:
    small = Small(tmp_path)
    clients = small.join()
    assert uploads(small, clients, 1) == [0, 1, 2]
    typed(damage, log=tmp_path / "node-0/log.jsonl")
    small.restart(0)
    request = clients.requests(small.plan(clients, round=2), clients.model.initial)[1]
    for kind in ("keys", "ready", "upload", "unmask"):  # a process that serves the node says that it cannot do that
        with pytest.raises(LaconicError, match="rows are missing"):
            small.node(0).answer(kind, request)


def test_the_folder_of_a_run_that_is_over_may_be_deleted_and_its_uploads_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = Policy(max_delta=1e-5, lifetime_participations=3, min_cohort=2)
    small = Small(tmp_path, policy, rounds=2)
    clients = small.join()
    assert [uploads(small, clients, round) for round in (1, 2)] == [[0, 1, 2]] * 2
    typed("rm -r {run}", run=tmp_path / "node-0" / small.offer.run.hex())
    assert "all runs  2 participations" in call(capsys, "node", "status", tmp_path / "node-0").out
    answer = small.courier.nodes[0].answer("ready", {"run": small.offer.run})
    assert "this node has not joined run" in str(answer[REFUSED])
    second = Small(tmp_path, policy, rounds=2)
    with pytest.raises(AssertionError, match=WITHHELD):  # four participations, and three are allowed
        second.join()
    assert Small(tmp_path, policy, rounds=1).join()


def test_what_was_set_back_unnoticed_is_treated_as_a_backup(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A copy that is written into the folder stands here for a snapshot of the disk, which brings back all times."""
    small = Small(tmp_path, rounds=5)
    clients, node = small.join(), tmp_path / "node-0"
    assert uploads(small, clients, 1) == [0, 1, 2]
    typed("cp -a {node} {copy}", node=node, copy=tmp_path / "copy")
    assert uploads(small, clients, 2) == [0, 1, 2]
    typed("cp -a {copy}/. {node}/", node=node, copy=tmp_path / "copy")
    NodeFolder(node).log._note()
    small.restart(0)
    assert NodeFolder(node).log.participations(small.offer.run) == 1, "it has forgotten a round"
    assert call(capsys, "keys", "backup", node, tmp_path / "node.tar").code == 0
    assert call(capsys, "keys", "restore", tmp_path / "node.tar", tmp_path / "new").code == 0
    new = NodeFolder(tmp_path / "new")
    assert new.log.participations(small.offer.run) == 5 + small.offer.spare_rounds
    assert new.attention is not None


def test_a_copy_from_before_is_opened_by_the_old_secret_and_the_folder_by_the_new_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = (private_file(tmp_path / name, bytes(32 * [number])) for number, name in enumerate(("old", "new")))
    node, copy = tmp_path / "node", tmp_path / "copy"
    assert call(capsys, "keys", "encrypt", node, "--key-file", old).code == 0
    typed("cp -a {node} {copy}", node=node, copy=copy)
    assert call(capsys, "keys", "passphrase", node, "--key-file", old, "--new-key-file", new).code == 0
    same = [NodeFolder(folder, read_key_file(file)).identity() for folder, file in ((copy, old), (node, new))]
    assert len({key.private_bytes_raw() for key in same}) == 1
    with pytest.raises(LaconicError, match="wrong key file"):
        NodeFolder(node, read_key_file(old)).identity()


@pytest.mark.parametrize("encrypted", [False, True])
def test_an_old_identity_can_be_put_back(encrypted: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node, secret = tmp_path / "node", private_file(tmp_path / "secret", bytes(range(32)))
    with_key = ("--key-file", secret) if encrypted else ()
    if encrypted:
        assert call(capsys, "keys", "encrypt", node, *with_key).code == 0
    before = NodeFolder(node, read_key_file(secret) if encrypted else None).public_identity()
    NodeFolder(node, read_key_file(secret) if encrypted else None).identity()
    before = NodeFolder(node).public_identity()
    assert call(capsys, "keys", "rotate", node, *with_key).code == 0
    assert NodeFolder(node).public_identity() != before
    typed("cp -a {node}/old-identities/{name}.key {node}/identity.key", node=node, name=before)
    folder = NodeFolder(node, read_key_file(secret) if encrypted else None)
    assert folder.public_identity() == before == folder.identity().public_key().public_bytes_raw().hex()
