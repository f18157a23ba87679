"""What makes two runs the same run: a folder is resumed only by the experiment that started it.

Noise is replayed on resume. Reusing it on other data or weights would reveal their difference.
"""

from __future__ import annotations

import json
from typing import Any

from laconic.errors import RunFolderError
from laconic.experiment.identity import NOISE_DRAWS
from laconic.store.chain import CHARGES, SAVES, WAY_OUT, digest_of
from laconic.store.folder import IDENTITY, STATE, RunFolder
from laconic.store.saves import ROUNDS, Saves

NOISE_NAMES = "noise names"
"""What is in the names of a simulation's noise: older versions had the seed and the round alone."""


def check_identity(folder: RunFolder, identity: dict[str, Any], saves: Saves) -> None:
    """Refuse a folder that another experiment started, or that lacks the record of which one did."""
    path, content = folder.path / IDENTITY, folder.read(IDENTITY)
    if saves.identity is None:
        _refuse_remains(folder)
        return
    if content is None:
        if saves.possible or folder.lines(CHARGES) or digest_of(_text(identity)) != saves.identity:
            raise RunFolderError(f"{path} is missing, so nobody can tell whether this is the same run; {WAY_OUT}")
        return  # killed right after the first row
    if digest_of(content) != saves.identity:
        raise RunFolderError(f"{path} was altered or damaged since the run was started; {WAY_OUT}")
    known = {NOISE_DRAWS: identity.get(NOISE_DRAWS)} | json.loads(content)  # older runs do not say it
    attack = {} if "attack" not in known else {"attack": None}  # a run without one says nothing of it
    for key, value in (attack | identity).items():
        if key not in known and key != "attack":
            raise RunFolderError(
                f"{folder.path} was started by an earlier version of Laconic, which alone can go on with it (it kept no"
                f" {key}): use that version, or choose another ⟨out⟩"
            )
        if known.get(key) != value:
            raise RunFolderError(
                f"{folder.path} was started with another {key} ({known.get(key)}, now {value}):"
                " resume with the same options, data and initial weights, or choose another ⟨out⟩"
            )


def keep_identity(
    folder: RunFolder, identity: dict[str, Any], saves: Saves, rounds: int, through: int, environment: str
) -> None:
    """Write it down at the start. The journal names it first: so a file without a row is no run's beginning."""
    saves.begin(digest_of(_text(identity)), rounds, through, environment)
    folder.sync()
    if folder.read(IDENTITY) is None:
        folder.write(IDENTITY, _text(identity))


def _refuse_remains(folder: RunFolder) -> None:
    """What a run leaves behind, but no row that it was begun."""
    for name in (IDENTITY, CHARGES, ROUNDS, STATE):
        if folder.read(name):
            raise RunFolderError(
                f"{folder.path / SAVES} is missing, but there is {name}: the run is from an earlier version of Laconic,"
                f" which alone can go on with it, or the file was deleted; {WAY_OUT}"
            )


def _text(identity: dict[str, Any]) -> bytes:
    return (json.dumps(identity, indent=2) + "\n").encode()
