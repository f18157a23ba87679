"""W5: seconds per round of All-CNN-C for pictures (CIFAR-10), evaluation excluded."""

from __future__ import annotations

from typing import Any

from benchmarks.contest import contest
from benchmarks.network_rounds import contenders
from benchmarks.settings import Settings


def run(settings: Settings) -> dict[str, Any]:
    work = {"cohort": 100, "steps": 5, "batch": 50} if settings.on_gpu else {"cohort": 4, "steps": 2, "batch": 10}
    if settings.quick:
        work = {"cohort": 2, "steps": 1, "batch": 2}
    taking_part = contenders("all-cnn-c", settings.device, **work)
    return {
        "title": "W5: rounds of All-CNN-C",
        "about": f"1,369,738 weights, {work['cohort']} clients × {work['steps']} steps × batches of {work['batch']}"
        " pictures of 32 × 32, dropout 0.5, Adam. Seconds a round, without evaluation.",
        "ours": taking_part[0].name,
        **contest(taking_part, repeats=settings.repeats),
    }
