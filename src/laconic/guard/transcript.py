"""The node's own log: what it took part in, what it refused, and the ε that this has cost so far.

One JSON row per line, synced to disk before the node answers. So whatever a server says later, the node knows at least
as much. A last row that a kill cut short is dropped: what it says was never sent. How long the log was is kept beside
it, so rows that went missing are noticed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from laconic.errors import RunFolderError

JOINED, UPLOADED, CONSENTED, REVEALED, REFUSED = "joined", "uploaded", "consented", "revealed", "refused"
MOST_REFUSALS = 200
"""In a row. Whoever reaches the node's socket can have it refuse as often as they like, and the log is kept forever."""


class NodeLog:
    """The file `log.jsonl` of a node."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    def add(self, what: str, run: bytes, **values: Any) -> None:
        """Write a row down; it is on the disk when this returns."""
        row = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "what": what, "run": run.hex()} | values
        try:
            self._check_length()
            self._mend()
            with open(self._path, "a", encoding="utf-8", errors="backslashreplace", opener=_owned) as stream:
                stream.write(json.dumps(row, ensure_ascii=False) + "\n")
                stream.flush()
                os.fsync(stream.fileno())
            self._note_length()
        except OSError as error:
            raise RunFolderError(f"cannot write {self._path}: {error.strerror}; nothing was sent") from None

    def add_refusal(self, run: bytes, **values: Any) -> None:
        """Write a refusal down, unless too many came in a row: nothing is spent by one."""
        in_a_row = 0
        for row in reversed(self.rows()):
            if row["what"] != REFUSED:
                break
            in_a_row += 1
        if in_a_row < MOST_REFUSALS:
            last = {"last_logged": True} if in_a_row + 1 == MOST_REFUSALS else {}
            self.add(REFUSED, run, **values, **last)

    def rows(self, run: bytes | None = None) -> list[dict[str, Any]]:
        """All rows, or those of one run."""
        return [row for row in self._read() if run is None or row["run"] == run.hex()]

    def uploads(self, run: bytes) -> list[tuple[int, int]]:
        """The attempts of the run that this node has uploaded to: (round, attempt)."""
        return [(row["round"], row["attempt"]) for row in self.rows(run) if row["what"] == UPLOADED]

    def participations(self, run: bytes) -> int:
        """In how many attempts of the run this node has uploaded."""
        return sum(row["what"] == UPLOADED for row in self.rows(run))

    def unfinished(self) -> dict[str, tuple[int, int]]:
        """Runs that may go on, by name: the last round of this node's uploads, and how many rounds were planned."""
        planned: dict[str, int] = {}
        last: dict[str, int] = {}
        for row in self.rows():
            if row["what"] == JOINED:
                planned[row["run"]] = row.get("cost", {}).get("rounds", 0)
            elif row["what"] == UPLOADED:
                last[row["run"]] = max(row["round"], last.get(row["run"], 0))
        return {run: (last.get(run, 0), rounds) for run, rounds in planned.items() if last.get(run, 0) < rounds}

    def _read(self) -> Iterator[dict[str, Any]]:
        self._check_length()
        try:
            lines = self._path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return
        except OSError as error:
            raise RunFolderError(f"cannot read {self._path}: {error.strerror}") from None
        for number, line in enumerate(lines[:-1], start=1):
            try:
                row = json.loads(line)
                if not {"what", "run"} <= row.keys():
                    raise ValueError
            except (ValueError, AttributeError):
                raise RunFolderError(
                    f"{self._path}, line {number}: damaged, so this node does not know what it has spent; restore it"
                ) from None
            yield row

    def _check_length(self) -> None:
        """Refuse a log that is shorter than it was: what it has lost may be uploads."""
        try:
            before = int(self._length.read_text())
        except FileNotFoundError:
            return
        except (OSError, ValueError):
            raise RunFolderError(f"{self._length} is damaged: restore it together with {self._path.name}") from None
        now = self._path.stat().st_size if self._path.exists() else 0
        if now < before:
            raise RunFolderError(
                f"{self._path} has {now} bytes and had {before}: rows are missing, so this node does not know what it"
                " has spent; restore it"
            )

    def _note_length(self) -> None:
        temporary = self._length.with_name(self._length.name + ".new")
        with open(temporary, "w") as stream:
            stream.write(f"{self._path.stat().st_size}\n")
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, self._length)

    @property
    def _length(self) -> Path:
        return self._path.with_name(self._path.name + ".length")

    def _mend(self) -> None:
        """Cut off half a row, so that the next one is not appended to it."""
        if not self._path.exists():
            return
        data = self._path.read_bytes()
        if data and not data.endswith(b"\n"):
            with open(self._path, "r+b") as stream:
                stream.truncate(data.rfind(b"\n") + 1)
                os.fsync(stream.fileno())


def _owned(path: str, flags: int) -> int:
    """Opened, and readable by its owner alone also where a backup takes it: rows have the node's own metrics."""
    return os.open(path, flags, 0o600)
