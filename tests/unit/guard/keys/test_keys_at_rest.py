"""Private keys at rest: sealed where their owner wants it, bound to their use, and refused where others may read."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from key_tools import cheap_scrypt, private_file

from laconic.errors import ConfigError, LaconicError, RunFolderError
from laconic.guard.folder import NodeFolder
from laconic.guard.keys import wrapping
from laconic.guard.keys.change import change_secret, encrypt_keys, new_identity
from laconic.guard.keys.keyring import IDENTITY, Keyring, server_key
from laconic.guard.keys.original import accept_copy, is_copy, mark_original
from laconic.guard.keys.secret import Secret, found_secret, passphrase, read_key_file, read_passphrase_file

pytestmark = pytest.mark.usefixtures("cheap_scrypt")
__all__ = ["cheap_scrypt"]
RUN = bytes(range(16))
OLD, NEW = passphrase("correct horse battery"), Secret(kind="key file", value=bytes(range(32)))


def folder_with_keys(path: Path, secret: Secret | None = None) -> dict[str, bytes]:
    """A folder with an identity and a run's key, and what they are."""
    node = NodeFolder(path, secret)
    return {"identity": node.identity().private_bytes_raw(), "agreement": node.agreement(RUN).public}


def keys_in(path: Path, secret: Secret | None) -> dict[str, bytes]:
    node = NodeFolder(path, secret)
    return {"identity": node.identity().private_bytes_raw(), "agreement": node.agreement(RUN).public}


def test_encrypted_keys_are_the_same_keys_and_no_file_holds_them(tmp_path: Path) -> None:
    path = tmp_path / "node"
    known = folder_with_keys(path)
    assert encrypt_keys(path, OLD) == 2
    assert keys_in(path, OLD) == known
    secrets_of = [known["identity"], OLD.value, known["identity"].hex().encode()]
    for file in path.rglob("*"):
        if file.is_file():
            assert not any(secret in file.read_bytes() for secret in secrets_of), file
    assert encrypt_keys(path, OLD) == 0  # once more changes nothing


def test_a_search_for_keys_finds_bare_ones(tmp_path: Path) -> None:
    """Guards the test above against finding nothing."""
    known = folder_with_keys(tmp_path / "node")
    assert known["identity"] in (tmp_path / "node/identity.key").read_bytes()


def test_keys_made_in_an_encrypted_folder_are_encrypted_and_cost_one_derivation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "node"
    folder_with_keys(path)
    encrypt_keys(path, NEW)
    derivations: list[Any] = []
    real = wrapping._derived
    monkeypatch.setattr(wrapping, "_derived", lambda *given: derivations.append(given) or real(*given))
    node = NodeFolder(path, NEW)
    for number in range(20):
        node.agreement(bytes([number]) * 16)
        node.identity()
    assert len(derivations) == 1
    assert wrapping.is_sealed((path / ("07" * 16) / "agreement.key").read_bytes())


def test_the_cost_of_guessing_is_the_stated_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.undo()  # the real cost
    assert wrapping.SCRYPT_N * wrapping.SCRYPT_R * 128 == 1 << 27  # RFC 7914: N·r·128 bytes


@pytest.mark.parametrize(
    ("secret", "said"),
    [
        (passphrase("correct horse batterx"), "wrong passphrase for the keys of"),
        (NEW, "are opened by a passphrase, not by a key file: give --passphrase-file"),
        (None, "are encrypted: give --key-file FILE or --passphrase-file FILE"),
    ],
)
def test_a_wrong_secret_is_one_clear_line(secret: Secret | None, said: str, tmp_path: Path) -> None:
    folder_with_keys(tmp_path / "node")
    encrypt_keys(tmp_path / "node", OLD)
    with pytest.raises(ConfigError, match=said) as caught:
        NodeFolder(tmp_path / "node", secret).identity()
    assert "\n" not in str(caught.value)
    assert "horse" not in str(caught.value)


def test_neither_a_secret_nor_a_wrapping_key_shows_itself() -> None:
    assert "correct horse" not in repr(OLD)


def test_a_run_key_does_not_open_as_an_identity(tmp_path: Path) -> None:
    """Somebody who can write to the disk swaps sealed files."""
    path = tmp_path / "node"
    folder_with_keys(path)
    encrypt_keys(path, OLD)
    shutil.copy(path / RUN.hex() / "agreement.key", path / "identity.key")
    with pytest.raises(RunFolderError, match="sealed as another key"):
        NodeFolder(path, OLD).identity()
    sealed = json.loads((path / "identity.key").read_text()) | {"use": IDENTITY}
    (path / "identity.key").write_text(json.dumps(sealed))
    with pytest.raises(RunFolderError, match="damaged"):
        NodeFolder(path, OLD).identity()


def test_a_bare_key_among_encrypted_ones_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "node"
    folder_with_keys(path)
    encrypt_keys(path, OLD)
    private_file(path / "identity.key", bytes(32))
    with pytest.raises(RunFolderError, match="is not encrypted, as the other keys"):
        NodeFolder(path, OLD).identity()


def test_encryption_cannot_be_taken_away_unnoticed(tmp_path: Path) -> None:
    """Somebody who can write to the disk puts a folder with a key of theirs in its place."""
    path = tmp_path / "node"
    folder_with_keys(path)
    encrypt_keys(path, OLD)
    (path / wrapping.FILE).unlink()
    private_file(path / "identity.key", bytes(32))
    for use in (lambda node: node.identity(), lambda node: node.agreement(bytes(16)), lambda node: node.keys.check()):
        with pytest.raises(ConfigError, match="are not encrypted, but a passphrase is given"):
            use(NodeFolder(path, OLD))


@pytest.mark.parametrize("damage", [b"", b"{}", b"[1]", b'{"format": "x"}', b"\xff" * 90, b"{" * 5000])
def test_damaged_files_are_one_line(damage: bytes, tmp_path: Path) -> None:
    path = tmp_path / "node"
    folder_with_keys(path)
    encrypt_keys(path, OLD)
    for name in (wrapping.FILE, "identity.key"):
        kept = (path / name).read_bytes()
        (path / name).write_bytes(damage)
        with pytest.raises(LaconicError) as caught:
            NodeFolder(path, OLD).identity()
        assert "\n" not in str(caught.value)
        (path / name).write_bytes(kept)


def test_every_changed_byte_of_what_is_sealed_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "node"
    folder_with_keys(path)
    encrypt_keys(path, OLD)
    sealed = json.loads((path / "identity.key").read_text())
    for name in ("public", "nonce", "sealed"):
        digits = sealed[name]
        changed = sealed | {name: ("1" if digits[0] == "0" else "0") + digits[1:]}
        private_file(path / "identity.key", json.dumps(changed).encode())
        with pytest.raises(RunFolderError, match="damaged"):
            NodeFolder(path, OLD).identity()


def test_a_file_cannot_ask_for_more_memory_than_there_is(tmp_path: Path) -> None:
    path = tmp_path / "node"
    folder_with_keys(path)
    encrypt_keys(path, OLD)
    head = json.loads((path / wrapping.FILE).read_text()) | {"scrypt": [1 << 40, 8, 1]}
    (path / wrapping.FILE).write_text(json.dumps(head))
    with pytest.raises(RunFolderError, match="damaged"):
        NodeFolder(path, OLD).identity()


def test_another_secret_opens_the_same_keys_and_the_old_one_does_not(tmp_path: Path) -> None:
    path = tmp_path / "node"
    known = folder_with_keys(path)
    encrypt_keys(path, OLD)
    running = NodeFolder(path, OLD)
    running.identity()
    change_secret(path, OLD, NEW)
    assert keys_in(path, NEW) == known
    with pytest.raises(ConfigError):
        keys_in(path, OLD)
    assert running.identity().private_bytes_raw() == known["identity"]  # a node that runs goes on


def test_a_rotated_identity_is_new_and_the_old_one_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "node"
    known = folder_with_keys(path)
    encrypt_keys(path, OLD)
    before, now = new_identity(Keyring(path, OLD))
    node = NodeFolder(path, OLD)
    assert node.public_identity() == now == node.identity().public_key().public_bytes_raw().hex() != before
    aside = path / "old-identities" / f"{before}.key"
    assert Keyring(path, OLD).opened(aside.read_bytes(), IDENTITY, aside) == known["identity"]


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("what", ["encrypt", "change", "rotate"])
def test_killed_at_any_instant_every_key_is_readable(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before every system call that changes the disk, in turn. The old or the new secret opens everything."""
    real = {name: getattr(os, name) for name in ("open", "fsync", "replace")}
    instants, done = 0, False
    while not done:
        path = tmp_path / f"{what}-{instants}"
        known = folder_with_keys(path)
        if what != "encrypt":
            encrypt_keys(path, OLD)
        before = NodeFolder(path).public_identity()
        left = [instants]

        def one(name: str, left: list[int] = left) -> Any:
            def call(*given: Any) -> Any:
                left[0] -= 1
                if left[0] < 0:
                    raise Killed
                return real[name](*given)

            return call

        for name in real:
            monkeypatch.setattr(os, name, one(name))
        try:
            if what == "encrypt":
                encrypt_keys(path, OLD)
            elif what == "change":
                change_secret(path, OLD, NEW)
            else:
                new_identity(Keyring(path, OLD))
            done = True
        except Killed:
            pass
        for name, function in real.items():
            monkeypatch.setattr(os, name, function)
        if what == "encrypt":
            encrypt_keys(path, OLD)  # finishes what was begun
            assert keys_in(path, OLD) == known
        elif what == "change":
            assert any(readable(path, secret) == known for secret in (OLD, NEW))
        else:
            everything = [*(path / "old-identities").glob("*.key"), path / "identity.key"]
            kept = [Keyring(path, OLD).opened(file.read_bytes(), IDENTITY, file) for file in everything]
            assert known["identity"] in kept
            assert (NodeFolder(path).public_identity() == before) or done or len(kept) == 2
        instants += 1
    assert instants > 4


def readable(path: Path, secret: Secret) -> dict[str, bytes] | None:
    try:
        return keys_in(path, secret)
    except ConfigError:
        return None


def test_a_bare_key_that_a_kill_left_half_written_is_removed(tmp_path: Path) -> None:
    folder_with_keys(tmp_path / "node")
    private_file(tmp_path / "node/identity.key.new", bytes(32))
    encrypt_keys(tmp_path / "node", OLD)
    assert not (tmp_path / "node/identity.key.new").exists()


@pytest.mark.parametrize(
    ("name", "mode", "remedy"),
    [("", 0o750, "chmod 700"), ("identity.key", 0o640, "chmod 600"), ("identity.key", 0o604, "chmod 600")],
)
def test_what_others_may_read_is_refused_with_the_remedy(name: str, mode: int, remedy: str, tmp_path: Path) -> None:
    path = tmp_path / "a node"
    folder_with_keys(path)
    (path / name).chmod(mode)
    with pytest.raises(ConfigError, match=remedy) as caught:
        NodeFolder(path).keys.check()
    os.system(str(caught.value).partition(": ")[2])  # what it says is what helps
    NodeFolder(path).keys.check()


def test_a_key_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    for reader, content in ((read_key_file, bytes(32)), (read_passphrase_file, b"a long passphrase\n")):
        file = private_file(tmp_path / reader.__name__, content)
        assert reader(file).value in content
        file.chmod(0o644)
        with pytest.raises(ConfigError, match="chmod 600"):
            reader(file)


def test_credentials_of_systemd_are_guarded_by_an_access_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their mode is 0440, since the list shows as bits of the group. Elsewhere such a file is refused."""
    file = private_file(tmp_path / "laconic-key", bytes(range(40)))
    file.chmod(0o440)
    assert found_secret() is None
    with pytest.raises(ConfigError):
        read_key_file(file)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    found = found_secret()
    assert found is not None
    assert found.value == bytes(range(40))


@pytest.mark.parametrize(
    ("content", "option", "said"),
    [
        (b"short", "key", "has 5 bytes, and needs 32"),
        (b"", "key", "has 0 bytes"),
        (b"", "passphrase", "is empty"),
        (b"\n", "passphrase", "is empty"),
        (b"\xff" * 40, "passphrase", "is no text: did you mean --key-file"),
        (bytes(1 << 17), "key", "it is another file"),
    ],
)
def test_unusable_secrets_are_named(content: bytes, option: str, said: str, tmp_path: Path) -> None:
    file = private_file(tmp_path / "secret", content)
    with pytest.raises(ConfigError, match=said):
        read_key_file(file) if option == "key" else read_passphrase_file(file)


def test_a_secret_is_not_kept_beside_what_it_opens(tmp_path: Path) -> None:
    folder_with_keys(tmp_path / "node")
    inside = read_key_file(private_file(tmp_path / "node/secret", bytes(32)))
    with pytest.raises(ConfigError, match="keep it elsewhere"):
        encrypt_keys(tmp_path / "node", inside)


def test_a_short_passphrase_is_refused_for_new_keys(tmp_path: Path) -> None:
    folder_with_keys(tmp_path / "node")
    with pytest.raises(ConfigError, match="12 or more"):
        encrypt_keys(tmp_path / "node", passphrase("hospital"))


def test_the_servers_key_can_be_encrypted_too(tmp_path: Path) -> None:
    folder = NodeFolder(tmp_path / "server")
    name = folder.public_identity()
    encrypt_keys(folder.path, NEW)
    assert server_key(folder.path / "identity.key", NEW).public_key().public_bytes_raw().hex() == name
    with pytest.raises(ConfigError, match="are encrypted"):
        server_key(folder.path / "identity.key")


def test_a_copy_knows_that_it_is_one(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    mark_original(folder)
    mark_original(folder)
    assert not is_copy(folder)
    shutil.copytree(folder, tmp_path / "copy")
    assert is_copy(tmp_path / "copy")
    os.replace(folder, tmp_path / "renamed")
    assert not is_copy(tmp_path / "renamed")
    accept_copy(tmp_path / "copy")
    assert not is_copy(tmp_path / "copy")
