"""A node's folder: its identity, its keys of every run, its log. What is written here survives restarts of the node.

identity.key       the node's Ed25519 key, made when first needed
attempts.json      which attempts it has used
log.jsonl          what it took part in
attention.txt      there if records failed: the node takes part in nothing until its owner has removed it
RUN/               for each run: the offer it accepted, its key, the roster, what it was told once; its newest weights, if
                   its owner wants them
lock               held while a message is answered
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from laconic.errors import RunFolderError
from laconic.federation.node.log import NodeLog
from laconic.secagg.crypto.run_key import RunKey


class NodeFolder:
    """The files of one node. Keys are readable by their owner alone."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser()
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise RunFolderError(f"cannot make the node's folder {self.path}: {error.strerror}") from None
        self.log = NodeLog(self.path / "log.jsonl")

    @property
    def attempts(self) -> Path:
        return self.path / "attempts.json"

    def identity(self) -> Ed25519PrivateKey:
        """The node's long-term key."""
        return Ed25519PrivateKey.from_private_bytes(kept_key(self.path / "identity.key"))

    def agreement(self, run: bytes) -> RunKey:
        """The node's key of one run."""
        return RunKey(kept_key(self._of(run, "agreement.key")))

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Wait until no other process answers for this node: limits over all runs are checked one at a time."""
        try:
            lock = open(self.path / "lock", "w")  # noqa: SIM115 - held until the message is answered
        except OSError as error:
            raise RunFolderError(f"cannot lock {self.path}: {error.strerror}") from None
        with lock:
            try:
                import fcntl

                fcntl.flock(lock, fcntl.LOCK_EX)
            except ImportError:  # no advisory locks on this platform
                pass
            yield

    @property
    def attention(self) -> str | None:
        """What the node's owner must look at before it takes part in anything."""
        text = _read(self.path / "attention.txt")
        return None if text is None else text.decode(errors="replace").strip()

    def call_for_attention(self, reason: str) -> None:
        _write(self.path / "attention.txt", (reason + "\n").encode())

    def keep(self, run: bytes, name: str, data: bytes) -> None:
        """Replace one of the run's files in one step."""
        _write(self._of(run, name), data)

    def kept(self, run: bytes, name: str) -> bytes | None:
        """What `keep` wrote, if anything."""
        return _read(self._of(run, name))

    def _of(self, run: bytes, name: str) -> Path:
        return self.path / run.hex() / name


def kept_key(path: Path) -> bytes:
    """The 32 bytes of the private key in a file; made there if there is none."""
    known = _read(path)
    if known is None:
        known = Ed25519PrivateKey.generate().private_bytes_raw()
        _write(path, known)
    if len(known) != 32:
        raise RunFolderError(f"{path} is damaged: restore it; without its key nobody can go on under this name")
    return known


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RunFolderError(f"cannot read {path}: {error.strerror}") from None


def _write(target: Path, data: bytes) -> None:
    """Replace a file that its owner alone may read, in one step; it is on the disk when this returns."""
    temporary = target.with_name(target.name + ".new")
    try:
        target.parent.mkdir(exist_ok=True, mode=0o700)
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, target)
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise RunFolderError(f"cannot write {target}: {error.strerror}; nothing was sent") from None
