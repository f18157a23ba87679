"""Flower's programs as processes of ours: found beside this Python, kept quiet and running, and ended with us."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from laconic.errors import ConfigError, RunFolderError, how_to_install
from laconic.federation.trial import guard
from laconic.files import private_folder
from laconic.guard.keys.secret import KEY_FILE_VARIABLE, PASSPHRASE_VARIABLE

_WAIT_SECONDS = 30.0
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.5",
    "PYTHONUNBUFFERED": "1",
}
"""No telemetry, no questions to the internet; and a task waits for half a second at most, not a whole one."""


class Processes:
    """Processes that end when this object is closed, and also if this very process is killed.

    `lock` is a file that is theirs alone: the next process to want it waits until all of them have ended.
    """

    def __init__(self, lock: Path | None = None) -> None:
        self._started: list[tuple[int, subprocess.Popen[bytes]]] = []
        held = [] if lock is None else [_locked(lock)]
        self._guard = subprocess.Popen(
            [sys.executable, "-m", "laconic.federation.trial.guard"],
            stdin=subprocess.PIPE,
            start_new_session=True,
            pass_fds=held,  # the guard ends last, and the lock with it
        )
        for file in held:
            os.close(file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(
        self, name: str, *arguments: str, log: Path, home: Path, wave: int = 1, **variables: str
    ) -> subprocess.Popen[bytes]:
        """Start a program with a home of its own; what it prints goes to the log.

        In the end, processes of a later `wave` outlive those of an earlier one: nodes outlive the server.
        """
        with open(log, "ab") as output:
            process = subprocess.Popen(
                [program(name), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment(home) | variables,
                start_new_session=True,
            )
        self._started.append((wave, process))
        pipe: IO[bytes] | None = self._guard.stdin
        assert pipe is not None
        pipe.write(f"{wave} {process.pid}\n".encode())
        pipe.flush()
        return process

    def end(self, process: subprocess.Popen[bytes]) -> None:
        guard.end_groups([process.pid])

    def close(self) -> None:
        guard.end_in_waves((wave, process.pid) for wave, process in self._started)
        for _, process in self._started:
            process.wait()
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        self._guard.wait()


def _locked(path: Path) -> int:
    """The file, locked, once those who have it have ended."""
    private_folder(path.parent)
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    end = time.monotonic() + _WAIT_SECONDS
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except BlockingIOError:
            if time.monotonic() > end:
                os.close(file)
                raise RunFolderError(
                    f"another trial is running in {path.parent}: end it, or choose another ⟨out⟩"
                ) from None
        time.sleep(0.2)


def program(name: str) -> str:
    """The path of one of Flower's programs, or of this Python."""
    if name == "python":
        return sys.executable
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise ConfigError(f"{name} is not installed: {how_to_install('flower')}")
    return found


def environment(home: Path) -> dict[str, str]:
    """The environment of Flower's programs: quiet, with a home of their own, and with this Python's programs found."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    none = dict.fromkeys((KEY_FILE_VARIABLE, PASSPHRASE_VARIABLE), "")  # the keys of a trial are not encrypted
    return {**os.environ, **QUIET, **none, "FLWR_HOME": str(home), "PATH": path}


def free_port() -> int:
    """A port of 127.0.0.1 on which no process listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


Start = Callable[[], subprocess.Popen[bytes]]

HEALTHY = 30.0
"""Seconds after which a process counts as started well."""
PAUSES = (0.5, 2.0, 5.0)
"""Seconds before the first, the second, and every later start in a row."""
MOST_STARTS = 20
"""Starts in a row after which a process is left alone: more than the minute that a SuperLink may turn a node away."""


@dataclass
class _Kept:
    name: str
    start: Start
    process: subprocess.Popen[bytes]
    started: float
    in_a_row: int = 0
    """How often it ended before it was healthy."""
    due: float | None = None
    """When it is started again, if it has ended."""
    given_up: bool = False


class Keeper:
    """Starts processes, and starts them again when they end. `look` does it; it is called often and waits for nothing.

    On a host of its own an init system does the same, with Restart=always.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: dict[str, _Kept] = {}

    def keep(self, name: str, start: Start) -> None:
        """Start a process, and keep it running from now on."""
        self._kept[name] = _Kept(name, start, start(), self._clock())

    def process(self, name: str) -> subprocess.Popen[bytes]:
        return self._kept[name].process

    def look(self, on_notice: Callable[[str], None] = lambda text: None) -> None:
        """Start again what has ended and is due."""
        for kept in self._kept.values():
            self._look_at(kept, on_notice)

    def _look_at(self, kept: _Kept, on_notice: Callable[[str], None]) -> None:
        now = self._clock()
        status = kept.process.poll()
        if status is None or kept.given_up:
            return
        if kept.due is None:
            kept.in_a_row = 0 if now - kept.started >= HEALTHY else kept.in_a_row + 1
            kept.due = now + PAUSES[min(kept.in_a_row, len(PAUSES) - 1)]
            if kept.in_a_row <= 1:
                on_notice(f"{kept.name} ended ({_how(status)}) and is started again")
            if kept.in_a_row >= MOST_STARTS:
                kept.given_up = True
                on_notice(f"{kept.name} ended {kept.in_a_row} times in a row and is not started again")
        elif now >= kept.due:
            kept.due, kept.process, kept.started = None, kept.start(), self._clock()


def _how(status: int) -> str:
    return f"signal {-status}" if status < 0 else f"exit code {status}"
