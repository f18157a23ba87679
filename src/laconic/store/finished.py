"""The files of a run, checked before they are believed: those of a finished run are named with their digests.

Every command that reads a run folder checks it here: `finished_run` for those that need a finished run, `shown_run` and
`watched_run` for those that show what is there.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from laconic.errors import RunFolderError
from laconic.privacy.released import Row, Summary
from laconic.store.folder import BEST, FRONT_END, IDENTITY, STATE, STATEMENT, RunFolder
from laconic.store.journal import Journal
from laconic.store.saves import CHARGES, ROUNDS, SAVES, WAY_OUT, Save, Saves, digest_of, rows_digest

if TYPE_CHECKING:
    from laconic.report.page.reading import RunView

MODEL, SUMMARY = "model.safetensors", "summary.json"
DESCRIPTION = ("config.toml", "records.toml", "preprocessing.toml", "vocabulary.txt", FRONT_END)
"""What a run is, in files that are written when it starts."""
FIGURES = "figures.json"
_KEPT = (MODEL, SUMMARY, STATEMENT, *DESCRIPTION)


def digests_of(folder: RunFolder) -> dict[str, str]:
    """Digests of the files that a run leaves behind: model, summary, statement, and what describes it."""
    found = {name: folder.read(name) for name in (*_KEPT, FIGURES)}
    return {name: digest_of(content) for name, content in found.items() if content is not None}


@dataclass(frozen=True)
class Finished:
    """A finished run whose files are those that it left behind."""

    folder: RunFolder
    summary: Summary
    history: list[Row]

    @property
    def path(self) -> Path:
        return self.folder.path


def finished_run(path: str | Path) -> Finished:
    """Check the folder as a resumed run would, and that its results were not changed since. Nothing is written."""
    folder = RunFolder(path)
    if not folder.exists:
        raise RunFolderError(f"{path} holds no run (there is no config.toml): give the folder of a finished run")
    saves = Journal(folder, "").saves  # follows the chain of digests
    go_on = f"go on with it first (laconic run --out {path} --resume, or the same call with resume=True)"
    if saves.ended is None or saves.confirmed is None:
        raise RunFolderError(f"{path} is not finished, or was by an earlier version of Laconic: {go_on}")
    lines = _checked_end(folder, saves, saves.ended, saves.confirmed)
    return Finished(folder, json.loads(folder.read(SUMMARY) or b"{}"), [json.loads(line) for line in lines])


def doubts(path: str | Path) -> str:
    """Check what can be checked of a folder that is shown, and say what cannot; "" where everything is.

    Of a finished run all is checked that `finished_run` checks. Of another one the journal, the state, and the rows
    and the statement that were saved with it.
    """
    folder = RunFolder(path)
    if folder.read(SAVES) is None and not any(b'"digest"' in line for line in folder.lines(CHARGES)):
        return "No digests were kept of this run, so nothing shows whether its files were changed since."
    saves = Journal(folder, "").saves
    if saves.ended is not None and saves.confirmed is not None:
        _checked_end(folder, saves, saves.ended, saves.confirmed)
        return ""
    bound = _checked_save(folder, saves)
    return (
        f"This run is not finished. Digests bind its first {bound} rounds; what is shown of later ones, and of figures"
        " beside the last save, may still change."
    )


def shown_run(path: Path) -> RunView:
    """What a page shows of a run, once its files are checked. A run whose files do not fit is refused."""
    from laconic.report.page.reading import read_run

    return replace(read_run(path), doubt=doubts(path))


def watched_run(path: Path) -> RunView:
    """The same for a page that is live: nothing is checked before the run has ended, and a refusal is shown."""
    from laconic.report.page.reading import RunView, read_run

    view = read_run(path)
    if not view.finished:
        return view
    try:
        return shown_run(path)
    except RunFolderError as error:
        return RunView(name=view.name, path=view.path, refused=str(error))


def _checked_end(folder: RunFolder, saves: Saves, ended: dict[str, str], confirmed: Save) -> list[bytes]:
    """The rows of a finished run; refused unless every file is the one that the run left behind."""
    for name, expected in {IDENTITY: saves.identity, STATE: confirmed.state, **ended}.items():
        _same(folder, name, expected)
    named = set(ended)
    if confirmed.best is not None:
        named.add(BEST)
        if folder.read(BEST) is not None:
            _same(folder, BEST, confirmed.best)
    _nothing_more(folder, named)
    lines = folder.lines(ROUNDS)
    if rows_digest(lines) != confirmed.rows:
        raise RunFolderError(f"{folder.path / ROUNDS} was edited or damaged since the run ended; {WAY_OUT}")
    return lines


def _checked_save(folder: RunFolder, saves: Saves) -> int:
    """Of how many rounds state, rows and statement are those of a save; refused if they are of none."""
    if saves.identity is not None and folder.read(IDENTITY) is not None:
        _same(folder, IDENTITY, saves.identity)
    state = folder.read(STATE)
    if state is None:
        if saves.confirmed is not None:
            _same(folder, STATE, saves.confirmed.state)
        return 0
    fitting = [save for save in saves.possible if save.state == digest_of(state)]
    if not fitting:
        raise RunFolderError(f"{folder.path / STATE} is not the state that was saved last; {WAY_OUT}")
    round, lines = fitting[0].round, folder.lines(ROUNDS)
    # The last row of a run that ends is completed when it is saved: after a kill it may be as it was before.
    if rows_digest(lines[:round]) not in [save.rows for save in saves.possible]:
        raise RunFolderError(f"{folder.path / ROUNDS} does not hold the rows that were saved last; {WAY_OUT}")
    statement, stated = folder.read(STATEMENT), [save.statement for save in saves.possible]
    if statement is not None and None not in stated and digest_of(statement) not in stated:
        raise RunFolderError(f"{folder.path / STATEMENT} is not the statement that was saved last; {WAY_OUT}")
    return round


def _nothing_more(folder: RunFolder, named: set[str]) -> None:
    """Refuse files that the run did not leave behind: they could change how records are prepared, or its weights."""
    for name in (*_KEPT, BEST):
        if name not in named and folder.read(name) is not None:
            raise RunFolderError(f"{folder.path / name} is not of this run: it was put there later; {WAY_OUT}")


def _same(folder: RunFolder, name: str, expected: str | None) -> None:
    content = folder.read(name)
    if content is None or digest_of(content) != expected:
        what = "is missing" if content is None else "was altered or damaged since the run ended"
        raise RunFolderError(f"{folder.path / name} {what}; {WAY_OUT}")
