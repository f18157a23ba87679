"""One run in several processes: `torchrun --nproc-per-node 4 -m laconic run …`.

group  `Ranks`: the processes of a run, and bytes and tensors between them; plans, chunks and errors as JSON
start  how `laconic run` begins under torchrun, the same settings for every rank; `RankedClients` train some chunks each
"""

from __future__ import annotations

import os


def under_torchrun() -> bool:
    """Whether torchrun started this process, so that it is one of the ranks of a run."""
    return "TORCHELASTIC_RUN_ID" in os.environ
