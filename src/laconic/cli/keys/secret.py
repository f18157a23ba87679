"""What opens encrypted keys, on the command line: the name of a file, never the secret itself. A terminal is asked."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from laconic.guard.keys.secret import Secret


def secret_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--key-file and --passphrase-file."""
    command = click.option(
        "--passphrase-file",
        type=click.Path(path_type=Path),
        help="A file whose first line is the passphrase of the keys.  [LACONIC_PASSPHRASE_FILE, or a question]",
    )(command)
    return click.option(
        "--key-file",
        type=click.Path(path_type=Path),
        help="A file of 32 random bytes or more that opens the keys.  [LACONIC_KEY_FILE]",
    )(command)


def secret_for(folder: Path, key_file: Path | None, passphrase_file: Path | None) -> Secret | None:
    """The secret of a folder whose keys are encrypted: named, in the environment, or typed in. None if none is needed.

    One line for `laconic node serve` and whoever else opens a `NodeFolder`.
    """
    from laconic.guard.keys.keyring import Keyring
    from laconic.guard.keys.secret import found_secret, passphrase

    secret = found_secret(_expanded(key_file), _expanded(passphrase_file))
    if secret is None and Keyring(folder).encrypted and sys.stdin.isatty():
        return passphrase(click.prompt(f"Passphrase of {folder}", hide_input=True, err=True))
    return secret


def new_secret(key_file: Path | None, passphrase_file: Path | None, what: str) -> Secret:
    """The secret that keys are to be opened by: named, in the environment, or typed in twice."""
    from laconic.errors import ConfigError
    from laconic.guard.keys.secret import HOW, found_secret, passphrase

    secret = found_secret(_expanded(key_file), _expanded(passphrase_file))
    if secret is not None:
        return secret
    if not sys.stdin.isatty():
        raise ConfigError(f"nothing says by what the keys are to be opened: {HOW}")
    return passphrase(click.prompt(what, hide_input=True, confirmation_prompt=True, err=True))


def _expanded(path: Path | None) -> Path | None:
    return None if path is None else path.expanduser()
