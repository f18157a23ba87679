"""The front end in a run folder: kept when a run starts, read when it goes on."""

from __future__ import annotations

from torch import nn

from laconic.features.base import FrontEnd
from laconic.store.folder import FRONT_END, RunFolder


def keep_front_end(folder: RunFolder, front_end: nn.Module | None) -> None:
    """Write it into the folder of a run that starts: computed again elsewhere, its numbers could differ."""
    if isinstance(front_end, FrontEnd) and not (folder.path / FRONT_END).exists():
        folder.write(FRONT_END, front_end.to_bytes())
