"""Small files that are replaced in one step, readable by their owner alone."""

from __future__ import annotations

from pathlib import Path

from laconic import files
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
    try:
        files.private_folder(target.parent)
        files.replace_file(target, data, mode=0o600)
    except OSError as error:
        raise RunFolderError(f"cannot write {target}: {error.strerror}; nothing was sent") from None
