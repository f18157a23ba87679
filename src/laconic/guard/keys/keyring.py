"""The private keys of one folder: read, made when first needed, sealed if the folder has a wrapping key."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from laconic.errors import ConfigError, RunFolderError
from laconic.guard.keys import wrapping
from laconic.guard.keys.files import read_file, replace_file
from laconic.guard.keys.permissions import check_private
from laconic.guard.keys.secret import HOW, Secret, check_elsewhere, found_secret

IDENTITY = "identity"


class Keyring:
    """Keys below `folder`. The secret is derived once; without one, that of the environment is used.

    A folder with `wrapping.json` holds sealed keys only. A bare key in it is refused: an attacker who can write to the
    disk, but not open the keys, could put one there. For the same reason a secret that is given must be needed.
    """

    def __init__(self, folder: Path, secret: Secret | None = None) -> None:
        self.folder, self._secret = folder, secret
        self._wrapping: tuple[bytes, bytes] | None = None

    @property
    def encrypted(self) -> bool:
        return (self.folder / wrapping.FILE).exists()

    def kept(self, path: Path, use: str) -> bytes:
        """The 32 bytes of the private key in a file; made there if there is none. `use` is what it is for."""
        known = read_file(path)
        if known is None:
            key = Ed25519PrivateKey.generate().private_bytes_raw()
            self.keep(path, use, key)
            return key
        check_private(path)
        return self.opened(known, use, path)

    def opened(self, data: bytes, use: str, path: Path) -> bytes:
        """The private key in the content of a file."""
        if wrapping.is_sealed(data):
            return wrapping.open_sealed(self.wrapping(), data, use, path)
        if self.encrypted:
            raise RunFolderError(
                f"{path} is not encrypted, as the other keys of {self.folder} are: if you know it,"
                f" laconic keys encrypt {self.folder} finishes that"
            )
        self._refuse_needless_secret()
        if len(data) != 32:
            raise RunFolderError(f"{path} is damaged: restore it; without its key this name is lost")
        return data

    def keep(self, path: Path, use: str, key: bytes) -> None:
        """Write a private key, sealed if the folder's keys are."""
        self._refuse_needless_secret()
        replace_file(path, wrapping.seal(self.wrapping(), key, use) if self.encrypted else key)

    def public(self, path: Path, use: str) -> str:
        """The public key of the private one in a file, in hexadecimal. A sealed file need not be opened for it."""
        known = read_file(path)
        if known is not None and wrapping.is_sealed(known):
            check_private(path)
            return wrapping.public_of_sealed(known, path)
        private = Ed25519PrivateKey.from_private_bytes(self.kept(path, use))
        return private.public_key().public_bytes_raw().hex()

    def wrapping(self) -> bytes:
        """The folder's wrapping key. scrypt runs when it is first needed, and when the file was replaced."""
        file = self.folder / wrapping.FILE
        data = read_file(file)
        if data is None:
            raise RunFolderError(f"{file} is missing, and the keys of {self.folder} are sealed: restore it")
        if self._wrapping is None or self._wrapping[0] != data:
            check_private(file)
            secret = self._secret or found_secret()
            if secret is None:
                raise ConfigError(f"the keys of {self.folder} are encrypted: {HOW}")
            check_elsewhere(secret, self.folder)
            try:
                self._wrapping = data, wrapping.read_wrapping(data, secret, file)
            except ConfigError:
                if self._wrapping is None:
                    raise
                # Another passphrase since this process has started; the wrapping key is the same one.
                self._wrapping = data, self._wrapping[1]
        return self._wrapping[1]

    def check(self) -> None:
        """Refuse a folder whose permissions are too wide or whose keys cannot be opened: before anything is served."""
        check_private(self.folder)
        self._refuse_needless_secret()
        if self.encrypted:
            self.wrapping()
        for path in sorted(self.folder.rglob("*.key")):
            check_private(path)

    def _refuse_needless_secret(self) -> None:
        if self._secret is not None and not self.encrypted:
            raise ConfigError(
                f"the keys of {self.folder} are not encrypted, but a {self._secret.kind} is given:"
                f" laconic keys encrypt {self.folder}, or leave it out"
            )


def server_key(path: Path, secret: Secret | None = None) -> Ed25519PrivateKey:
    """The server's key, with which it signs its offers; made if there is none. Its folder may hold a wrapping key."""
    key = Keyring(path.parent, secret).kept(path, IDENTITY)
    return Ed25519PrivateKey.from_private_bytes(key)
