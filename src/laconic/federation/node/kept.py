"""What a node keeps: in memory its records, read once, and the work of its runs; in its folder its last answers.

An answer is kept before it is sent: asked the same once more, a node sends the same bytes. A courier or the node's
process may die between the answer and its way out. A second vector in the same attempt would be refused, and the node
would be missing in that round. The same bytes tell the server nothing new. They are kept under the digest of the whole
question and of the policy: after a change of the policy nothing is repeated.
"""

from __future__ import annotations

import hashlib
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laconic.federation.requests import Fields
from laconic.guard.folder import NodeFolder
from laconic.secagg.terms import RUN_BYTES

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
            continue  # the reader of the records says what is wrong with them
        yield str(file), found.st_size, found.st_mtime_ns, found.st_ino


_DIGEST = 32


class LastAnswers:
    """The last answers of a node, one for each run and kind of message."""

    def __init__(self, folder: NodeFolder, policy: bytes) -> None:
        self._folder, self._policy = folder, policy

    def known(self, kind: str, fields: Mapping[str, Any]) -> Fields | None:
        """What this node has answered to exactly this, if that was its last answer of the kind."""
        run = _run(kind, fields)
        kept = None if run is None else self._folder.kept(run, f"answer-{kind}")
        if kept is None or kept[:_DIGEST] != self._digest(kind, fields):
            return None
        name, _, data = kept[_DIGEST:].partition(b"\n")
        return {name.decode(): data}

    def keep(self, kind: str, fields: Mapping[str, Any], answer: Fields) -> None:
        run = _run(kind, fields)
        if run is None:
            return
        ((name, data),) = answer.items()
        assert isinstance(data, bytes)
        self._folder.keep(run, f"answer-{kind}", self._digest(kind, fields) + name.encode() + b"\n" + data)

    def _digest(self, kind: str, fields: Mapping[str, Any]) -> bytes:
        digest = hashlib.sha256(self._policy)
        for text in (kind, *(part for name in sorted(fields) for part in (name, fields[name]))):
            data = text if isinstance(text, bytes) else f"{type(text).__name__} {text}".encode()
            digest.update(len(data).to_bytes(8, "little") + data)
        return digest.digest()


def _run(kind: str, fields: Mapping[str, Any]) -> bytes | None:
    """The run of a message whose answer is kept. An offer names its own, and what is ready now may not be so later."""
    run = None if kind in ("keys", "ready") else fields.get("run")
    return run if isinstance(run, bytes) and len(run) == RUN_BYTES else None
