"""What a client has sent already: written down before it is sent, so that no restart makes it forget.

Masks follow from run, round, attempt and plan. Two vectors under one attempt would reveal their difference, and two
answers to unmask requests could open what one may not. So every step of an attempt is claimed once, all of them under
one plan, and attempts only go forward.
"""

from __future__ import annotations

import json
from enum import IntEnum
from pathlib import Path
from typing import IO, NamedTuple, Protocol, Self

from laconic.errors import PrivacyError, RunFolderError
from laconic.files import replace_file


class Step(IntEnum):
    """What a client does once in an attempt, in this order."""

    UPLOAD = 1
    CONSENT = 2
    REVEAL = 3


class Mark(NamedTuple):
    """How far a client is."""

    round: int
    attempt: int
    step: Step
    plan: bytes
    """The hash of the attempt's plan."""


class Attempts(Protocol):
    """The last step that was claimed in each run."""

    def last(self, run: bytes) -> Mark | None: ...

    def claim(self, run: bytes, mark: Mark) -> None:
        """Write the step down, or refuse it if this or a later one was claimed before."""


class AttemptsInMemory:
    """For simulations: forgotten with the process."""

    def __init__(self) -> None:
        self._last: dict[bytes, Mark] = {}

    def last(self, run: bytes) -> Mark | None:
        return self._last.get(run)

    def claim(self, run: bytes, mark: Mark) -> None:
        check_forward(self.last(run), mark)
        self._last[run] = mark


class AttemptsOnDisk:
    """One small file, replaced in one step and synced before `claim` returns. Opened by one process at a time."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._lock = _locked(self._path)
        try:
            self._last = self._read()
        except RunFolderError:
            self.close()
            raise

    def close(self) -> None:
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def last(self, run: bytes) -> Mark | None:
        return self._last.get(run)

    def claim(self, run: bytes, mark: Mark) -> None:
        check_forward(self.last(run), mark)
        marks = {**self._last, run: mark}
        self._write({key.hex(): [m.round, m.attempt, int(m.step), m.plan.hex()] for key, m in marks.items()})
        self._last = marks

    def _read(self) -> dict[bytes, Mark]:
        try:
            rows = json.loads(self._path.read_bytes())
            return {
                bytes.fromhex(run): Mark(int(round), int(attempt), Step(step), bytes.fromhex(plan))
                for run, (round, attempt, step, plan) in rows.items()
            }
        except FileNotFoundError:
            return {}
        except (ValueError, AttributeError, TypeError):
            raise RunFolderError(
                f"{self._path} is damaged: which attempts were used is not known; restore it, or start a new run with"
                " new keys"
            ) from None
        except OSError as error:
            raise RunFolderError(f"cannot read {self._path}: {error.strerror}") from None

    def _write(self, rows: dict[str, list[int | str]]) -> None:
        try:
            replace_file(self._path, json.dumps(rows).encode())
        except OSError as error:
            raise RunFolderError(f"cannot write {self._path}: {error.strerror}; nothing was sent") from None


def check_forward(last: Mark | None, mark: Mark) -> None:
    """Refuse a mark that is not after the last one, or that has another plan for the same attempt."""
    if last is None:
        return
    name = f"round {mark.round}, attempt {mark.attempt}"
    if mark[:3] <= last[:3]:
        raise PrivacyError(
            f"{name}: this client is past it (its last was round {last.round}, attempt {last.attempt},"
            f" {last.step.name.lower()}); repeat the round as a new attempt"
        )
    if mark[:2] == last[:2] and mark.plan != last.plan:
        raise PrivacyError(f"{name}: this client has begun it under another plan; repeat the round as a new attempt")


def _locked(path: Path) -> IO[str]:
    try:
        lock = open(path.with_name(path.name + ".lock"), "w")  # noqa: SIM115 - held until close()
    except OSError as error:
        raise RunFolderError(f"cannot open {path}: {error.strerror}") from None
    try:
        import fcntl

        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:  # no advisory locks on this platform
        pass
    except OSError:
        lock.close()
        raise RunFolderError(f"{path} is in use by another process: a client must not run twice") from None
    return lock
