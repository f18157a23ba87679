"""The transcript: the node's own append-only log, from which follows what it promised, spent and may still spend.

One JSON row per line, synced to disk before the node answers. So the server may lie later: the node knows at least
as much. A last row that a kill cut short is dropped: what it says was never done. Every row has a hash of itself and
the row before, so rows that were changed or taken out are noticed.

A log that was set back to an earlier state is noticed, too. While the process lives, it remembers how far the log was.
Afterwards the file beside it tells: the log's length, its inode, and when the inode was last changed. No program that
restores files can set that time, also if it writes into the old file (`cp -a`, `rsync --inplace`). Not noticed are a
snapshot of a whole disk, and a backup that a version before this one has written: it did not note the inode.
"""

from __future__ import annotations

import hashlib
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from laconic.errors import RunFolderError
from laconic.files import replace_file
from laconic.secagg.attempts import Mark, Step, check_forward

JOINED, UPLOADED, CONSENTED, REVEALED, REFUSED = "joined", "uploaded", "consented", "revealed", "refused"
MEASURED = "measured"
"""What the model is worth on the node's own records: for its owner."""
KEPT = "kept"
"""A row that takes over how far a node was from the file in which older versions wrote that."""
MOVED = "moved"
"""The owner says that this log is complete, though it was moved, copied or restored."""
MOST_REFUSALS = 200
"""In a row. A program at the node's socket can make it refuse at will, and the log is kept for ever."""
_STEPS = {UPLOADED: Step.UPLOAD, CONSENTED: Step.CONSENT, REVEALED: Step.REVEAL}
_CRASH = 60.0
"""Seconds between a row's time and its file's, where a kill came between the row and what is noted of it."""

Row = dict[str, Any]


class Transcript:
    """The file `log.jsonl` of a node."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._rows: list[Row] = []
        self._of: dict[str, list[Row]] = {}
        self._bytes, self._chain = 0, ""
        self._restored: str | None = None
        self._loaded = False

    def add(self, what: str, run: bytes, **values: Any) -> None:
        """Write a row down; it is on the disk when this returns. Nothing is added to a log that was set back: what is
        noted of it then would hide that."""
        self._load()
        if self._restored is not None:
            raise RunFolderError(self._restored)
        row = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "what": what, "run": run.hex()} | values
        line = _line(row | {"chain": _chained(self._chain, row)})
        try:
            with open(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), "ab") as stream:
                stream.truncate(self._bytes)  # half a row of a process that was killed
                stream.write(line)
                stream.flush()
                os.fsync(stream.fileno())
            self._note()
        except OSError as error:
            raise RunFolderError(f"cannot write {self._path}: {error.strerror}; nothing was sent") from None
        self._load()

    def add_refusal(self, run: bytes, **values: Any) -> None:
        """Write a refusal down, unless too many came in a row, or the log was set back: nothing is spent by one."""
        if self.restored is not None:
            return
        in_a_row = 0
        for row in reversed(self.rows()):
            if row["what"] != REFUSED:
                break
            in_a_row += 1
        if in_a_row < MOST_REFUSALS:
            last = {"last_logged": True} if in_a_row + 1 == MOST_REFUSALS else {}
            self.add(REFUSED, run, **values, **last)

    def rows(self, run: bytes | None = None) -> list[Row]:
        """All rows, or those of one run."""
        self._load()
        return list(self._rows if run is None else self._of.get(run.hex(), ()))

    def uploads(self, run: bytes) -> list[tuple[int, int]]:
        """The attempts of the run that this node was charged for: (round, attempt)."""
        return [(row["round"], row["attempt"]) for row in self.rows(run) if row["what"] == UPLOADED]

    def participations(self, run: bytes) -> int:
        """In how many attempts of the run this node was charged."""
        return sum(row["what"] == UPLOADED for row in self.rows(run))

    def unfinished(self) -> dict[str, tuple[int, int]]:
        """Runs that may go on, by name: the last round of this node's uploads, and how many rounds were planned."""
        planned: dict[str, int] = {}
        last: dict[str, int] = {}
        for row in self.rows():
            if row["what"] == JOINED:
                planned[row["run"]] = rounds_of(row)
            elif row["what"] == UPLOADED:
                last[row["run"]] = max(row["round"], last.get(row["run"], 0))
        return {run: (last.get(run, 0), rounds) for run, rounds in planned.items() if last.get(run, 0) < rounds}

    def mark(self, run: bytes) -> Mark | None:
        """The last step of a masked sum that was claimed in the run."""
        marks = [_mark(row) for row in self.rows(run) if row.get("plan") and row["what"] in (*_STEPS, KEPT)]
        return max(marks, key=lambda mark: mark[:3], default=None)

    # Set back

    @property
    def restored(self) -> str | None:
        """Why this log may lack rows, if it was restored, or written to by another program."""
        self._load()
        return self._restored

    def accept(self) -> None:
        """The owner says that nothing is missing."""
        self._load()
        self._restored = None
        if self._path.exists():
            self.add(MOVED, b"")
            self._restored = None

    def _load(self) -> None:
        """Read what was added since it was last read."""
        noted = self._noted()
        try:
            with open(self._path, "rb") as stream:
                size = os.fstat(stream.fileno()).st_size
                stream.seek(self._bytes)
                new = stream.read()
        except FileNotFoundError:
            size, new = 0, b""
        except OSError as error:
            raise RunFolderError(f"cannot read {self._path}: {error.strerror}") from None
        if size < (known := max(self._bytes, noted[0])):
            raise RunFolderError(
                f"{self._path} has {size} bytes and had {known}: rows are missing, so this node does not know what"
                " it has spent; restore it"
            )
        for line in new.split(b"\n")[:-1]:
            self._take(line)
            self._bytes += len(line) + 1
        if self._rows and (self._restored or not self._loaded):
            self._restored = self._set_back(noted)
        self._loaded = True

    def _take(self, line: bytes) -> None:
        number = len(self._rows) + 1
        try:
            row = json.loads(line)
            if not {"what", "run"} <= row.keys():
                raise ValueError
        except (ValueError, AttributeError):
            raise RunFolderError(
                f"{self._path}, line {number}: damaged, so this node does not know what it has spent; restore it"
            ) from None
        chain = row.pop("chain", "")
        # Rows of older versions have no hash. They come first, or not at all.
        if chain != (_chained(self._chain, row) if chain or self._chain else ""):
            raise RunFolderError(
                f"{self._path}, line {number}: changed, or rows before it are missing or of another log, so this node"
                " does not know what it has spent; restore it"
            )
        self._chain = chain
        self._rows.append(row)
        self._of.setdefault(row["run"], []).append(row)

    def _set_back(self, noted: tuple[int, str]) -> str | None:
        """Why this may be an earlier state of the log, judged by what was noted beside it."""
        length, inode = noted
        found = self._path.stat()
        if inode == _inode(found) or not (inode or self._chain):
            return None
        if self._bytes > length:  # a kill between a row and its note, or another process that writes right now
            written = datetime.fromisoformat(self._rows[-1]["time"]).timestamp()
            if abs(found.st_ctime - written) <= _CRASH:
                return None
        return (
            f"{self._path} was restored, or changed by another program, after this node wrote to it, so uploads may be"
            f" missing from it: if none is, laconic keys moved {self._path.parent}; else restore a backup"
        )

    def _note(self) -> None:
        found = self._path.stat()
        replace_file(self._beside, f"{found.st_size}\n{_inode(found)}\n".encode(), mode=0o600)

    def _noted(self) -> tuple[int, str]:
        """(length, inode) of the log when it was last written to; no inode in older versions."""
        try:
            length, inode, *_ = [*self._beside.read_text().split("\n"), "", ""]
            return int(length), inode
        except FileNotFoundError:
            return 0, ""
        except (OSError, ValueError):
            raise RunFolderError(f"{self._beside} is damaged: restore it together with {self._path.name}") from None

    @property
    def _beside(self) -> Path:
        return self._path.with_name(self._path.name + ".length")


class LoggedAttempts:
    """The attempts of a node, as its transcript has them: a step is claimed by its row. `values` go into that row."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self.values: dict[str, Any] = {}

    def last(self, run: bytes) -> Mark | None:
        return self._transcript.mark(run)

    def claim(self, run: bytes, mark: Mark) -> None:
        check_forward(self.last(run), mark)
        what = next(name for name, step in _STEPS.items() if step == mark.step)
        place = {"round": mark.round, "attempt": mark.attempt, "plan": mark.plan.hex()}
        self._transcript.add(what, run, **place, **self.values)


def take_over(transcript: Transcript, path: Path) -> None:
    """Write the attempts that an older version kept in a file of their own into the transcript."""
    try:
        rows = json.loads(path.read_bytes())
        for run, (round, attempt, step, plan) in rows.items():
            place = {"round": int(round), "attempt": int(attempt), "step": int(Step(step)), "plan": str(plan)}
            transcript.add(KEPT, bytes.fromhex(run), **place)
        path.unlink()
    except FileNotFoundError:
        return
    except (ValueError, AttributeError, TypeError):
        raise RunFolderError(
            f"{path} is damaged: which attempts were used is not known; restore it, or start a new run with new keys"
        ) from None
    except OSError as error:
        raise RunFolderError(f"cannot read {path}: {error.strerror}") from None


def rounds_of(joined: Row) -> int:
    """How many rounds were offered; older versions wrote how many the budget allows."""
    plan: Row = joined.get("contract") or joined.get("cost") or {}
    return int(plan.get("rounds", 0))


def _mark(row: Row) -> Mark:
    step = Step(row["step"]) if row["what"] == KEPT else _STEPS[row["what"]]
    return Mark(row["round"], row["attempt"], step, bytes.fromhex(row["plan"]))


def _line(row: Row) -> bytes:
    return (json.dumps(row, ensure_ascii=False) + "\n").encode(errors="backslashreplace")


def _chained(before: str, row: Row) -> str:
    return hashlib.sha256(before.encode() + _line(row)).hexdigest()[:32]


def _inode(found: os.stat_result) -> str:
    return f"{found.st_ino} {found.st_ctime_ns}"
