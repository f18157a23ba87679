"""One chain of digests through the charges and the saves of a run.

Every row of `charges.jsonl` and of `checkpoint/saves.jsonl` has a digest of itself and names, as `after`, that of the
row before it, in whichever of the two files. So all rows have one order, and one that was changed, dropped or moved
fits nowhere. It is no signature: against whoever writes a whole new folder it does not help.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from laconic.errors import RunFolderError
from laconic.store.folder import RunFolder, json_text

CHARGES = "charges.jsonl"
SAVES = "checkpoint/saves.jsonl"
_FILES = (SAVES, CHARGES)
WAY_OUT = "restore the folder from a copy, or start a new run with another ⟨out⟩"


def digest_of(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


class Chain:
    """The rows of both files in the order in which they were written. Nothing is changed until `open`."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self.head = ""
        """The digest of the last row."""
        self.links: list[tuple[str, dict[str, Any]]] = []
        """(file, row) of every row."""
        self.digests = {""}
        """Of every row, and of none."""
        self._lines = {name: folder.lines(name) for name in _FILES}
        self._follow()

    def open(self) -> None:
        """Cut off what a kill left of a last row, so that more can be added."""
        for name, lines in self._lines.items():
            self.folder.keep_lines(name, lines)

    def check_in_place(self) -> None:
        """Refuse to go on if the files are no longer the ones that were written so far."""
        for name in _FILES:
            self.folder.check_in_place(name)

    def add(self, name: str, row: dict[str, Any]) -> None:
        """Write a row down, after all that was written so far."""
        self.check_in_place()
        row = row | {"after": self.head}
        self.head = _digest_of_row(row)
        self.folder.append(name, row | {"digest": self.head})

    def _follow(self) -> None:
        rows = {
            name: [self._parsed(name, number, line) for number, line in enumerate(self._lines[name], 1)]
            for name in _FILES
        }
        done = dict.fromkeys(_FILES, 0)
        while open_ := [name for name in _FILES if done[name] < len(rows[name])]:
            fitting = [name for name in open_ if rows[name][done[name]]["after"] == self.head]
            if not fitting:
                raise RunFolderError(
                    f"{self.folder.path / open_[-1]}, line {done[open_[-1]] + 1}, does not follow from the rows before"
                    f" it: rows of it or of {_other(open_[-1])} are missing or were moved; {WAY_OUT}"
                )
            row = rows[fitting[0]][done[fitting[0]]]
            done[fitting[0]] += 1
            self.head = row.pop("digest")
            self.digests.add(self.head)
            self.links.append((fitting[0], row))

    def _parsed(self, name: str, number: int, line: bytes) -> dict[str, Any]:
        try:
            row = json.loads(line)
            if not isinstance(row, dict) or not isinstance(row["after"], str):
                raise ValueError
            if _digest_of_row({key: value for key, value in row.items() if key != "digest"}) != row["digest"]:
                raise ValueError
        except KeyError as error:
            raise RunFolderError(
                f"{self.folder.path / name}, line {number}, has no {error.args[0]}: it was altered, or is from an"
                f" earlier version of Laconic, which alone can go on with it; {WAY_OUT}"
            ) from None
        except (ValueError, RecursionError):
            raise RunFolderError(
                f"{self.folder.path / name}, line {number}, was altered or damaged (its digest does not fit); {WAY_OUT}"
            ) from None
        return row


def _digest_of_row(row: dict[str, Any]) -> str:
    return digest_of(json_text(row).encode())


def _other(name: str) -> str:
    return CHARGES if name == SAVES else SAVES
