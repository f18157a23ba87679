"""The files of a finished run: named with their digests at its end, and checked before anybody believes them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from laconic.errors import RunFolderError
from laconic.store.chain import WAY_OUT, digest_of
from laconic.store.checkpoint import BEST, STATE
from laconic.store.folder import RunFolder
from laconic.store.front_end import FILE as FRONT_END
from laconic.store.identity import IDENTITY
from laconic.store.journal import Journal
from laconic.store.round_rows import ROUNDS, rows_digest

MODEL, SUMMARY = "model.safetensors", "summary.json"
DESCRIPTION = ("config.toml", "records.toml", "preprocessing.toml", "vocabulary.txt", FRONT_END)
"""What a run is, in files that are written when it starts."""
_KEPT = (MODEL, SUMMARY, "privacy.json", *DESCRIPTION)


def digests_of(folder: RunFolder) -> dict[str, str]:
    """Of what is left of a run: model, summary, statement, and what describes it."""
    found = {name: folder.read(name) for name in _KEPT}
    return {name: digest_of(content) for name, content in found.items() if content is not None}


@dataclass(frozen=True)
class Finished:
    """A finished run whose files are those that it left behind."""

    folder: RunFolder
    summary: dict[str, Any]
    history: list[dict[str, Any]]

    @property
    def path(self) -> Path:
        return self.folder.path


def finished_run(path: str | Path) -> Finished:
    """Check the folder as a resumed run would, and that its results were not changed since. Nothing is written."""
    folder = RunFolder(path)
    if not folder.exists:
        raise RunFolderError(f"{path} holds no run (there is no config.toml): give the folder of a finished run")
    journal = Journal(folder, "")  # follows the chain of digests
    saves = journal.saves
    go_on = f"go on with it first (laconic run --out {path} --resume, or the same call with resume=True)"
    if saves.ended is None or saves.confirmed is None:
        raise RunFolderError(f"{path} is not finished, or was by an earlier version of Laconic: {go_on}")
    for name, expected in {IDENTITY: saves.identity, STATE: saves.confirmed.state, **saves.ended}.items():
        _same(folder, name, expected)
    named = set(saves.ended)
    if saves.confirmed.best is not None:
        named.add(BEST)
        if folder.read(BEST) is not None:
            _same(folder, BEST, saves.confirmed.best)
    _nothing_more(folder, named)
    lines = folder.lines(ROUNDS)
    if rows_digest(lines) != saves.confirmed.rows:
        raise RunFolderError(f"{folder.path / ROUNDS} was edited or damaged since the run ended; {WAY_OUT}")
    return Finished(folder, json.loads(folder.read(SUMMARY) or b"{}"), [json.loads(line) for line in lines])


def _nothing_more(folder: RunFolder, named: set[str]) -> None:
    """A file that the run did not leave behind could say how records are prepared, or be taken for its weights."""
    for name in (*_KEPT, BEST):
        if name not in named and folder.read(name) is not None:
            raise RunFolderError(f"{folder.path / name} is not of this run: it was put there later; {WAY_OUT}")


def _same(folder: RunFolder, name: str, expected: str | None) -> None:
    content = folder.read(name)
    if content is None or digest_of(content) != expected:
        what = "is missing" if content is None else "was altered or damaged since the run ended"
        raise RunFolderError(f"{folder.path / name} {what}; {WAY_OUT}")
