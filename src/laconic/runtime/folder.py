"""The run folder: what is written there survives a kill at any instant.

config.toml         complete, re-runnable
rounds.jsonl        one row per round
charges.jsonl       one row per charged round, written before anything of that round is released
checkpoint/         the state after some round, replaced atomically
model.safetensors   the weights at the end;  best.safetensors: at the best round
privacy.json, summary.json, report.html
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


class RunFolder:
    """One run's files. Opened by one process at a time."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._lock: IO[str] | None = None
        self._streams: dict[str, IO[str]] = {}

    @property
    def exists(self) -> bool:
        return (self.path / "config.toml").exists()

    def make(self) -> None:
        """Make the folder alone, for files that belong to no run."""
        with self._explained("create"):
            self.path.mkdir(parents=True, exist_ok=True)

    def open(self) -> None:
        """Make the folder if needed and lock it against a second process."""
        with self._explained("create"):
            (self.path / "checkpoint").mkdir(parents=True, exist_ok=True)
            self._lock = open(self.path / ".lock", "w")  # noqa: SIM115 - held until close()
        try:
            import fcntl

            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # no advisory locks on this platform
            pass
        except OSError:
            self.close()
            raise RunFolderError(
                f"{self.path} is in use by another process: wait for it, or choose another --out"
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
        target = self.path / name
        temporary = target.with_name(target.name + ".new")
        data = content.encode() if isinstance(content, str) else content
        with self._explained("write"):
            with open(temporary, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(temporary, target)

    def append(self, name: str, row: dict[str, Any]) -> None:
        """Add one JSON row; it is with the operating system (safe from a kill) when this returns."""
        with self._explained("write"):
            if name not in self._streams:
                self._streams[name] = open(self.path / name, "a")  # noqa: SIM115 - kept open for the run
            stream = self._streams[name]
            stream.write(json_text(row) + "\n")
            stream.flush()

    def sync(self) -> None:
        """Make the rows safe from a power failure too."""
        with self._explained("write"):
            for stream in self._streams.values():
                os.fsync(stream.fileno())

    def rows(self, name: str) -> list[dict[str, Any]]:
        """All complete rows; a last row cut short by a kill is left out."""
        path = self.path / name
        if not path.exists():
            return []
        found = []
        lines = path.read_bytes().split(b"\n")
        for number, line in enumerate(lines):
            if not line:
                continue
            try:
                row = json.loads(line)
                if not isinstance(row, dict) or "round" not in row:
                    raise ValueError
                found.append(row)
            except ValueError:  # not JSON, not text, or not a row
                if number < len(lines) - 1:
                    raise RunFolderError(
                        f"{path}, line {number + 1}: damaged; restore the file or start anew"
                    ) from None
        return found

    def torn(self, name: str) -> bool:
        """Whether the last row was cut short."""
        path = self.path / name
        return path.exists() and path.stat().st_size > 0 and not path.read_bytes().endswith(b"\n")

    def replace_rows(self, name: str, rows: list[dict[str, Any]]) -> None:
        if name in self._streams:
            self._streams.pop(name).close()
        self.write(name, "".join(json_text(row) + "\n" for row in rows))

    @contextlib.contextmanager
    def _explained(self, action: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = "the disk is full" if error.errno == errno.ENOSPC else (error.strerror or str(error))
            raise RunFolderError(
                f"cannot {action} {error.filename or self.path}: {reason}; what was saved before is untouched"
                " (choose another --out, or free it and --resume)"
            ) from None


def json_text(value: Any, **options: Any) -> str:
    """JSON that every reader takes: what is not finite becomes null."""
    return json.dumps(_finite(value), allow_nan=False, ensure_ascii=False, **options)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value


def free_folder(parent: Path, stem: str) -> Path:
    """parent/stem, or parent/stem-2, -3 … whichever is free."""
    candidate, number = parent / stem, 1
    while candidate.exists():
        number += 1
        candidate = parent / f"{stem}-{number}"
    return candidate
