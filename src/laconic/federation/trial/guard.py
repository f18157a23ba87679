"""A process that ends others when its parent is gone, however that went: `python -m laconic.federation.trial.guard`.

It reads process groups from its standard input, one a line, each with a wave. When the input ends, because the parent
closed it or was killed, it ends them all, one wave after the other.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterable

TIMEOUT = 3.0
"""Seconds that a process has to end by itself."""


def end_in_waves(groups: Iterable[tuple[int, int]]) -> None:
    """End process groups, given as (wave, group): the first wave is gone before the second is asked.

    A SuperNode signs off when it ends. If it did so before the server's process has ended, that would take the node for
    lost and discard its round.
    """
    of_wave: dict[int, list[int]] = {}
    for wave, group in groups:
        of_wave.setdefault(wave, []).append(group)
    for wave in sorted(of_wave):
        end_groups(of_wave[wave])


def end_groups(groups: Iterable[int]) -> None:
    """Ask the process groups to end, and make them if they have not after some seconds."""
    left = set(groups)
    for kind in (signal.SIGTERM, signal.SIGKILL):
        for group in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, kind)
        end = time.monotonic() + TIMEOUT
        while left and time.monotonic() < end:
            left = {group for group in left if _lives(group)}
            time.sleep(0.05)


def _lives(group: int) -> bool:
    """Whether some process of the group is more than a zombie that its parent has not waited for."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(-group, os.WNOHANG)
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def main() -> None:
    for kind in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(kind, signal.SIG_IGN)
    lines = [line.split() for line in sys.stdin]
    end_in_waves([(int(wave), int(group)) for wave, group in lines])


if __name__ == "__main__":
    main()
