"""Growth curves: seconds and peak memory of a round against cohort, population, model size and ratio.

On a CPU every point is a process of its own, whose peak memory is that of all its processes. On a GPU the points share
a process, and the memory is the device's.
"""

from __future__ import annotations

import json
import statistics
import time
from typing import Any

from benchmarks.contest import Process, Unavailable, module, note
from benchmarks.settings import Settings

_SMALL = {"weights": 10_000, "lazy": True}
_SECONDS = 3  # of rounds at least: one of a few milliseconds says little
_CODES = 100_000  # the longest code of the curve over model sizes

CURVES: list[dict[str, Any]] = [
    {
        "axis": "cohort",
        "about": "W1's CNN, FL-STD-DP, one round with so many clients",
        "points": {n: {"scheme": "fl-std-dp", "cohort": n} for n in (10, 30, 100, 300, 1000)},
    },
    {
        "axis": "population",
        "about": "an MLP of 10,000 weights, FL-STD-DP, 100 clients a round out of so many that are made on demand",
        "points": {n: {"scheme": "fl-std-dp", "num_clients": n, **_SMALL} for n in (10**3, 10**4, 10**5, 10**6)},
    },
    {
        "axis": "weights",
        "about": f"an MLP of so many weights, FL-TOP, 10 clients a round, codes of at most {_CODES:,} values",
        "points": {
            n: {"scheme": "fl-top", "ratio": min(0.1, _CODES / n), "weights": n, "cohort": 10, "num_clients": 100}
            for n in (10**4, 10**5, 10**6, 10**7, 10**8)
        },
    },
    {
        "axis": "ratio, FL-TOP",
        "about": "W1's CNN, FL-TOP, 100 clients a round",
        "points": {r: {"scheme": "fl-top", "ratio": r} for r in (0.001, 0.005, 0.05, 0.5)},
    },
    {
        "axis": "ratio, FL-CS",
        "about": "W1's CNN, FL-CS with 50 iterations, 100 clients a round",
        "points": {r: {"scheme": "fl-cs", "ratio": r} for r in (0.01, 0.05, 0.1, 0.3)},
    },
]


def run(settings: Settings) -> dict[str, Any]:
    measure = _on_gpu if settings.on_gpu else _on_cpu
    curves = []
    for curve in CURVES[1:2] if settings.quick else CURVES:
        points = []
        for x, options in list(curve["points"].items())[: 2 if settings.quick else None]:
            try:
                points.append({"x": x, **measure({**options, "device": settings.device}, settings.repeats)})
                note(f"{curve['axis']} {x:g}: {points[-1]['seconds']:.4f} s, {points[-1]['peak_mb']:.0f} MB")
            except Unavailable as why:
                note(f"{curve['axis']} {x:g}: left out, {why}")
        curves.append({"axis": curve["axis"], "about": curve["about"], "points": points})
    memory = "peak memory on the GPU" if settings.on_gpu else "peak memory of all its processes"
    return {"title": "Growth", "about": f"Seconds a round, without evaluation, and {memory}.", "curves": curves}


def _on_cpu(options: dict[str, Any], repeats: int) -> dict[str, float]:
    process = Process("point", "laconic", module("laconic_rounds", json.dumps({**options, "warmups": 1})))
    process.start()
    try:
        answers = [process.measure(1)]
        while (spent := sum(a["seconds"] for a in answers)) < 10 and (len(answers) < repeats or spent < _SECONDS):
            answers.append(process.measure(1))
    finally:
        process.stop()
    return {
        "seconds": statistics.median(a["seconds"] for a in answers),
        "peak_mb": max(a["peak_mb"] for a in answers),
    }


def _on_gpu(options: dict[str, Any], repeats: int) -> dict[str, float]:
    import torch

    from benchmarks.laconic_rounds import paced_run

    warmups, stamps = 3, []
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()

    def round_done() -> bool:
        torch.cuda.synchronize()
        stamps.append(time.perf_counter())
        return len(stamps) < warmups + repeats

    paced_run(round_done, **options)
    laps = [after - before for before, after in zip(stamps[warmups - 1 :], stamps[warmups:], strict=False)]
    return {"seconds": statistics.median(laps), "peak_mb": torch.cuda.max_memory_allocated() / 1e6}
