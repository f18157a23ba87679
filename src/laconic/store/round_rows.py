"""The rows of finished rounds, with a digest of all of them, which every save names."""

from __future__ import annotations

import hashlib
from typing import Any

from laconic.store.folder import RunFolder, json_text

ROUNDS = "rounds.jsonl"


class RoundRows:
    """`rounds.jsonl` while a run goes on. `lines` are those to begin with: all others in the file are cut off."""

    def __init__(self, folder: RunFolder, lines: list[bytes]) -> None:
        self._folder = folder
        self._before, self._digest = _hash(lines[:-1]), _hash(lines)
        self._completed: bytes | None = None
        folder.keep_lines(ROUNDS, lines)

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    def append(self, row: dict[str, Any]) -> None:
        self._folder.append(ROUNDS, row)
        self._before = self._digest.copy()
        self._digest.update(_line(row) + b"\n")

    def complete(self, row: dict[str, Any]) -> None:
        """The last row has more to say. The file is changed by `flush`, once the new digest has been written down."""
        self._completed = _line(row)
        self._digest = self._before.copy()
        self._digest.update(self._completed + b"\n")

    def flush(self) -> None:
        if self._completed is not None:
            self._folder.keep_lines(ROUNDS, [*self._folder.lines(ROUNDS)[:-1], self._completed])
            self._completed = None


def rows_digest(lines: list[bytes]) -> str:
    return _hash(lines).hexdigest()


def _hash(lines: list[bytes]) -> hashlib.blake2b:
    return hashlib.blake2b(b"".join(line + b"\n" for line in lines), digest_size=16)


def _line(row: dict[str, Any]) -> bytes:
    return json_text(row).encode()
