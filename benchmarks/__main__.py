"""Run the benchmarks and write what was measured as JSON.

    python -m benchmarks [--only w1,w3] [--device cuda] [--peers FOLDER] [--out results.json]
    python -m benchmarks.report results.json …

Contenders take turns, so that other load on the machine hits all alike. Peers take part if their environments are
there (python -m benchmarks.peers.setup); the others are left out with a word.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import time
from pathlib import Path
from typing import Any

from benchmarks.contest import Unavailable, note
from benchmarks.machine import machine
from benchmarks.peers.environments import DEFAULT, versions
from benchmarks.settings import Settings

SUITES = {
    "w1": "w1_rounds",
    "w2": "w2_rounds",
    "w3": "w3_decoding",
    "w4": "w4_words",
    "w5": "w5_pictures",
    "w6": "w6_resnet",
    "w7": "w7_transformer",
    "w8": "w8_recurrent",
    "w9": "w9_everybody",
    "noise": "noise",
    "masks": "masks",
    "e2e": "end_to_end",
    "growth": "growth",
}
ON_GPU = ("w1", "w3", "w4", "w5", "w6", "w7", "w8", "noise", "growth")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", help=f"some of {','.join(SUITES)}  [all; on a GPU {','.join(ON_GPU)}]")
    parser.add_argument("--device", default="cpu", help="cpu or cuda  [cpu]")
    parser.add_argument("--engines", default="auto,one-by-one", help="Laconic's engines for W1 on a CPU")
    parser.add_argument("--repeats", type=int, help="turns of each contender  [5]")
    parser.add_argument("--peers", type=Path, default=DEFAULT, help="folder of the peers' environments")
    parser.add_argument("--no-peers", action="store_true", help="leave the peers out")
    parser.add_argument("--quick", action="store_true", help="a smoke test: one turn of little")
    parser.add_argument("--out", type=Path, default=Path("results.json"), help="[results.json]")
    options = parser.parse_args(arguments)
    every = SUITES if options.device == "cpu" else ON_GPU
    chosen = options.only.split(",") if options.only else list(every)
    for name in set(chosen) - set(SUITES):
        parser.error(f"--only {name}: choose from {', '.join(SUITES)}")
    settings = Settings(
        device=options.device,
        engines=tuple(options.engines.split(",")),
        repeats=options.repeats or (1 if options.quick else 5),
        peers=None if options.no_peers else options.peers,
        quick=options.quick,
    )
    results: dict[str, Any] = {
        "device": settings.device,
        "quick": settings.quick,
        "repeats": settings.repeats,
        "machine": machine(settings.device),
        "peers": versions(settings.peers),
        "suites": {},
    }
    for name in chosen:
        note(f"== {name}")
        started = time.monotonic()
        try:
            suite = importlib.import_module(f"benchmarks.{SUITES[name]}").run(settings)
        except Unavailable as why:
            note(f"left out: {why}")
            suite = {"title": name, "left_out": str(why)}
        results["suites"][name] = suite | {"took": time.monotonic() - started, "load_after": os.getloadavg()[0]}
        options.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")  # after each: a run is long
    note(f"wrote {options.out}")


if __name__ == "__main__":
    main()
