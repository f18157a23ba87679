"""`laconic keys`: what an operator types, what is said, and that no secret is shown."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from e2e_tools import call
from key_tools import cheap_scrypt, private_file

from laconic.federation.node.lifetime import Cost, charges
from laconic.guard.folder import NodeFolder
from laconic.guard.keys.secret import read_key_file

pytestmark = pytest.mark.usefixtures("cheap_scrypt")
__all__ = ["cheap_scrypt"]
RUN = bytes(16)
WORDS = "staple battery horse correct"


def joined_node(path: Path, rounds: int = 5, uploads: int = 2, spare_rounds: int = 0) -> NodeFolder:
    """A node that has joined a run, and has taken part in some of its rounds."""
    node = NodeFolder(path)
    node.identity()
    cost = Cost(4.0, {"kind": "Poisson", "sampling_rate": 1.0}, 5, False, rounds, 0.0).row()
    node.agreement(RUN)
    node.log.add("joined", RUN, client=2, scheme="fl-std-dp", server="ab", spare_rounds=spare_rounds, cost=cost)
    for number in range(1, uploads + 1):
        node.log.add(
            "uploaded", RUN, round=number, attempt=0, participations=number, participant_epsilon=1.0, cost=cost
        )
    return node


def test_encrypt_change_and_rotate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = joined_node(tmp_path / "node", rounds=2)
    identity = node.public_identity()
    first = private_file(tmp_path / "first", bytes(range(32)))
    words = private_file(tmp_path / "words", WORDS.encode() + b"\n")
    done = call(capsys, "keys", "encrypt", tmp_path / "node", "--key-file", first)
    assert (done.code, done.out.splitlines()) == (
        0,
        ["2 keys encrypted; they are opened by your key file", f"identity  {identity}"],
    )
    assert call(capsys, "node", "status", tmp_path / "node").out.startswith(f"identity  {identity}")  # needs no secret
    done = call(capsys, "keys", "passphrase", tmp_path / "node", "--key-file", first, "--new-passphrase-file", words)
    assert done.code == 0
    assert WORDS not in done.out + done.err
    wrong = call(capsys, "keys", "rotate", tmp_path / "node", "--key-file", first)
    assert (wrong.code, wrong.err.count("\n")) == (2, 1)
    assert "are opened by a passphrase, not by a key file" in wrong.err
    done = call(capsys, "keys", "rotate", tmp_path / "node", "--passphrase-file", words)
    assert done.code == 0
    assert f"old identity  {identity}" in done.out
    assert (tmp_path / f"node/old-identities/{identity}.key").exists()


def test_an_identity_is_not_rotated_while_runs_may_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    joined_node(tmp_path / "node")
    refused = call(capsys, "keys", "rotate", tmp_path / "node")
    assert refused.code == 2
    assert "00000000… (round 2 of 5); wait, or give --leave-runs" in refused.err
    assert call(capsys, "keys", "rotate", tmp_path / "node", "--leave-runs").code == 0


def test_a_new_folder_is_encrypted_from_its_first_key_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = private_file(tmp_path / "secret", bytes(range(40)))
    monkeypatch.setenv("LACONIC_KEY_FILE", str(file))
    assert call(capsys, "keys", "encrypt", tmp_path / "new").code == 0
    assert (tmp_path / "new/identity.key").read_bytes().startswith(b"{")
    assert NodeFolder(tmp_path / "new", read_key_file(file)).identity()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("encrypt {}/node", "nothing says by what the keys are to be opened: give --key-file FILE"),
        ("encrypt {}/node --key-file {}/none", "does not exist"),
        ("encrypt {}/node --key-file {}", "is a folder"),
        ("encrypt {}/node --key-file {}/wide", "chmod 600"),
        ("encrypt {}/node --key-file {}/good --passphrase-file {}/good", "not both"),
        ("passphrase {}/none", "does not exist"),
        ("passphrase {}/node --key-file {}/good --new-key-file {}/good", "are not encrypted"),
        ("passphrase {}/node --key-file {}/good", "give --new-key-file or --new-passphrase-file"),
        ("passphrase {}/node", "nothing opens the keys of"),
        ("rotate {}/empty", "there is nothing to rotate"),
        ("backup {}/none {}/b", "does not exist"),
        ("backup {}/node {}/node/b.tar", "keep it elsewhere"),
        ("restore {}/good {}/new", "no backup of a node, or damaged"),
        ("restore {}/none {}/new", "does not exist"),
        ("encrpt {}/node", "No such command 'encrpt'"),
    ],
)
def test_mistakes_are_one_line(line: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    joined_node(tmp_path / "node")
    (tmp_path / "empty").mkdir(mode=0o700)
    private_file(tmp_path / "good", bytes(range(32)))
    private_file(tmp_path / "wide", bytes(range(32))).chmod(0o644)
    ended = call(capsys, "keys", *(word.replace("{}", str(tmp_path)) for word in line.split()))
    assert ended.code in (2, 5)
    assert said in ended.err
    assert ended.err.count("\n") == 1


def test_a_copy_answers_nothing_until_its_owner_says_it_is_the_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    joined_node(tmp_path / "node")
    shutil.copytree(tmp_path / "node", tmp_path / "copy")
    assert "this folder is a copy" in call(capsys, "node", "status", tmp_path / "copy").out
    assert call(capsys, "keys", "moved", tmp_path / "node", "--yes").out.endswith("nothing to do\n")
    assert "give --yes" in call(capsys, "keys", "moved", tmp_path / "copy").err
    assert call(capsys, "keys", "backup", tmp_path / "copy", tmp_path / "b").code == 2
    assert call(capsys, "keys", "moved", tmp_path / "copy", "--yes").code == 0
    assert "attention" not in call(capsys, "node", "status", tmp_path / "copy").out


def test_a_restored_node_counts_what_it_cannot_know_and_has_no_key_of_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    identity = joined_node(tmp_path / "node").public_identity()
    made = call(capsys, "keys", "backup", tmp_path / "node", tmp_path / "node.tar")
    assert made.code == 0
    assert "not encrypted, so keep it" in made.out
    assert (tmp_path / "node.tar").stat().st_mode & 0o077 == 0
    done = call(capsys, "keys", "restore", tmp_path / "node.tar", tmp_path / "again")
    assert "3 rounds since are counted as taken part in" in done.out
    again = NodeFolder(tmp_path / "again")
    assert again.public_identity() == identity
    assert again.log.participations(RUN) == 5
    assert again.log.unfinished() == {}
    assert again.attention is not None
    assert again.attention.startswith("restored from a backup whose log ends at 20")
    assert not list((tmp_path / "again").rglob("agreement.key"))
    assert "all runs  5 participations" in call(capsys, "node", "status", tmp_path / "again").out
    refused = call(capsys, "keys", "restore", tmp_path / "node.tar", tmp_path / "again")
    assert "is not empty: restore to a new folder" in refused.err


def test_a_backup_is_not_written_to_a_file_that_somebody_else_has_put_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a folder of many users they would have it open already, and read the identity."""
    joined_node(tmp_path / "node")
    theirs = tmp_path / "node.tar.new"
    theirs.touch(0o666)
    with open(theirs, "rb") as stream:
        assert call(capsys, "keys", "backup", tmp_path / "node", tmp_path / "node.tar").code == 0
        assert stream.read() == b""
    assert (tmp_path / "node.tar").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(("uploads", "repeated", "entered"), [(2, 0, 5), (5, 0, 2), (5, 1, 1), (5, 2, 0)])
def test_spare_rounds_count_as_taken_part_in_too(
    uploads: int, repeated: int, entered: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A server may repeat a round after the backup, also when all rounds were over: 5 rounds and 2 spare ones."""
    node = joined_node(tmp_path / "node", uploads=uploads, spare_rounds=2)
    cost = node.log.rows()[0]["cost"]
    for attempt in range(1, repeated + 1):
        node.log.add("uploaded", RUN, round=5, attempt=attempt, participations=5 + attempt, cost=cost)
    call(capsys, "keys", "backup", tmp_path / "node", tmp_path / "node.tar")
    done = call(capsys, "keys", "restore", tmp_path / "node.tar", tmp_path / "again")
    assert f"{entered} rounds since are counted" in done.out
    uploaded = NodeFolder(tmp_path / "again").log.uploads(RUN)
    assert len(set(uploaded)) == len(uploaded) == 7
    assert charges(uploaded) == 7


def test_a_node_that_was_stopped_is_restored_as_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    joined_node(tmp_path / "node")
    call(capsys, "keys", "backup", tmp_path / "node", tmp_path / "node.tar")
    call(capsys, "keys", "restore", tmp_path / "node.tar", tmp_path / "again", "--nothing-since")
    again = NodeFolder(tmp_path / "again")
    assert (again.attention, again.log.participations(RUN)) == (None, 2)
