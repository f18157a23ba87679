"""W2: an MLP on sparse records. Its contenders are in `w2_sparse.py`, which runs by itself."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from benchmarks.contest import ROOT, Unavailable, environment, row_of
from benchmarks.machine import cores
from benchmarks.settings import Settings

OURS = "laconic sparse-first"


def run(settings: Settings) -> dict[str, Any]:
    script = ROOT / "benchmarks" / "w2_sparse.py"
    if not script.exists():
        raise Unavailable("this checkout has no benchmarks/w2_sparse.py")
    if settings.on_gpu:
        raise Unavailable("it runs on a CPU")
    options = ["--clients", "2", "--steps", "2"] if settings.quick else []
    command = [sys.executable, str(script), "--json", "--threads", str(cores()), "--repeats", str(settings.repeats)]
    done = subprocess.run([*command, *options], cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise Unavailable("w2_sparse.py failed")
    measured = json.loads(done.stdout)
    return {
        "title": "W2: rounds of an MLP on sparse records",
        "about": "7280-200-200-1, 100 clients × 24 rows with about 30 ones each × 40 steps; seconds a round, training"
        " alone.",
        "ours": OURS,
        "contenders": [
            row_of(name, "laconic" if name.startswith("laconic") else "plain loop", seconds)
            for name, seconds in measured["all_seconds"].items()
        ],
        "skipped": {},
    }
