"""What a node's process keeps in memory: its records, read once, and the work of the runs under way."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from laconic.data.population import Records
    from laconic.federation.node.training import NodeWork
    from laconic.federation.populations import Held

Signature = tuple[tuple[str, int, int, int], ...]


class KeptWork:
    """The work of the last few runs. A run that was dropped begins with its records again; nothing else is lost."""

    def __init__(self, most: int) -> None:
        self._most, self._kept = most, OrderedDict[bytes, "NodeWork"]()

    def of(self, run: bytes, make: Callable[[], NodeWork]) -> NodeWork:
        """The work of a run: the one that is kept, or a new one."""
        work = self._kept.pop(run, None) or make()
        self._kept[run] = work
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)
        return work

    def drop(self, run: bytes) -> None:
        self._kept.pop(run, None)


class KeptRecords:
    """Records that are read once. When a run begins they are read again, if their files have changed since.

    `path` is where they are; None, if only the loader knows that: then every run reads them. `of_patients` says whether
    they tell whose each is; None, if only the loader knows.
    """

    def __init__(
        self, load: Callable[[], Records | Held], path: Path | None, *, of_patients: bool | None = None
    ) -> None:
        self._load, self._path, self.of_patients = load, path, of_patients
        self._kept: tuple[Signature, Records | Held] | None = None

    def read(self) -> Records | Held:
        """The records as they are now."""
        if self._path is None:
            return self._load()
        now = signature(self._path)
        if self._kept is None or self._kept[0] != now:
            self._kept = None  # the old ones need not be in memory beside the new ones
            self._kept = (now, self._load())
        return self._kept[1]


def signature(path: Path) -> Signature:
    """Name, size, time of change and number of each file: what shows that records were changed."""
    return tuple(sorted(_stated(path)))


def _stated(path: Path) -> Iterator[tuple[str, int, int, int]]:
    files = [Path(folder) / name for folder, _, names in os.walk(path) for name in names] if path.is_dir() else [path]
    for file in files:
        try:
            found = file.stat()
        except OSError:
            continue  # whoever reads the records says what is wrong with them
        yield str(file), found.st_size, found.st_mtime_ns, found.st_ino
