"""Who may read a secret: its owner alone. What the group or others may read is refused, with the remedy."""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path

from laconic.errors import ConfigError

CREDENTIALS = "CREDENTIALS_DIRECTORY"
"""Where systemd puts a service's credentials. It guards them with an access list, which shows as bits of the group."""


def check_private(path: Path) -> None:
    """Refuse a file or folder that others than its owner may open, or that belongs to another user."""
    if os.name != "posix":
        return
    try:
        found = path.stat()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    open_to = stat.S_IRWXO if _is_credential(path) else stat.S_IRWXG | stat.S_IRWXO
    if found.st_mode & open_to:
        mode, wanted = stat.S_IMODE(found.st_mode), "700" if stat.S_ISDIR(found.st_mode) else "600"
        raise ConfigError(
            f"{path} is open to the group or to others (mode {mode:03o}): chmod {wanted} {shlex.quote(str(path))}"
        )
    user = os.geteuid()
    if user not in (0, found.st_uid) and found.st_uid != 0:
        raise ConfigError(
            f"{path} belongs to another user (number {found.st_uid}), who can read it: chown {user}"
            f" {shlex.quote(str(path))}"
        )


def _is_credential(path: Path) -> bool:
    folder = os.environ.get(CREDENTIALS)
    return bool(folder) and path.resolve().is_relative_to(Path(str(folder)).resolve())
