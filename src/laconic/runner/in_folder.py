"""A run in a folder: new, or from where the last one there stopped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from laconic.runner.run import Run
from laconic.store.folder import RunFolder


@contextmanager
def run_in(folder: RunFolder, run: Run, files: Mapping[str, str]) -> Iterator[Run]:
    """The run, ready to go on. The folder is locked inside the block; `files` say what the run is."""
    run.spending.check_first_round()
    folder.open()
    try:
        prepare(folder, run, files)
        yield run
    finally:
        folder.close()


def prepare(folder: RunFolder, run: Run, files: Mapping[str, str]) -> None:
    """Let the run write into the open folder."""
    run.folder = folder
    if folder.exists:
        run.begin()  # what may refuse to go on comes before anything is changed
    for name, text in files.items():
        folder.write(name, text)
