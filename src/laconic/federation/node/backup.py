"""A node's folder as one archive, and a folder from it.

The archive holds who the node is and what it has spent: identities, wrapping key, log. It holds no key of a run. A node
that is restored can therefore not go on with a run, and never masks a second vector in an attempt of before. What it
has spent since the backup it cannot know. So every planned or spare round that may have come since is entered in its
log as taken part in, and the node does nothing until its owner has looked: runs that it joined since are missing
altogether.
"""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

from laconic.errors import ConfigError, RunFolderError
from laconic.guard.contract import Contract
from laconic.guard.folder import NodeFolder
from laconic.guard.keys import wrapping
from laconic.guard.keys.change import OLD
from laconic.guard.keys.files import replace_file
from laconic.guard.ledger import Price
from laconic.guard.limits import charges
from laconic.guard.transcript import JOINED, UPLOADED, rounds_of

_FILES = ("identity.key", wrapping.FILE, "log.jsonl", "log.jsonl.length")
_LARGEST = 1 << 32


def back_up(folder: NodeFolder, archive: Path) -> None:
    """Write the archive, readable by its owner alone. The node answers nothing meanwhile."""
    if archive.resolve().is_relative_to(folder.path.resolve()):
        raise ConfigError(f"{archive} lies in the folder that it is a backup of: keep it elsewhere")
    content = io.BytesIO()
    with folder.alone(), tarfile.open(fileobj=content, mode="w") as tar:
        if folder.copied is not None:
            raise ConfigError(folder.copied)
        folder.log.rows()  # a damaged log is no backup
        for path in [*(folder.path / name for name in _FILES), *sorted((folder.path / OLD).glob("*.key"))]:
            if path.exists():
                tar.add(path, arcname=str(path.relative_to(folder.path)))
    replace_file(archive, content.getvalue())


def restore(archive: Path, path: Path, *, nothing_since: bool = False) -> int:
    """Make a folder from an archive; how many rounds were entered in the log as taken part in."""
    if path.exists() and any(path.iterdir()):
        raise ConfigError(f"{path} is not empty: restore to a new folder")
    files = _contents(archive)
    folder = NodeFolder(path)
    folder.call_for_attention("only half restored: remove this folder, and restore again")
    for name, data in files.items():
        replace_file(path / name, data)
    folder.log.accept()
    if nothing_since:
        folder.end_attention()
        return 0
    last = next((row.get("time") for row in reversed(folder.log.rows())), None)
    entered = _assume_the_worst(folder)
    folder.call_for_attention(
        f"restored from a backup whose log ends at {last or 'its beginning'}: runs that were joined since are missing"
        " from it, and what they cost with them; ask their servers, then remove this file"
    )
    return entered


def _assume_the_worst(folder: NodeFolder) -> int:
    """Enter every attempt that may have come after the logged ones: planned rounds, and spare ones that are left."""
    joined = {row["run"]: row for row in folder.log.rows() if row["what"] == JOINED}
    entered = 0
    for run, row in joined.items():
        uploads = folder.log.uploads(bytes.fromhex(run))
        for taken, (round, attempt) in enumerate(_may_follow(row, uploads), start=len(uploads) + 1):
            folder.log.add(
                UPLOADED,
                bytes.fromhex(run),
                round=round,
                attempt=attempt,
                cohort=None,
                participations=taken,
                participant_epsilon=None,
                cost=row["cost"],
                assumed=True,
                **_price(row, round, attempt),
            )
            entered += 1
    return entered


def _price(joined: dict[str, Any], round: int, attempt: int) -> dict[str, Any]:
    """What an upload costs by the contract, a spare one as the dearest; older versions wrote only the `cost`."""
    if "contract" not in joined:
        return {}
    contract = Contract.from_row(joined["contract"])
    dearest = min(contract.releases, key=lambda release: release.multiplier)
    return {"price": Price.of(contract, dearest if attempt else contract.release(round)).row()}


def _may_follow(joined: dict[str, Any], uploads: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """(round, attempt) of every upload that the run, as it was agreed on, may have asked for since."""
    rounds, last = rounds_of(joined), max((round for round, _ in uploads), default=0)
    repeated = charges(uploads) - last
    final = max(rounds, last)
    begun = max((attempt for round, attempt in uploads if round == final), default=0)
    spare = max(0, joined.get("spare_rounds", 0) - repeated)
    return [
        *((round, 0) for round in range(last + 1, rounds + 1)),
        *((final, begun + number) for number in range(1, spare + 1)),
    ]


def _contents(archive: Path) -> dict[str, bytes]:
    """The files of an archive; anything else than what `back_up` writes is refused."""
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(archive, mode="r:") as tar:
            for member in tar:
                old = member.name.startswith(f"{OLD}/") and member.name.count("/") == 1 and member.name.endswith(".key")
                if not member.isreg() or not (member.name in _FILES or old) or member.size > _LARGEST:
                    raise RunFolderError(f"{archive} holds '{member.name}', which no backup of a node does")
                stream = tar.extractfile(member)
                assert stream is not None
                found[member.name] = stream.read()
    except OSError as error:
        raise RunFolderError(f"cannot read {archive}: {error.strerror or error}") from None
    except tarfile.TarError as error:
        raise RunFolderError(f"{archive} is no backup of a node, or damaged ({error})") from None
    if "identity.key" not in found:
        raise RunFolderError(f"{archive} lacks identity.key: it is no backup of a node, or damaged")
    return found
