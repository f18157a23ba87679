"""A process that ends others when its parent is gone, however that went: `python -m laconic.federation.trial.guard`.

It reads process groups from its standard input, one a line. When the input ends, because the parent closed it or was
killed, it ends them all.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterable

PATIENCE = 3.0
"""Seconds that a process has to end by itself."""


def end_groups(groups: Iterable[int]) -> None:
    """Ask the process groups to end, and make them if they have not after some seconds."""
    left = set(groups)
    for kind in (signal.SIGTERM, signal.SIGKILL):
        for group in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, kind)
        end = time.monotonic() + PATIENCE
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
    end_groups([int(line) for line in sys.stdin])


if __name__ == "__main__":
    main()
