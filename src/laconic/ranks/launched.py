"""Who started this process."""

from __future__ import annotations

import os


def under_torchrun() -> bool:
    """Whether torchrun did, so that this is one of the ranks of a run."""
    return "TORCHELASTIC_RUN_ID" in os.environ
