"""Changes of a folder's keys: encrypt them, change what opens them, make a new identity.

Each is a sequence of files that are replaced one by one, in an order such that a kill at any instant leaves every key
readable, under the old secret or the new one. What was not finished is finished by the same command.
"""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from laconic.errors import ConfigError, RunFolderError
from laconic.guard.keys import wrapping
from laconic.guard.keys.files import read_file, replace_file
from laconic.guard.keys.keyring import IDENTITY, Keyring
from laconic.guard.keys.secret import Secret, check_elsewhere, check_strength

OLD = "old-identities"


def encrypt_keys(folder: Path, secret: Secret) -> int:
    """Seal every bare key below the folder; how many there were. The wrapping key is on the disk before any of them."""
    check_elsewhere(secret, folder)
    if not Keyring(folder).encrypted:
        check_strength(secret)
        replace_file(folder / wrapping.FILE, wrapping.write_wrapping(wrapping.new_wrapping_key(), secret))
    keys = Keyring(folder, secret)
    keys.wrapping()  # refuses a wrong secret before anything is sealed
    sealed = 0
    for path in sorted(folder.rglob("*.key")):
        data = read_file(path)
        if data is None or wrapping.is_sealed(data):
            continue
        if len(data) != 32:
            raise RunFolderError(f"{path} is damaged: restore it, or remove it if it is no key; then encrypt again")
        keys.keep(path, use_of(path, folder), data)
        sealed += 1
    for rest in folder.rglob("*.key.new"):  # of a kill while a bare key was written
        rest.unlink()
    return sealed


def change_secret(folder: Path, old: Secret, new: Secret) -> None:
    """Let another passphrase or key file open the folder's keys. One file is replaced, in one step."""
    keys = Keyring(folder, old)
    if not keys.encrypted:
        raise ConfigError(f"the keys of {folder} are not encrypted: laconic keys encrypt {folder}")
    check_elsewhere(new, folder)
    check_strength(new)
    if new.material == old.material:
        raise ConfigError(f"the new {new.kind} is the old one")
    replace_file(folder / wrapping.FILE, wrapping.write_wrapping(keys.wrapping(), new))


def new_identity(keys: Keyring) -> tuple[str, str]:
    """(the old public identity, the new one). The old key is kept aside before the new one takes its place."""
    path = keys.folder / "identity.key"
    if not path.exists():
        raise ConfigError(f"{keys.folder} has no identity.key: there is nothing to rotate")
    old = Ed25519PrivateKey.from_private_bytes(keys.kept(path, IDENTITY))
    before = old.public_key().public_bytes_raw().hex()
    keys.keep(keys.folder / OLD / f"{before}.key", IDENTITY, old.private_bytes_raw())
    new = Ed25519PrivateKey.generate()
    keys.keep(path, IDENTITY, new.private_bytes_raw())
    return before, new.public_key().public_bytes_raw().hex()


def use_of(path: Path, folder: Path) -> str:
    """What a key below the folder is for, by its place."""
    if path.name == "agreement.key":
        return f"agreement of run {path.parent.relative_to(folder)}"
    return IDENTITY
