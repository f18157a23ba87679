"""Files that are replaced in one step, and folders that their owner alone may enter.

Standard library only; errors are those of the operating system.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path


def replace_file(target: Path, data: bytes, *, mode: int = 0o666, sync_name: bool = True) -> None:
    """Replace a file in one step: killed at any instant, the file is the old one or the new one, never half of one.

    Args:
        target: the file; its folder must exist.
        data: the new content. It is on the disk when this returns.
        mode: who may read a new file, less what the process forbids (its umask); 0o600 is its owner alone.
        sync_name: whether the name is on the disk, too, when this returns. Otherwise a power failure may bring the old
            file back; a caller that replaces several files may sync their folder once.
    """
    temporary = target.with_name(target.name + ".new")
    temporary.unlink(missing_ok=True)  # in a folder that others may write to, it could be theirs, or a link
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), mode), "wb") as new:
        new.write(data)
        new.flush()
        os.fsync(new.fileno())
    os.replace(temporary, target)
    if sync_name:
        sync_folder(target.parent)


def private_folder(path: Path) -> None:
    """Make a folder that its owner alone may enter, and those above it that are missing. One that is there keeps its
    mode: its owner may have shared it on purpose."""
    for folder in (*reversed(path.parents), path):
        if folder.is_dir():
            continue
        try:
            folder.mkdir(exist_ok=True, mode=0o700)
        except FileExistsError:  # a file stands there: say so of the path that was asked for
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path)) from None


def sync_folder(folder: Path) -> None:
    """What was made, renamed or removed in the folder is on the disk when this returns."""
    with contextlib.suppress(PermissionError):  # Windows opens no folders
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
