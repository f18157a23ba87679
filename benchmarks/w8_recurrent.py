"""W8: seconds per round of a CNN-LSTM of torch's own layers, evaluation excluded."""

from __future__ import annotations

from typing import Any

from benchmarks.own_rounds import suite
from benchmarks.settings import Settings


def run(settings: Settings) -> dict[str, Any]:
    return suite("W8: rounds of a CNN-LSTM of torch's own layers", "cnn-lstm of torch", settings)
