"""The run folder: what is written there survives a kill at any instant, and its owner alone can read it.

config.toml         complete, re-runnable
rounds.jsonl        one row per round
charges.jsonl       one row per charged round, written before anything of that round is released
checkpoint/         the state after some round, replaced atomically; saves.jsonl: what was saved when
model.safetensors   the weights at the end;  best.safetensors: at the best round
privacy.json, summary.json, figures.json, report.html
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from laconic.errors import RunFolderError
from laconic.files import private_folder, replace_file, sync_folder

STATE, BEST, STATEMENT = "checkpoint/state.safetensors", "best.safetensors", "privacy.json"
IDENTITY, FRONT_END = "identity.json", "front_end.safetensors"
_OWNER = 0o600
"""Cohorts stand in most files, and exact sums in the state of some runs: in a folder that is open to others, too, the
files are closed to them."""


class RunFolder:
    """One run's files. Opened by one process at a time."""

    keeps_models = True
    """Whether models are written; tables of many runs do without."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._lock: IO[str] | None = None
        self._streams: dict[str, IO[bytes]] = {}
        self._ends: dict[str, tuple[int, bytes]] = {}

    @property
    def exists(self) -> bool:
        return (self.path / "config.toml").exists()

    def make(self) -> None:
        """Make the folder alone, for files that belong to no run."""
        with self._explained("create"):
            private_folder(self.path)

    def open(self) -> None:
        """Make the folder if needed and lock it against a second process."""
        with self._explained("create"):
            private_folder(self.path / "checkpoint")
            self._lock = open(self.path / ".lock", "w", opener=_for_the_owner)  # noqa: SIM115 - held until close()
        try:
            import fcntl

            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # no advisory locks on this platform
            pass
        except OSError:
            self.close()
            raise RunFolderError(
                f"{self.path} is in use by another process: wait for it, or choose another ⟨out⟩"
            ) from None

    def close(self) -> None:
        for stream in self._streams.values():
            with contextlib.suppress(OSError):  # what could not be written was reported when it was tried
                stream.close()
        self._streams.clear()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def write(self, name: str, content: str | bytes) -> None:
        """Replace a file in one step: a reader sees the old content or the new one, never half."""
        data = content.encode() if isinstance(content, str) else content
        with self._explained("write"):
            replace_file(self.path / name, data, mode=_OWNER, sync_name=False)

    def append(self, name: str, row: dict[str, Any]) -> None:
        """Add one JSON row; it is with the operating system (safe from a kill) when this returns."""
        with self._explained("write"):
            if name not in self._streams:
                opened = open(self.path / name, "ab+", opener=_for_the_owner)  # noqa: SIM115 - kept open for the run
                self._streams[name] = opened
            stream, line = self._streams[name], json_text(row).encode()
            stream.write(line + b"\n")
            stream.flush()
            self._ends[name] = (stream.tell(), line)

    def sync(self) -> None:
        """Make the rows safe from a power failure too."""
        with self._explained("write"):
            for stream in self._streams.values():
                os.fsync(stream.fileno())

    def sync_names(self, below: str) -> None:
        """The same for the names of files in a folder: that one was replaced is then certain."""
        with self._explained("write"):
            sync_folder(self.path / below)

    def read(self, name: str) -> bytes | None:
        """The content of a file; None if there is none."""
        path = self.path / name
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise RunFolderError(
                f"cannot read {path}: {error.strerror or error}; restore the file from a copy, or start a new run"
            ) from None

    def lines(self, name: str) -> list[bytes]:
        """All complete lines; a last one cut short by a kill is left out."""
        return (self.read(name) or b"").split(b"\n")[:-1]

    def keep_lines(self, name: str, lines: list[bytes]) -> None:
        """Let the file hold these lines and nothing else, ready for more."""
        content = b"".join(line + b"\n" for line in lines)
        if name in self._streams:
            self._streams.pop(name).close()
        if (self.read(name) or b"") != content:
            self.write(name, content)
        self._ends[name] = (len(content), lines[-1] if lines else b"")

    def check_in_place(self, name: str) -> None:
        """Refuse to go on if the file is no longer the one that this process wrote: gone, replaced, shorter, longer."""
        size, line = self._ends[name]
        try:
            found = os.stat(self.path / name)
        except OSError:
            there = size == 0 and name not in self._streams
        else:
            there = found.st_size == size and self._is_ours(name, found, line)
        if not there:
            raise RunFolderError(
                f"{self.path / name} is not what this run wrote there (deleted, replaced or changed meanwhile): stopped"
                " before anything else is released; put it back and ⟨resume⟩, or start a new run with another ⟨out⟩"
            )

    def _is_ours(self, name: str, found: os.stat_result, line: bytes) -> bool:
        if name not in self._streams:
            return True
        stream = self._streams[name]
        ours = os.fstat(stream.fileno())
        if (found.st_dev, found.st_ino) != (ours.st_dev, ours.st_ino):
            return False
        stream.seek(-len(line) - 1, os.SEEK_END)
        return stream.read() == line + b"\n"

    def rows(self, name: str) -> list[dict[str, Any]]:
        """All complete rows; a last row cut short by a kill is left out."""
        found = []
        lines = (self.read(name) or b"").split(b"\n")
        for number, line in enumerate(lines, 1):
            if not line:
                continue
            try:
                found.append(parsed_row(line))
            except ValueError:
                if number < len(lines):
                    raise RunFolderError(
                        f"{self.path / name}, line {number}: damaged; restore the file or start anew"
                    ) from None
        return found

    @contextlib.contextmanager
    def _explained(self, action: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = "the disk is full" if error.errno == errno.ENOSPC else (error.strerror or str(error))
            raise RunFolderError(
                f"cannot {action} {error.filename or self.path}: {reason}; what was saved before is untouched"
                " (choose another ⟨out⟩, or free it and ⟨resume⟩)"
            ) from None


def _for_the_owner(path: str, flags: int) -> int:
    return os.open(path, flags, _OWNER)


def parsed_row(line: bytes) -> dict[str, Any]:
    """One row of a round; ValueError if it is not JSON, not text or not a row."""
    try:
        row = json.loads(line)
    except RecursionError:
        raise ValueError("nested without end") from None
    if not isinstance(row, dict) or not isinstance(row.get("round"), int):
        raise ValueError("not a row")
    return row


def json_text(value: Any, **options: Any) -> str:
    """JSON that every reader takes: what is not finite becomes null."""
    return json.dumps(_finite(value), allow_nan=False, ensure_ascii=False, **options)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if not isinstance(value, list | tuple) or set(map(type, value)) <= {int, str}:
        return value  # at once, as cohorts of many clients are
    return [_finite(item) for item in value]


def free_folder(parent: Path, stem: str) -> Path:
    """parent/stem, or parent/stem-2, -3 … whichever is free."""
    candidate, number = parent / stem, 1
    while candidate.exists():
        number += 1
        candidate = parent / f"{stem}-{number}"
    return candidate
