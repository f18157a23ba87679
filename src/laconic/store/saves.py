"""The rows of finished rounds, and what was saved when: the journal of checkpoints, in one chain with the charges.

A save is announced before any file is replaced, and confirmed afterwards. So after a kill the files are those of the
last confirmed save or of the announced one, and anything else was put there by somebody.

Each of these rows also says through which round the run may go before it saves again, and in which environment. So a
tail of charges cannot be lost without a trace: what may have been charged since the last save is known from the save.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from laconic.errors import RunFolderError
from laconic.store.chain import SAVES, WAY_OUT, Chain
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
