"""`laconic keys`: encrypt the keys of a node or a server, change what opens them, rotate, back up."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from laconic.cli.keys.archive import backup, moved, restore
from laconic.cli.keys.secret import new_secret, secret_for, secret_options
from laconic.errors import ConfigError

if TYPE_CHECKING:
    from laconic.guard.keys.secret import Secret


@click.group()
def keys() -> None:
    """The private keys of a node or a server: encrypt them, change what opens them, rotate, back up.

    docs/operations.md says when to use which. A secret is never given on the command line: name a file, or be asked.
    """


@keys.command()
@click.argument("folder", type=click.Path(path_type=Path))
@secret_options
def encrypt(folder: Path, key_file: Path | None, passphrase_file: Path | None) -> None:
    """Encrypt all keys in FOLDER. A new folder gets a new, encrypted identity.

    \b
    laconic keys encrypt /srv/laconic --key-file /etc/laconic/node.secret

    Killed on the way, it leaves every key readable; the same command finishes. The blocks of the disk that held a bare
    key are not erased: rotate the identity if somebody else may have read them.
    """
    from laconic.guard.folder import NodeFolder
    from laconic.guard.keys.change import encrypt_keys
    from laconic.guard.keys.keyring import Keyring

    folder = folder.expanduser()
    started = Keyring(folder).encrypted
    named = secret_for(folder, key_file, passphrase_file) if started else None
    secret = named or new_secret(key_file, passphrase_file, "New passphrase")
    files = NodeFolder(folder, secret)
    with files.alone():
        sealed = encrypt_keys(folder, secret)
    files.identity()
    click.echo(f"{sealed} keys encrypted; they are opened by your {secret.kind}")
    click.echo(f"identity  {files.public_identity()}")


@keys.command()
@click.argument("folder", type=click.Path(path_type=Path))
@secret_options
@click.option("--new-key-file", type=click.Path(path_type=Path), help="The key file that opens the keys from now on.")
@click.option(
    "--new-passphrase-file",
    type=click.Path(path_type=Path),
    help="A file whose first line is the new passphrase.  [a question]",
)
def passphrase(
    folder: Path,
    key_file: Path | None,
    passphrase_file: Path | None,
    new_key_file: Path | None,
    new_passphrase_file: Path | None,
) -> None:
    """Change the passphrase or key file that opens the keys in FOLDER.

    \b
    laconic keys passphrase /srv/laconic --key-file old.secret --new-key-file new.secret

    A copy of the folder from before is still opened by the old one. If that may be in wrong hands, rotate, too.
    """
    from laconic.guard.folder import NodeFolder
    from laconic.guard.keys.change import change_secret
    from laconic.guard.keys.secret import HOW

    folder = _existing(folder)
    old = secret_for(folder, key_file, passphrase_file)
    if old is None:
        raise ConfigError(f"nothing opens the keys of {folder}: {HOW}")
    new = _named_new(new_key_file, new_passphrase_file)
    with NodeFolder(folder).alone():
        change_secret(folder, old, new)
    click.echo(f"the keys of {folder} are opened by the new {new.kind} from now on")


@keys.command()
@click.argument("folder", type=click.Path(path_type=Path))
@secret_options
@click.option("--leave-runs", is_flag=True, help="Rotate even if runs may go on: they end for this node.")
def rotate(folder: Path, key_file: Path | None, passphrase_file: Path | None, leave_runs: bool) -> None:
    """Give the node or server in FOLDER a new identity. The old one is kept in FOLDER/old-identities.

    \b
    laconic keys rotate /srv/laconic --key-file /etc/laconic/node.secret

    Nobody knows the new identity yet: policies that list the old one (identities, servers) must be changed.
    """
    from laconic.guard.folder import NodeFolder
    from laconic.guard.keys.change import new_identity

    folder = _existing(folder)
    files = NodeFolder(folder, secret_for(folder, key_file, passphrase_file))
    unfinished = files.log.unfinished()
    if unfinished and not leave_runs:
        runs = ", ".join(f"{run[:8]}… (round {last} of {rounds})" for run, (last, rounds) in unfinished.items())
        raise ConfigError(f"runs that may go on would end for this node: {runs}; wait, or give --leave-runs")
    with files.alone():
        before, now = new_identity(files.keys)
    click.echo(f"old identity  {before}")
    click.echo(f"identity      {now}")
    click.echo("send it to everybody whose policy lists the old one (identities of nodes, servers)")


for command in (backup, restore, moved):
    keys.add_command(command)


def _existing(folder: Path) -> Path:
    folder = folder.expanduser()
    if not folder.is_dir():
        raise ConfigError(f"{folder} does not exist, or is no folder")
    return folder


def _named_new(key_file: Path | None, passphrase_file: Path | None) -> Secret:
    """The new secret. The environment has the old one, so it is not asked."""
    from laconic.guard.keys.secret import found_secret
    from laconic.guard.keys.secret import passphrase as typed

    if key_file is not None or passphrase_file is not None:
        found = found_secret(key_file, passphrase_file)
        assert found is not None
        return found
    if not sys.stdin.isatty():
        raise ConfigError("nothing says what is to open the keys: give --new-key-file or --new-passphrase-file")
    return typed(click.prompt("New passphrase", hide_input=True, confirmation_prompt=True, err=True))
