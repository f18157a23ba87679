"""What opens a folder's keys: a passphrase or a key file. It is never part of a command line or of a log.

It is found in this order: what the caller names, the environment (`LACONIC_KEY_FILE` or `LACONIC_PASSPHRASE_FILE`, both
names of files), the credentials that systemd gave the service (`laconic-key` or `laconic-passphrase`).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path

from laconic.errors import ConfigError
from laconic.guard.keys.permissions import CREDENTIALS, check_private

KEY_FILE, PASSPHRASE = "key file", "passphrase"
KEY_FILE_VARIABLE, PASSPHRASE_VARIABLE = "LACONIC_KEY_FILE", "LACONIC_PASSPHRASE_FILE"
_LEAST_BYTES, _LEAST_CHARACTERS = 32, 12
_LARGEST = 1 << 16
HOW = (
    f"give --key-file FILE or --passphrase-file FILE, set {KEY_FILE_VARIABLE} or {PASSPHRASE_VARIABLE} to the file's"
    " name, or use systemd's LoadCredential=laconic-key:FILE"
)


@dataclass(frozen=True, kw_only=True)
class Secret:
    """A passphrase, or the bytes of a key file. `file` is where it was read, if it was."""

    kind: str
    value: bytes = field(repr=False)
    file: Path | None = None

    @property
    def material(self) -> bytes:
        """What keys are derived from: a passphrase and a key file of the same bytes are two secrets."""
        return self.kind.encode() + b"\0" + self.value


def read_key_file(path: Path) -> Secret:
    """The secret in a key file: all its bytes, at least 32 of them."""
    value = _content(path, "key file")
    if len(value) < _LEAST_BYTES:
        raise ConfigError(
            f"the key file {path} has {len(value)} bytes, and needs {_LEAST_BYTES} random ones:"
            f" head -c {_LEAST_BYTES} /dev/urandom > FILE"
        )
    return Secret(kind=KEY_FILE, value=value, file=path)


def read_passphrase_file(path: Path) -> Secret:
    """The secret in a passphrase file: its first line."""
    return replace(passphrase(_text(path)), file=path)


def passphrase(text: str) -> Secret:
    """The secret that a passphrase is."""
    if not text:
        raise ConfigError("the passphrase is empty")
    return Secret(kind=PASSPHRASE, value=text.encode())


def check_strength(secret: Secret) -> None:
    """Refuse a new passphrase that is too short. Old ones are taken as they are."""
    length = len(secret.value.decode(errors="replace"))
    if secret.kind == PASSPHRASE and length < _LEAST_CHARACTERS:
        raise ConfigError(
            f"a passphrase of {length} characters: take {_LEAST_CHARACTERS} or more, such as six words drawn at random"
        )


def check_elsewhere(secret: Secret, folder: Path) -> None:
    """Refuse a secret that lies in the folder that it protects: every copy of the folder would open itself."""
    if secret.file is not None and secret.file.resolve().is_relative_to(folder.resolve()):
        raise ConfigError(f"{secret.file} lies in {folder}, whose keys it opens: keep it elsewhere")


def found_secret(key_file: Path | None = None, passphrase_file: Path | None = None) -> Secret | None:
    """The secret that was named, or that the environment has; None if there is none."""
    if key_file is not None and passphrase_file is not None:
        raise ConfigError("give ⟨key-file⟩ or ⟨passphrase-file⟩, not both")
    if key_file is not None:
        return read_key_file(key_file)
    if passphrase_file is not None:
        return read_passphrase_file(passphrase_file)
    named = {name: os.environ.get(name) for name in (KEY_FILE_VARIABLE, PASSPHRASE_VARIABLE)}
    if all(named.values()):
        raise ConfigError(f"{KEY_FILE_VARIABLE} and {PASSPHRASE_VARIABLE} are both set: unset one")
    if path := named[KEY_FILE_VARIABLE]:
        return read_key_file(Path(path).expanduser())
    if path := named[PASSPHRASE_VARIABLE]:
        return read_passphrase_file(Path(path).expanduser())
    folder = os.environ.get(CREDENTIALS)
    if folder and (file := Path(folder) / "laconic-key").exists():
        return read_key_file(file)
    if folder and (file := Path(folder) / "laconic-passphrase").exists():
        return read_passphrase_file(file)
    return None


def _content(path: Path, what: str) -> bytes:
    if path.is_dir():
        raise ConfigError(f"the {what} {path} is a folder")
    if not path.exists():
        raise ConfigError(f"the {what} {path} does not exist")
    check_private(path)
    try:
        with open(path, "rb") as stream:
            value = stream.read(_LARGEST + 1)
    except OSError as error:
        raise ConfigError(f"cannot read the {what} {path}: {error.strerror}") from None
    if len(value) > _LARGEST:
        raise ConfigError(f"the {what} {path} has more than {_LARGEST:,} bytes: it is another file")
    return value


def _text(path: Path) -> str:
    try:
        lines = _content(path, "passphrase file").decode().splitlines()
    except UnicodeDecodeError:
        raise ConfigError(f"the passphrase file {path} is no text: did you mean ⟨key-file⟩?") from None
    if not lines or not lines[0]:
        raise ConfigError(f"the passphrase file {path} is empty: its first line is the passphrase")
    return lines[0]
