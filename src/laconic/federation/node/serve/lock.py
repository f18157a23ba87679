"""One process serves a folder: it holds a lock for as long as it lives, however it ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from laconic.errors import RunFolderError

_NAME = "serving.lock"


class ServingLock:
    """Held while a process serves the folder. The file has its process number, for people."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _NAME
        self._file: IO[str] | None = None

    def __enter__(self) -> Self:
        file = open(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600), "r+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            other = file.read().strip()
            file.close()
            raise RunFolderError(f"process {other or '?'} serves {self._path.parent} already: stop it first") from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        self._file = file
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()


def serving(folder: Path) -> int | None:
    """The number of the process that serves the folder, if one does."""
    try:
        with open(folder / _NAME, "r+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return int(file.read().strip() or 0)
    except (FileNotFoundError, ValueError):
        return None
    return None
