"""W4: seconds per round of the CNN-LSTM for reviews (IMDB), evaluation excluded."""

from __future__ import annotations

from typing import Any

from benchmarks.contest import contest
from benchmarks.network_rounds import contenders
from benchmarks.settings import Settings

_STEPS = 5


def run(settings: Settings) -> dict[str, Any]:
    cohort = 100 if settings.on_gpu else 8
    work = {"cohort": cohort, "steps": _STEPS} if not settings.quick else {"cohort": 2, "steps": 1, "batch": 2}
    taking_part = contenders("cnn-lstm", settings.device, **work)
    return {
        "title": "W4: rounds of the CNN-LSTM",
        "about": f"402,701 weights, {cohort} clients × {_STEPS} steps × batches of 25 reviews of 400 words, Adam."
        " Seconds a round, without evaluation. The plain loop has torch's own LSTM, with logistic gates.",
        "ours": taking_part[0].name,
        **contest(taking_part, repeats=settings.repeats, count=5 if settings.on_gpu else 1),
    }
