"""Keep the processes of a trial running: start again what ended by itself."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass

Start = Callable[[], subprocess.Popen[bytes]]

HEALTHY = 30.0
"""Seconds after which a process counts as started well."""
PAUSES = (0.5, 2.0, 5.0)
"""Seconds before the first, the second, and every later start in a row."""
MOST_STARTS = 20
"""Starts in a row after which a process is left alone: more than the minute that a SuperLink may turn a node away."""


@dataclass
class _Kept:
    name: str
    start: Start
    process: subprocess.Popen[bytes]
    started: float
    in_a_row: int = 0
    """How often it ended before it was healthy."""
    due: float | None = None
    """When it is started again, if it has ended."""
    given_up: bool = False


class Keeper:
    """Starts processes, and starts them again when they end. `look` does it; it is called often and waits for nothing.

    On a host of its own an init system does the same, with Restart=always.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: dict[str, _Kept] = {}

    def keep(self, name: str, start: Start) -> None:
        """Start a process, and keep it running from now on."""
        self._kept[name] = _Kept(name, start, start(), self._clock())

    def process(self, name: str) -> subprocess.Popen[bytes]:
        return self._kept[name].process

    def look(self, on_notice: Callable[[str], None] = lambda text: None) -> None:
        """Start again what has ended and is due."""
        for kept in self._kept.values():
            self._look_at(kept, on_notice)

    def _look_at(self, kept: _Kept, on_notice: Callable[[str], None]) -> None:
        now = self._clock()
        status = kept.process.poll()
        if status is None or kept.given_up:
            return
        if kept.due is None:
            kept.in_a_row = 0 if now - kept.started >= HEALTHY else kept.in_a_row + 1
            kept.due = now + PAUSES[min(kept.in_a_row, len(PAUSES) - 1)]
            if kept.in_a_row <= 1:
                on_notice(f"{kept.name} ended ({_how(status)}) and is started again")
            if kept.in_a_row >= MOST_STARTS:
                kept.given_up = True
                on_notice(f"{kept.name} ended {kept.in_a_row} times in a row and is not started again")
        elif now >= kept.due:
            kept.due, kept.process, kept.started = None, kept.start(), self._clock()


def _how(status: int) -> str:
    return f"signal {-status}" if status < 0 else f"exit code {status}"
