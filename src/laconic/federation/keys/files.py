"""Small files that are replaced in one step, readable by their owner alone."""

from __future__ import annotations

import os
from pathlib import Path

from laconic.errors import RunFolderError


def read_file(path: Path) -> bytes | None:
    """The content, or None if there is no such file."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RunFolderError(f"cannot read {path}: {error.strerror}") from None


def replace_file(target: Path, data: bytes) -> None:
    """Replace a file that its owner alone may read, in one step; it is on the disk when this returns.

    Killed at any instant, the file is the old one or the new one.
    """
    temporary = target.with_name(target.name + ".new")
    try:
        target.parent.mkdir(exist_ok=True, mode=0o700)
        temporary.unlink(missing_ok=True)  # in a folder that others may write to, it could be theirs, or a link
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, target)
        sync_folder(target.parent)
    except OSError as error:
        raise RunFolderError(f"cannot write {target}: {error.strerror}; nothing was sent") from None


def sync_folder(folder: Path) -> None:
    """What was renamed in the folder is on the disk when this returns."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
