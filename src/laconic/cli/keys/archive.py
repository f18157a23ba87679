"""`laconic keys backup`, `restore` and `moved`."""

from __future__ import annotations

from pathlib import Path

import click

from laconic.errors import ConfigError


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
