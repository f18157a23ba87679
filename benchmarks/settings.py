"""What a benchmark run was asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    """`quick` is a smoke test: it measures almost nothing. `peers` is where their environments are; None: no peers."""

    device: str = "cpu"
    engines: tuple[str, ...] = ("auto", "one-by-one")
    repeats: int = 5
    peers: Path | None = None
    quick: bool = False

    @property
    def on_gpu(self) -> bool:
        return self.device != "cpu"
