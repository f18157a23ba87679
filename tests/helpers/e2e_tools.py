"""What the end-to-end tests share: the command as a process and inside this one, and what a run folder holds."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from laconic.cli.main import main

_SCRIPT = Path(sys.executable).with_name("laconic")
COMMAND = [str(_SCRIPT)] if _SCRIPT.exists() else [sys.executable, "-m", "laconic"]


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return strict_json(self.out)


def words(line: str) -> list[str]:
    """A command line as a list of arguments."""
    return line.split()


def process(*arguments: str, cwd: Path | None = None) -> Ended:
    """The command in a process of its own."""
    done = subprocess.run([*COMMAND, *arguments], cwd=cwd, capture_output=True, text=True, timeout=300, check=False)
    return Ended(done.returncode, done.stdout, done.stderr)


def call(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> Ended:
    """The command inside this process, which is faster; whatever it leaves changed here is put back."""
    capsys.readouterr()
    handler, path, code = signal.getsignal(signal.SIGTERM), list(sys.path), 0
    try:
        with mock.patch.object(sys, "argv", ["laconic", *map(str, arguments)]):
            main()
    except SystemExit as stop:
        code = int(stop.code or 0)
    finally:
        signal.signal(signal.SIGTERM, handler)
        sys.path[:] = path
    captured = capsys.readouterr()
    return Ended(code, captured.out, captured.err)


def strict_json(text: str) -> Any:
    """JSON as the standard has it: NaN and Infinity are refused."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def rows(path: Path) -> list[dict[str, Any]]:
    """The complete rows of a .jsonl file, none if it is not there."""
    if not path.exists():
        return []
    text = path.read_text()
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def rounds(folder: Path, *without: str) -> list[dict[str, Any]]:
    """The rows of the rounds, less the time that they took and the given keys."""
    return [{k: v for k, v in r.items() if k not in ("seconds", *without)} for r in rows(folder / "rounds.jsonl")]


def charges(folder: Path) -> dict[tuple[int, int], list[int]]:
    """The cohort of every charge, by (round, attempt)."""
    found = [((r["round"], r["attempt"]), r["cohort"]) for r in rows(folder / "charges.jsonl")]
    assert len(dict(found)) == len(found), "an attempt was charged twice"
    return dict(found)


def files(folder: Path) -> dict[str, bytes]:
    """All files below a folder with their content; the lock is no content."""
    found = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != ".lock")
    return {str(p.relative_to(folder)): p.read_bytes() for p in found}
