"""A run passes each room of the house once: it is settled before its first round, and shown after its last one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import laconic
from laconic.cli.main import cli
from laconic.runner.run import Run

SOURCE = str(Path(laconic.__file__).parent)


@contextmanager
def traced(rooms: dict[str, set[str]], phase: list[str]) -> Iterator[None]:
    """Which packages and modules of Laconic are entered in each phase."""

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(SOURCE):
            room = frame.f_code.co_filename[len(SOURCE) + 1 :].partition("/")[0].removesuffix(".py")
            rooms.setdefault(phase[-1], set()).add(room)

    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)


def test_a_run_passes_each_room_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rooms: dict[str, set[str]] = {}
    phase = ["settled"]
    run = Run.run

    def in_rounds(self: Run, *arguments: Any) -> Any:
        phase.append("rounds")
        result = run(self, *arguments)
        phase.append("shown")
        return result

    monkeypatch.setattr(Run, "run", in_rounds)
    words = ["run", "fl-top-dp", "--num-clients", "20", "--sampling-rate", "0.5", "--rounds", "2", "--workers", "1"]
    words += ["--ratio", "0.1", "--public-records", "10", "--clip-norm", "1", "--noise-multiplier", "2", "--quiet"]
    words += ["--out", str(tmp_path / "run"), "--engine", "one-by-one"]
    with traced(rooms, phase):
        cli(words, standalone_mode=False)
    only_before = {"settings", "catalogue", "schemes", "options", "models"}
    assert only_before <= rooms["settled"]
    assert not rooms["rounds"] & (only_before - {"options"})  # the identity of a run asks the options
    assert {"clients", "train", "round", "server", "store", "runner", "report"} <= rooms["rounds"]
    assert not rooms["shown"] & {"clients", "train", "round", "server", "settings", "data", "catalogue"}
