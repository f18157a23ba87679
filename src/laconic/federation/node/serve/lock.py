"""One process serves a folder: it holds a lock for as long as it lives, however it ends."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from laconic.errors import RunFolderError

_NAME = "serving.lock"
_PATIENCE = 0.5


class ServingLock:
    """Held while a process serves the folder. The file has its process number, for people."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _NAME
        self._file: int | None = None

    def __enter__(self) -> Self:
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise RunFolderError(f"cannot write {self._path}: {error.strerror}") from None
        try:
            self._lock(file)
            os.ftruncate(file, 0)
            os.write(file, str(os.getpid()).encode())
        except OSError as error:
            os.close(file)
            raise RunFolderError(f"cannot write {self._path}: {error.strerror}") from None
        except RunFolderError:
            os.close(file)
            raise
        self._file = file
        return self

    def _lock(self, file: int) -> None:
        """Take the lock; somebody who only looks whether it is held has it for an instant."""
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > end:
                    other = os.read(file, 20).decode(errors="replace").strip()
                    raise RunFolderError(
                        f"process {other or '?'} serves {self._path.parent} already: stop it first"
                    ) from None
            time.sleep(0.05)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            os.close(self._file)


def serving(folder: Path) -> int | None:
    """The number of the process that serves the folder, if one does."""
    try:
        with open(folder / _NAME, "r+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: two that look do not see each other
            except OSError:
                return int(file.read().strip() or 0)
    except (FileNotFoundError, ValueError):
        return None
    return None
