"""Keys sealed under a folder's wrapping key, and the file that holds the wrapping key.

Two levels. A random wrapping key W of 32 bytes seals every key of the folder. `wrapping.json` holds W, sealed under
scrypt(secret, salt). So another passphrase changes one small file, in one step, and a new key costs no scrypt.

Everything is sealed with ChaCha20-Poly1305 (RFC 8439), which notices any change, under a random nonce. What is sealed
is bound to its use: a run's key does not open as an identity. scrypt (RFC 7914) with N = 2^17, r = 8 takes 128 MiB and
about a second, for us once per process, for an attacker with each guess. PKCS#8 files as `cryptography`
50 writes them were not chosen: PBKDF2 with 2,048 iterations and without memory is cheap to guess at on a graphics card,
CBC notices no change, and each file would pay for its own derivation.
"""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from laconic.errors import ConfigError, RunFolderError
from laconic.guard.keys.secret import KEY_FILE, PASSPHRASE, Secret
from laconic.secagg.crypto import labels
from laconic.secagg.crypto.labels import labelled

FILE = "wrapping.json"
SCRYPT_N, SCRYPT_R, SCRYPT_P = 1 << 17, 8, 1
_LARGEST_N = 1 << 20  # a file that was tampered with cannot ask for more than 1 GiB
_KEY_BYTES, _SALT_BYTES, _NONCE_BYTES = 32, 16, 12
_WRAPPING, _SEALED = "laconic wrapping key 1", "laconic sealed key 1"


def new_wrapping_key() -> bytes:
    return secrets.token_bytes(_KEY_BYTES)


def write_wrapping(wrapping: bytes, secret: Secret) -> bytes:
    """The content of `wrapping.json`: the wrapping key, sealed under the secret."""
    head: dict[str, Any] = {
        "format": _WRAPPING,
        "opened_by": secret.kind,
        "scrypt": [SCRYPT_N, SCRYPT_R, SCRYPT_P],
        "salt": secrets.token_hex(_SALT_BYTES),
    }
    nonce = secrets.token_bytes(_NONCE_BYTES)
    sealed = ChaCha20Poly1305(_derived(secret, head)).encrypt(nonce, wrapping, _bound(head))
    return _written(head | {"nonce": nonce.hex(), "sealed": sealed.hex()})


def read_wrapping(data: bytes, secret: Secret, path: Path) -> bytes:
    """The wrapping key; `ConfigError` if the secret is the wrong one."""
    head = _parsed(data, _WRAPPING, path)
    kind = head.get("opened_by")
    if kind not in (KEY_FILE, PASSPHRASE):
        raise _damaged(path)
    if kind != secret.kind:
        option = "--key-file" if kind == KEY_FILE else "--passphrase-file"
        raise ConfigError(f"the keys of {path.parent} are opened by a {kind}, not by a {secret.kind}: give {option}")
    try:
        nonce, sealed = bytes.fromhex(head.pop("nonce")), bytes.fromhex(head.pop("sealed"))
        return ChaCha20Poly1305(_derived(secret, head)).decrypt(nonce, sealed, _bound(head))
    except InvalidTag:
        raise ConfigError(f"wrong {kind} for the keys of {path.parent} (or {path.name} is damaged)") from None
    except (KeyError, ValueError, TypeError):
        raise _damaged(path) from None


def seal(wrapping: bytes, key: bytes, use: str) -> bytes:
    """A private key as a file that only the wrapping key opens. Its public key stays readable, and is authenticated."""
    public = Ed25519PrivateKey.from_private_bytes(key).public_key().public_bytes_raw()
    head = {"format": _SEALED, "use": use, "public": public.hex()}
    nonce = secrets.token_bytes(_NONCE_BYTES)
    sealed = ChaCha20Poly1305(wrapping).encrypt(nonce, key, _bound(head))
    return _written(head | {"nonce": nonce.hex(), "sealed": sealed.hex()})


def open_sealed(wrapping: bytes, data: bytes, use: str, path: Path) -> bytes:
    """The private key in a sealed file, if it is one for this use."""
    head = _parsed(data, _SEALED, path)
    if head.get("use") != use:
        raise RunFolderError(f"{path} is sealed as another key than this: restore it")
    try:
        nonce, sealed = bytes.fromhex(head.pop("nonce")), bytes.fromhex(head.pop("sealed"))
        return ChaCha20Poly1305(wrapping).decrypt(nonce, sealed, _bound(head))
    except (InvalidTag, KeyError, ValueError, TypeError):
        raise _damaged(path) from None


def public_of_sealed(data: bytes, path: Path) -> str:
    """The public key that a sealed file states, in hexadecimal. It is proven only when the file is opened."""
    public = _parsed(data, _SEALED, path).get("public")
    if not isinstance(public, str) or len(public) != 2 * _KEY_BYTES:
        raise _damaged(path)
    return public


def is_sealed(data: bytes) -> bool:
    """Whether this is a sealed key; a bare one has 32 bytes."""
    return len(data) != _KEY_BYTES and data.startswith(b"{")


def _derived(secret: Secret, head: dict[str, Any]) -> bytes:
    n, r, p = head["scrypt"]
    if not (isinstance(n, int) and 2 <= n <= _LARGEST_N and r == SCRYPT_R and p == SCRYPT_P):
        raise ValueError
    return Scrypt(salt=bytes.fromhex(head["salt"]), length=_KEY_BYTES, n=n, r=r, p=p).derive(secret.material)


def _bound(head: dict[str, Any]) -> bytes:
    """All that stands beside the sealed bytes, authenticated with them."""
    return labelled(labels.AT_REST, json.dumps(head, sort_keys=True).encode())


def _written(content: dict[str, Any]) -> bytes:
    return (json.dumps(content, indent=1) + "\n").encode()


def _parsed(data: bytes, expected: str, path: Path) -> dict[str, Any]:
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        raise _damaged(path) from None
    if not isinstance(content, dict):
        raise _damaged(path)
    if content.get("format") != expected:
        raise RunFolderError(f"{path} is not of the format '{expected}': another version of laconic wrote it, or none")
    return content


def _damaged(path: Path) -> RunFolderError:
    return RunFolderError(f"{path} is damaged: restore it; without its key this name is lost")
