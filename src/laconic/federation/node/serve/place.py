"""Where a node is served: one process holds the lock of its folder, and listens at the node's socket.

*The socket.* By default it lies in the node's folder, which only its owner may enter. For a SuperNode that runs as
another user it lies elsewhere, and belongs to a group that both are in. Who may open it may send the node messages,
and nothing else: no file of the node can be reached by it.
"""

from __future__ import annotations

import fcntl
import grp
import os
import shlex
import socket
import stat
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from laconic.errors import ConfigError, RunFolderError
from laconic.federation.node.serve.hand_over import short_path

_PROBE = 5.0


def open_socket(path: Path, group: str | None, *, waiting: int) -> socket.socket:
    """A listening socket that its owner, and the group if one is named, may open."""
    _check_folder(path)
    _clear(path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)  # from the first instant: no other user opens it before its group is set
    try:
        with short_path(path) as short:
            listening.bind(short)
    except OSError as error:
        listening.close()
        raise ConfigError(f"cannot make the socket {path}: {error.strerror or error}") from None
    finally:
        os.umask(before)
    try:
        if group is not None:
            _give_to(path, group)
    except ConfigError:
        listening.close()
        path.unlink(missing_ok=True)
        raise
    listening.listen(waiting)
    return listening


def _check_folder(path: Path) -> None:
    """Refuse a folder in which others could put something else in the socket's place: what is then opened to the group
    would be a file of theirs to name."""
    try:
        found = path.parent.stat()
    except OSError:
        found = None
    if found is None or not stat.S_ISDIR(found.st_mode):
        raise ConfigError(f"⟨socket⟩ {path}: there is no folder {path.parent}")
    folder = shlex.quote(str(path.parent))
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not found.st_mode & stat.S_ISVTX:
        raise ConfigError(
            f"⟨socket⟩ {path}: others may write to {path.parent}, and could put a socket of theirs there:"
            f" chmod go-w {folder}"
        )
    user = os.geteuid()
    if found.st_uid not in (0, user) and user != 0:
        raise ConfigError(
            f"⟨socket⟩ {path}: {path.parent} belongs to another user (number {found.st_uid}): chown {user} {folder}"
        )


def _clear(path: Path) -> None:
    """Remove the socket of a process that is gone. What is no socket is left alone."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigError(f"⟨socket⟩ {path}: {error.strerror}") from None
    if not stat.S_ISSOCK(mode):
        raise ConfigError(f"⟨socket⟩ {path} is a file that is no socket: name another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE)
        try:
            with short_path(path) as short:
                probe.connect(short)
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
        except OSError as error:  # a process that hangs, or one of another user
            raise ConfigError(f"⟨socket⟩ {path}: another process may be there ({error.strerror or error})") from None
    raise ConfigError(f"⟨socket⟩ {path}: another process answers there already")


def _give_to(path: Path, group: str) -> None:
    try:
        number = int(group) if group.isdecimal() else grp.getgrnam(group).gr_gid
    except KeyError:
        raise ConfigError(f"⟨group⟩ {group}: there is no such group on this machine") from None
    try:
        os.chown(path, -1, number)
        path.chmod(0o660)
    except OSError as error:
        raise ConfigError(f"⟨group⟩ {group}: {error.strerror}; the owner must be in that group") from None


_NAME = "serving.lock"
_TIMEOUT = 0.5


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
        """Take the lock; a process that only looks whether it is held has it for an instant."""
        end = time.monotonic() + _TIMEOUT
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
