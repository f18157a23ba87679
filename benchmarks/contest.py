"""Contenders in processes of their own, and turns: A B C A B C …, so that other load on the machine hits all alike."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from benchmarks.pacing import MARK
from benchmarks.processes import end, family, peak_megabytes

ROOT = Path(__file__).parents[1]


class Unavailable(Exception):
    """A contender that cannot take part, and why."""


class Contender(Protocol):
    """What takes turns. `group` names whose it is: 'laconic', or a peer."""

    name: str
    group: str

    def start(self) -> None: ...
    def measure(self, count: int) -> dict[str, Any]: ...
    def stop(self) -> None: ...


@dataclass
class Process:
    """A contender that obeys `pacing.Pacer`. With `resident=False` it lives only while it is measured."""

    name: str
    group: str
    command: Sequence[str]
    threads: int | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    resident: bool = True
    patience: float = 600.0

    def start(self) -> None:
        if self.resident:
            self._launch()

    def measure(self, count: int) -> dict[str, Any]:
        if not self.resident:
            self._launch()
        try:
            self._running.stdin.write(f"{count}\n".encode())
            self._running.stdin.flush()
            answer = self._answer()
            return answer | {"peak_mb": peak_megabytes(self._running.pid)}
        except BrokenPipeError:
            raise Unavailable(f"ended early: {self._last_words()}") from None
        finally:
            if not self.resident:
                self.stop()

    def stop(self) -> None:
        """End it by closing its input; what is left of its family after a while is killed."""
        if not hasattr(self, "_running"):
            return
        members = family(self._running.pid)
        with contextlib.suppress(BrokenPipeError):
            self._running.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._running.wait(min(20, self.patience))
        end(members)
        self._running.kill()
        self._running.wait()
        self._running.stdout.close()
        self._errors.close()
        del self._running

    def _launch(self) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `stop`)
        self._buffer = b""
        self._running = subprocess.Popen(
            self.command,
            cwd=ROOT,
            env=environment(self.threads) | self.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        self._answer()

    def _answer(self) -> dict[str, Any]:
        """The next line that is an answer, within our patience."""
        deadline = time.monotonic() + self.patience
        with selectors.DefaultSelector() as selector:
            selector.register(self._running.stdout, selectors.EVENT_READ)
            while time.monotonic() < deadline:
                line, newline, rest = self._buffer.partition(b"\n")
                if newline:
                    self._buffer = rest
                    if line.startswith(MARK.encode()):
                        return json.loads(line[len(MARK) :])
                    continue
                if selector.select(deadline - time.monotonic()):
                    read = os.read(self._running.stdout.fileno(), 1 << 16)
                    if not read:
                        raise Unavailable(f"ended early: {self._last_words()}")
                    self._buffer += read
        raise Unavailable(f"no answer within {self.patience:g} s: {self._last_words()}")

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        telling = [line for line in lines if "Error" in line] or lines
        return telling[-1][:200] if telling else "it said nothing"


def environment(threads: int | None = None) -> dict[str, str]:
    """The environment of a contender: this checkout on the path, and so many threads."""
    path = [str(ROOT), str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = dict(os.environ) | {"PYTHONPATH": os.pathsep.join(path)}
    if threads is not None:
        env |= {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads)}
    return env


def module(name: str, *arguments: str, python: str = sys.executable) -> list[str]:
    """The command that runs a module of this package."""
    return [python, "-m", f"benchmarks.{name}", *arguments]


def interleaved(
    contenders: Sequence[Contender], *, repeats: int, count: int = 1
) -> tuple[dict[str, list[dict[str, Any]]], dict[str, str]]:
    """(answers by name, why some gave none). Each of `repeats` turns measures every contender once."""
    answers: dict[str, list[dict[str, Any]]] = {c.name: [] for c in contenders}
    skipped: dict[str, str] = {}
    taking_part: list[Contender] = []
    try:
        for contender in contenders:  # one after the other: a contender may calibrate itself when it starts
            note(f"starting {contender.name}")
            try:
                taking_part.append(contender)
                contender.start()
            except (Unavailable, OSError) as problem:
                skipped[contender.name] = str(problem)
        for turn in range(1, repeats + 1):
            for contender in contenders:
                if contender.name in skipped:
                    continue
                try:
                    answers[contender.name].append(contender.measure(count))
                    note(f"{turn}/{repeats} {contender.name}: {answers[contender.name][-1]['seconds']:.4f} s")
                except (Unavailable, OSError) as problem:
                    skipped[contender.name] = str(problem)
    finally:
        for contender in taking_part:
            contender.stop()
    for name, why in skipped.items():
        note(f"left out {name}: {why}")
    return {name: given for name, given in answers.items() if name not in skipped}, skipped


def contest(
    contenders: Sequence[Contender], *, repeats: int, count: int = 1, skipped: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The results of a suite: every contender's seconds and their median, and who was left out."""
    answers, lost = interleaved(contenders, repeats=repeats, count=count)
    rows = [
        row_of(c.name, c.group, [a["seconds"] for a in answers[c.name]])
        | {key: max(a[key] for a in answers[c.name]) for key in answers[c.name][0] if key != "seconds"}
        for c in contenders
        if c.name in answers
    ]
    return {"contenders": rows, "skipped": dict(skipped or {}) | lost}


def row_of(name: str, group: str, seconds: Sequence[float]) -> dict[str, Any]:
    return {"name": name, "group": group, "seconds": list(seconds), "median": statistics.median(seconds)}


def note(text: str) -> None:
    """Progress, for whoever waits."""
    print(text, file=sys.stderr, flush=True)
