"""An app that Flower runs in a process of its own ends when that process is left alone.

Flower asks such a process to end, but one that waits for an answer from a SuperLink or SuperNode that is gone can hang
while it does, with the run folder or the node's log of attempts locked. Nothing is lost by ending it at once: whatever
counts is on disk before it is sent.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

_POLL, _GRACE = 0.5, 3.0


def end_if_orphaned() -> None:
    """Watch the parent process from now on. Does nothing where an app is called in some other process, as in tests."""
    if Path(sys.argv[0]).name.startswith("flwr-"):
        threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL)
    time.sleep(_GRACE)
    os._exit(1)
