"""Whole commands, from the start of Python to the report in the run folder."""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import Any

from benchmarks.contest import ROOT, Unavailable, contest, environment
from benchmarks.settings import Settings
from laconic.data.sources import SOURCES

_DEMO = "laconic run examples/digits.toml"
_FL_TOP_DP = (
    "laconic run fl-top-dp --ratio 0.005 --dataset fashion-mnist --num-clients 6000 --sampler as-published"
    " --cohort-size 100 --local-steps 5 --batch-size 10 --local-lr 0.215 --rounds 10 --clip-norm 0.61"
    " --noise-multiplier 1.54 --delta 1e-5 --public-records 10"
)


@dataclass
class Command:
    """A command, timed from outside."""

    name: str
    line: str
    group: str = "laconic"

    def start(self) -> None:
        pass

    def measure(self, count: int) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            words = [sys.executable, "-m", *shlex.split(self.line), "--out", f"{folder}/run", "--quiet"]
            started = time.perf_counter()
            done = subprocess.run(words, cwd=ROOT, env=environment(), capture_output=True, text=True)
            seconds = time.perf_counter() - started
        if done.returncode:
            raise Unavailable((done.stderr.strip().splitlines() or ["it said nothing"])[-1])
        return {"seconds": seconds}

    def stop(self) -> None:
        pass


def run(settings: Settings) -> dict[str, Any]:
    device = f" --device {settings.device}"
    demo = _DEMO + device + (" --rounds 2" if settings.quick else "")
    commands, skipped = [Command("the README's demo", demo)], {}
    name = "FL-TOP-DP, Fashion-MNIST, 10 rounds, each evaluated"
    if SOURCES["fashion-mnist"].locate() is None:
        skipped[name] = "Fashion-MNIST is not at hand: set LACONIC_DATA"
    elif not settings.quick:
        commands.append(Command(name, _FL_TOP_DP + device))
    return {
        "title": "Whole runs",
        "about": "Seconds from the start of the command to its end: starting Python, reading data, training, evaluation"
        " in every round, accounting, writing the run folder.",
        "commands": {c.name: c.line for c in commands},
        **contest(commands, repeats=min(3, settings.repeats), skipped=skipped),
    }
