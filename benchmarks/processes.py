"""A process and all its descendants, from /proc: their peak memory, and their end. Elsewhere than on Linux, none."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

PROC = Path("/proc")


def family(pid: int) -> dict[int, str]:
    """The process, those it has started, and theirs, as far as they live; each with the time of its birth."""
    parents = {int(p.name): _status_number(int(p.name), "PPid:") for p in PROC.glob("[0-9]*")}
    found, front = [pid], [pid]
    while front:
        front = [child for child, parent in parents.items() if parent in front]
        found += front
    return {member: _born(member) for member in found}


def peak_megabytes(pid: int) -> float:
    """The sum of the family's peaks of resident memory, in MB: an upper bound, since they may share pages."""
    return sum(_status_number(member, "VmHWM:") for member in family(pid)) * 1024 / 1e6


def end(members: dict[int, str]) -> None:
    """Kill those of a family that are still there. A number may have gone to another process; its birth tells."""
    for pid, born in members.items():
        if born and _born(pid) == born:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _born(pid: int) -> str:
    """The start time in clock ticks; empty if there is no such process."""
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def _status_number(pid: int, field: str) -> int:
    try:
        lines = (PROC / str(pid) / "status").read_text().splitlines()
    except OSError:  # it has ended, or there is no /proc
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(field)), 0)
