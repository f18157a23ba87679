"""W6: seconds per round of a residual network with GroupNorm, evaluation excluded."""

from __future__ import annotations

from typing import Any

from benchmarks.own_rounds import suite
from benchmarks.settings import Settings


def run(settings: Settings) -> dict[str, Any]:
    return suite("W6: rounds of a residual network with GroupNorm", "resnet", settings)
