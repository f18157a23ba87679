"""Several ranks in one process: threads that talk over gloo on loopback, as the processes of torchrun do."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import torch.distributed as dist

from laconic.ranks.group import Ranks

Result = TypeVar("Result")


def together(meeting: Path, size: int, first: Callable[[Ranks], Result], others: Callable[[Ranks], object]) -> Result:
    """What rank 0 returns while the others do their part; a file is where they meet."""

    def join(rank: int) -> Ranks:
        store = dist.FileStore(str(meeting), size)
        return Ranks(dist.ProcessGroupGloo(store, rank, size, timedelta(seconds=60)))

    def follow(rank: int) -> None:
        try:
            others(join(rank))
        except BaseException as error:
            failed.append(error)

    failed: list[BaseException] = []
    threads = [threading.Thread(target=follow, args=(rank,)) for rank in range(1, size)]
    for thread in threads:
        thread.start()
    try:
        ranks = join(0)
        with ranks.dismissed():
            return first(ranks)
    finally:
        for thread in threads:
            thread.join(60)
        assert not failed, failed
        assert not any(thread.is_alive() for thread in threads)
