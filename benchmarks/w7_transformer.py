"""W7: seconds per round of a small vision transformer, evaluation excluded."""

from __future__ import annotations

from typing import Any

from benchmarks.own_rounds import suite
from benchmarks.settings import Settings


def run(settings: Settings) -> dict[str, Any]:
    return suite("W7: rounds of a small vision transformer", "vision transformer", settings)
