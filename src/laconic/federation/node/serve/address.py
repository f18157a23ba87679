"""The address of a socket. The kernel takes about a hundred bytes; a longer path is reached through its folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LONGEST = 100


@contextmanager
def address(path: str | Path) -> Iterator[str]:
    """What `bind` and `connect` take for this path."""
    path = Path(path)
    if len(os.fsencode(path)) <= _LONGEST or not Path("/proc/self/fd").is_dir():
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
