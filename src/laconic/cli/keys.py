"""`laconic keys`: encrypt the keys of a node or a server, change what opens them, rotate, back up.

Keys are opened by the name of a file, never by the secret itself. A terminal is asked.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from laconic.errors import ConfigError

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

    One line for `laconic node serve` and other programs that open a `NodeFolder`.
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


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("archive", type=click.Path(path_type=Path, dir_okay=False))
def backup(folder: Path, archive: Path) -> None:
    """Write the identity and the log of the node in FOLDER to ARCHIVE. The node may be running.

    \b
    laconic keys backup /srv/laconic /mnt/backup/node.tar

    Keys of single runs are not in it: a node that went on with a run from a backup could reveal its update.
    """
    from laconic.federation.node.backup import back_up
    from laconic.guard.folder import NodeFolder

    files = NodeFolder(folder)
    back_up(files, archive.expanduser())
    bare = "" if files.keys.encrypted else "; its keys are not encrypted, so keep it as you keep the folder"
    click.echo(f"{archive} holds identity and log of {folder}{bare}")


@click.command()
@click.argument("archive", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--nothing-since", is_flag=True, help="You know that the node has answered nothing since the backup.")
def restore(archive: Path, folder: Path, nothing_since: bool) -> None:
    """Make a node's FOLDER from a backup.

    \b
    laconic keys restore /mnt/backup/node.tar /srv/laconic

    The node cannot go on with runs of before, and joins new ones once you have removed FOLDER/attention.txt. Rounds
    that it may have taken part in since the backup are entered in its log.
    """
    from laconic.federation.node.backup import restore as restored

    entered = restored(archive, folder.expanduser(), nothing_since=nothing_since)
    click.echo(f"{folder} is restored; {entered} rounds since are counted as taken part in")
    if not nothing_since:
        click.echo(f"it does nothing until you have read and removed {folder / 'attention.txt'}")


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--yes", is_flag=True, help="The original has answered nothing since it was copied, and never will.")
def moved(folder: Path, yes: bool) -> None:
    """Say that FOLDER, a copy or restored, is the node from now on: after a move to another disk or host.

    \b
    laconic keys moved /srv/laconic --yes

    If the original has answered anything since, the copy's log is wrong, and the same masks could be used twice: use a
    backup instead.
    """
    from laconic.guard.folder import NodeFolder
    from laconic.guard.keys.original import accept_copy

    files = NodeFolder(folder.expanduser())
    if files.copied is None:
        click.echo(f"{folder} is no copy: nothing to do")
        return
    if not yes:
        raise ConfigError("give --yes if the original has answered nothing since it was copied, and never will")
    with files.alone():
        accept_copy(files.path)
        files.log.accept()
    click.echo(f"{folder} is the node's folder from now on")


@click.group()
def keys() -> None:
    """The private keys of a node or a server: encrypt them, change what opens them, rotate, back up.

    docs/federation.md says when to use which. A secret is never given on the command line: name a file, or be asked.
    """


@keys.command()
@click.argument("folder", type=click.Path(path_type=Path))
@secret_options
def encrypt(folder: Path, key_file: Path | None, passphrase_file: Path | None) -> None:
    """Encrypt all keys in FOLDER. A new folder gets a new, encrypted identity.

    \b
    laconic keys encrypt /srv/laconic --key-file /etc/laconic/node.secret

    Killed on the way, it leaves every key readable; the same command finishes. The blocks of the disk that held a bare
    key are not erased: rotate the identity if another person may have read them.
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

    The new identity is not known elsewhere yet: policies that list the old one (identities, servers) must change.
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
    click.echo("send it to all owners whose policy lists the old one (identities of nodes, servers)")


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
