"""Whether a folder is where it was made, or a copy of it.

A copy of a node's folder is dangerous: its log lacks what was uploaded since, so the node would spend its budget twice
and would mask a second vector in the same attempt. So the folder holds a file that names its own inode and the inode's
generation. A copy, and what is restored file by file, has another inode. A snapshot of the whole disk that is set back
is not noticed, nor is a copy on file systems that have no generations and reuse numbers.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

from laconic.errors import RunFolderError

_FILE = "original"
_GET_GENERATION = 0x80087601  # FS_IOC_GETVERSION of Linux


def mark_original(folder: Path) -> None:
    """Say that the folder is no copy, if it does not say anything yet."""
    path = folder / _FILE
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if not os.fstat(handle).st_size:
                os.write(handle, _inode(handle))
                os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        raise RunFolderError(f"cannot write {path}: {error.strerror}; nothing was sent") from None


def is_copy(folder: Path) -> bool:
    """Whether the file names another inode than its own."""
    path = folder / _FILE
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise RunFolderError(f"cannot read {path}: {error.strerror}") from None
    try:
        return os.read(handle, 1 << 10) != _inode(handle)
    finally:
        os.close(handle)


def accept_copy(folder: Path) -> None:
    """The owner says that this copy is the one that counts."""
    path = folder / _FILE
    path.unlink(missing_ok=True)
    mark_original(folder)


def _inode(handle: int) -> bytes:
    """The number of the file on its disk, and which file of that number it is."""
    generation = 0
    try:
        import fcntl

        answer = fcntl.ioctl(handle, _GET_GENERATION, bytes(8))
        (generation,) = struct.unpack("l", answer)
    except (ImportError, OSError, OverflowError):  # this system or this file system has none
        pass
    return f"{os.fstat(handle).st_ino} {generation}\n".encode()
