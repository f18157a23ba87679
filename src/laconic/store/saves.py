"""The rows of finished rounds, and what was saved when: the journal of checkpoints, in one chain with the charges.

A save is announced before any file is replaced, and confirmed afterwards. So after a kill the files are those of the
last confirmed save or of the announced one, and anything else was put there from outside.

Each of these rows also says through which round the run may go before it saves again, and in which environment. So a
tail of charges cannot be lost without a trace: what may have been charged since the last save is known from the save.

*The chain* of digests goes through the charges and the saves of a run. Every row of `charges.jsonl` and of
`checkpoint/saves.jsonl` has a digest of itself and names, as `after`, that of the row before it, in whichever of the
two files. So all rows have one order, and one that was changed, dropped or moved fits nowhere. It is no signature:
against an attacker who writes a whole new folder it does not help.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

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


T = TypeVar("T")


@dataclass(frozen=True)
class Save:
    """Digests of what belongs together after some round."""

    round: int
    state: str
    rows: str
    best: str | None
    """Of `best.safetensors`; None before there is a best round."""
    statement: str | None = None
    """Of `privacy.json`; None in folders of earlier versions."""
    through: int | None = None
    """The last round that may be charged before the next save; None in folders of earlier versions."""
    environment: str | None = None
    """That of the process that saved."""


class Saves:
    """The saves of a run; without a chain nothing is kept."""

    def __init__(self, chain: Chain | None) -> None:
        self._chain = chain
        self.identity: str | None = None
        """The digest of what makes this run this run; None before it has begun."""
        self.rounds = 0
        """How many are planned."""
        self.confirmed: Save | None = None
        self.announced: Save | None = None
        """A save that may not have been finished."""
        self.through: int | None = None
        """The last round that may be charged before the next save, by the row that was written last."""
        self.environment: str | None = None
        """In which environment it may be."""
        self.ended: dict[str, str] | None = None
        """Digests, by name, of the files of a finished run; None while it goes on."""
        for number, row in enumerate((row for name, row in (chain.links if chain else []) if name == SAVES), 1):
            try:
                self._take(row)
            except (KeyError, TypeError, ValueError, AttributeError):
                assert chain is not None
                raise RunFolderError(
                    f"{chain.folder.path / SAVES}, line {number}, is no row of a save: it was altered; {WAY_OUT}"
                ) from None

    def begin(self, identity: str, rounds: int, through: int, environment: str) -> None:
        """The first row of all; or that more rounds are planned than before."""
        if self.identity is None:
            row = {"what": "begun", "identity": identity, "rounds": rounds}
            self._add(row | {"through": through, "environment": environment})
        elif rounds > self.rounds:
            self._add({"what": "grown", "rounds": rounds})

    def announce(self, save: Save) -> None:
        self._add({"what": "saving", **asdict(save)})

    def confirm(self) -> None:
        assert self.announced is not None
        self._add({"what": "saved", "round": self.announced.round})

    def end(self, files: dict[str, str]) -> None:
        """The run is finished, and these are its files with their digests."""
        if self.ended != files:
            self._add({"what": "ended", "files": files})

    def announced_round(self, round: int, environment: str) -> bool:
        """Whether this round may be charged in this environment before there is another save."""
        return self.environment == environment and self.through is not None and round <= self.through

    @property
    def possible(self) -> list[Save]:
        """The saves that files can be of, the later one first."""
        return [save for save in (self.announced, self.confirmed) if save is not None]

    def _add(self, row: dict[str, Any]) -> None:
        assert self._chain is not None
        self._chain.add(SAVES, row)
        self._take(row)

    def _take(self, row: dict[str, Any]) -> None:
        what = row["what"]
        if (what == "begun") != (self.identity is None):
            raise ValueError
        if what == "begun":
            self.identity, self.rounds = _text(row["identity"]), _count(row["rounds"], 1)
            self._look_ahead(row)
        elif what == "grown":
            self.rounds, self.ended = max(self.rounds, _count(row["rounds"], 1)), None
        elif what == "ended":
            self.ended = {_text(name): _text(digest) for name, digest in row["files"].items()}
        elif what == "saving":
            self.ended = None
            self.announced = Save(
                round=_count(row["round"]),
                state=_text(row["state"]),
                rows=_text(row["rows"]),
                best=_optional(_text, row["best"]),
                statement=_optional(_text, row.get("statement")),
                through=_optional(_count, row.get("through")),
                environment=_optional(_text, row.get("environment")),
            )
            self._look_ahead(row)
        elif what == "saved" and self.announced is not None and self.announced.round == row["round"]:
            self.confirmed, self.announced = self.announced, None
        else:
            raise ValueError

    def _look_ahead(self, row: dict[str, Any]) -> None:
        self.through = _optional(_count, row.get("through"))
        self.environment = _optional(_text, row.get("environment"))


def _optional(kind: Callable[[Any], T], value: Any) -> T | None:
    return None if value is None else kind(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _count(value: Any, least: int = 0) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError
    return value
