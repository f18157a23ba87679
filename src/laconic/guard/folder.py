"""A node's folder: its identity, its keys of every run, its log. What is written here survives restarts of the node.

identity.key       the node's Ed25519 key, made when first needed
wrapping.json      there if the keys are encrypted: what opens them, with the passphrase or key file
old-identities/    identities that were rotated away
original           says that this folder is no copy of another one
log.jsonl          the transcript: what it promised, sent and refused
attention.txt      there if the folder was restored: the node takes part in nothing until its owner has removed it
records.txt        there if the records could not be used in a round, in which noise alone was sent
RUN/               for each run: the offer it accepted, its key, the roster, what it was told once; its newest
                   weights, if its owner wants them
lock               held while a message is answered
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from laconic.errors import RunFolderError
from laconic.files import private_folder
from laconic.guard.keys.files import read_file, replace_file
from laconic.guard.keys.keyring import IDENTITY, Keyring
from laconic.guard.keys.original import is_copy, mark_original
from laconic.guard.keys.permissions import check_private
from laconic.guard.keys.secret import Secret
from laconic.guard.transcript import Transcript, take_over
from laconic.secagg.crypto.keys import RunKey


class NodeFolder:
    """The files of one node, readable by their owner alone. `secret` opens the keys, if they are encrypted."""

    def __init__(self, path: str | Path, secret: Secret | None = None) -> None:
        self.path = Path(path).expanduser()
        try:
            private_folder(self.path)
        except OSError as error:
            raise RunFolderError(f"cannot make the node's folder {self.path}: {error.strerror}") from None
        check_private(self.path)
        mark_original(self.path)
        self.keys = Keyring(self.path, secret)
        self.log = Transcript(self.path / "log.jsonl")

    def identity(self) -> Ed25519PrivateKey:
        """The node's long-term key."""
        return Ed25519PrivateKey.from_private_bytes(self.keys.kept(self.path / "identity.key", IDENTITY))

    def public_identity(self) -> str:
        """The node's public key, in hexadecimal. Nothing has to be opened for it."""
        return self.keys.public(self.path / "identity.key", IDENTITY)

    def agreement(self, run: bytes) -> RunKey:
        """The node's key of one run."""
        return RunKey(self.keys.kept(self._of(run, "agreement.key"), f"agreement of run {run.hex()}"))

    @property
    def copied(self) -> str | None:
        """Why nothing is answered from this folder, if it is a copy or was restored: its log may lack uploads."""
        if not is_copy(self.path):
            return self.log.restored
        return (
            "this folder is a copy, or was restored from one, so uploads may be missing from its log: if nothing was"
            f" answered since the copy was made, laconic keys moved {self.path}; else restore a backup"
        )

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

    def take_over(self) -> None:
        """Read what an older version kept in files of its own."""
        take_over(self.log, self.path / "attempts.json")

    @property
    def attention(self) -> str | None:
        """What the node's owner must look at before it takes part in anything."""
        return self._text("attention.txt")

    def call_for_attention(self, reason: str) -> None:
        replace_file(self.path / "attention.txt", (reason + "\n").encode())

    @property
    def bad_records(self) -> str | None:
        """Why the records could not be used, as long as the owner has not removed `records.txt`."""
        return self._text("records.txt")

    def note_records(self, reason: str) -> None:
        """Tell the owner, if the disk has room: an error here would tell the server that the records failed."""
        with suppress(RunFolderError):
            replace_file(self.path / "records.txt", (reason + "\n").encode())

    def end_attention(self) -> None:
        (self.path / "attention.txt").unlink(missing_ok=True)

    def file(self, run: bytes, name: str) -> Path:
        """Where `keep` writes."""
        return self._of(run, name)

    def keep(self, run: bytes, name: str, data: bytes) -> None:
        """Replace one of the run's files in one step."""
        replace_file(self._of(run, name), data)

    def kept(self, run: bytes, name: str) -> bytes | None:
        """What `keep` wrote, if anything."""
        return read_file(self._of(run, name))

    def _text(self, name: str) -> str | None:
        text = read_file(self.path / name)
        return None if text is None else text.decode(errors="replace").strip()

    def _of(self, run: bytes, name: str) -> Path:
        return self.path / run.hex() / name
