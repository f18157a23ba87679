"""The node's socket: where it is, and who may open it.

By default it lies in the node's folder, which only its owner may enter. For a SuperNode that runs as another user it
lies elsewhere, and belongs to a group that both are in. Whoever may open it may send the node messages, and nothing
else: no file of the node can be reached by it.
"""

from __future__ import annotations

import grp
import os
import socket
import stat
from pathlib import Path

from laconic.errors import ConfigError
from laconic.federation.node.serve.address import address


def open_socket(path: Path, group: str | None, *, waiting: int) -> socket.socket:
    """A listening socket that its owner, and the group if one is named, may open."""
    _clear(path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)  # from the first instant: nobody else opens it before its group is set
    try:
        with address(path) as short:
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


def _clear(path: Path) -> None:
    """Remove the socket of a process that is gone. What is no socket is left alone."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        if not path.parent.is_dir():
            raise ConfigError(f"--socket {path}: there is no folder {path.parent}") from None
        return
    except OSError as error:
        raise ConfigError(f"--socket {path}: {error.strerror}") from None
    if not stat.S_ISSOCK(mode):
        raise ConfigError(f"--socket {path} is a file that is no socket: name another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            with address(path) as short:
                probe.connect(short)
        except OSError:
            path.unlink(missing_ok=True)
            return
    raise ConfigError(f"--socket {path}: another process answers there already")


def _give_to(path: Path, group: str) -> None:
    try:
        number = int(group) if group.isdecimal() else grp.getgrnam(group).gr_gid
    except KeyError:
        raise ConfigError(f"--group {group}: there is no such group on this machine") from None
    try:
        os.chown(path, -1, number)
        path.chmod(0o660)
    except OSError as error:
        raise ConfigError(f"--group {group}: {error.strerror}; the owner must be in that group") from None
