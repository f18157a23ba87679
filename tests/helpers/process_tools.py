"""What the tests of federations of real processes share: configurations, the command, and the processes of a trial."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from e2e_tools import COMMAND, rounds

from laconic.federation.entropy import TEST_SEED
from laconic.settings.config import RunConfig, write_toml

SEED = 3
BASE = {
    "run.seed": SEED,
    "run.rounds": 2,
    "run.engine": "one-by-one",
    "run.workers": 1,
    "run.threads": 1,
    "run.device": "cpu",
    "data.dataset": "synthetic",
    "data.num_clients": 5,
    "sampler.sampling_rate": 1.0,
    "federation.nodes": 5,
    "federation.join_timeout": 240.0,
    "federation.round_timeout": 240.0,
}
PRIVATE = {"scheme.clip_norm": 0.5, "scheme.noise_multiplier": 1.0}


def write_config(path: Path, **changes: Any) -> Path:
    """A configuration like `BASE`; a key is left out if it is changed to None."""
    values = BASE | {name.replace("__", "."): value for name, value in changes.items()}
    given = {name: value for name, value in values.items() if value is not None}
    path.write_text(write_toml(RunConfig().with_values(given).to_dict()))
    return path


_UNNAMED = (
    "import laconic.clients.simulated as s; s.noise_name = lambda experiment: '';"
    " from laconic.cli.main import main; main()"
)
"""A simulation whose noise is not named after its data, which the nodes of a federation do not know of each other."""


def laconic(
    *arguments: str, cwd: Path, seed: bool = False, unnamed: bool = False, timeout: float = 600
) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name != TEST_SEED}
    env |= {TEST_SEED: str(SEED)} if seed else {}
    command = [sys.executable, "-c", _UNNAMED] if unnamed else COMMAND
    return subprocess.run(
        [*command, *arguments], cwd=cwd, env=env, capture_output=True, text=True, timeout=timeout, check=False
    )


def left_behind(folder: Path) -> list[str]:
    """Processes of a trial that still run, in words."""
    return list(_running(folder).values())


def pids_of(folder: Path) -> list[int]:
    return list(_running(folder))


def _running(folder: Path) -> dict[int, str]:
    """Processes whose environment or arguments name the folder."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            text = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
            state = (process / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if str(folder).encode() in text and state != "Z" and process.name != str(os.getpid()):
            found[int(process.name)] = text[:200].decode(errors="replace")
    return found


def wait_until_gone(folder: Path, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while left := left_behind(folder):
        assert time.monotonic() < end, left
        time.sleep(0.2)


def children_of(parent: int) -> list[int]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            text = (process / "stat").read_text()
        except OSError:
            continue
        if int(text.rpartition(")")[2].split()[1]) == parent:
            found.append(int(process.name))
    return found


@contextmanager
def started(command: list[str], cwd: Path) -> Iterator[subprocess.Popen[str]]:
    """The command, which Ctrl-C can reach even if this process was started in the background; ended with the block."""
    with subprocess.Popen(
        command,
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,
    ) as running:
        try:
            yield running
        finally:
            running.terminate()


def wait_for_rounds(folder: Path, count: int, seconds: float = 400) -> None:
    end = time.monotonic() + seconds
    while len(rounds(folder)) < count:
        assert time.monotonic() < end, (folder / "federation/link/log.txt").read_text()[-2000:]
        time.sleep(0.2)


def kill(*words: str) -> None:
    """Kill the one process whose command line has all these words, and no signal that it could handle."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
        except OSError:
            continue
        if all(word in line for word in words):
            found[int(process.name)] = line
    assert len(found) == 1, found
    os.kill(next(iter(found)), signal.SIGKILL)
