"""Events as JSON lines: time, level, event, and fields that are listed here. No record, label or value of one is a
field, and neither is the text of an exception, which may quote them."""

from __future__ import annotations

import json
import os
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path

from laconic.errors import ConfigError, one_line
from laconic.metrics import HELD_OUT, TEST, columns

LEVELS = ("info", "warning", "error")
_FIELDS = (
    *("run", "round", "attempt", "rounds", "finished", "scheme", "fingerprint", "version", "status", "stop_reason"),
    *("message", "node", "client", "reason", "discarded", "cohort", "groups", "lost_groups", "vote"),
    *("seconds", "bytes_up", "bytes_down", "bytes_in", "bytes_out", "epsilon", "participant_epsilon", "text"),
)
_LONGEST = 300


def fields() -> frozenset[str]:
    """What an event may say: the metrics of the released model among it."""
    return frozenset((*_FIELDS, *columns(TEST, HELD_OUT, released=True)))


class EventLog:
    """Writes to a file that its owner alone may read, or to stderr. A full disk does not end the process."""

    def __init__(self, path: Path | None = None) -> None:
        self._lock = threading.Lock()
        self._file: int | None = None
        if path is not None:
            try:
                self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            except OSError as error:
                raise ConfigError(f"cannot write the log {path}: {error.strerror}") from None

    def write(self, event: str, *, level: str = "info", **named: str | int | float | bool | None) -> None:
        """One line. Texts are cut to one line of 300 characters."""
        unknown = named.keys() - fields()
        if unknown or level not in LEVELS:
            raise ValueError(f"no fields of an event: {sorted(unknown)}, level {level}")
        row: dict[str, object] = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "level": level}
        row["event"] = event
        for name, value in named.items():
            if value is not None:
                row[name] = one_line(value, _LONGEST) if isinstance(value, str) else _finite(value)
        line = json.dumps(row, ensure_ascii=False) + "\n"
        with self._lock:
            try:
                if self._file is None:
                    print(line, end="", file=sys.stderr, flush=True)
                else:
                    os.write(self._file, line.encode())
            except (OSError, ValueError):  # a full disk, or a reader that is gone
                return

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _finite(value: int | float | bool) -> int | float | bool | str:
    """The number; text for one that is not finite, which JSON does not have."""
    return value if value - value == 0 else str(value)
