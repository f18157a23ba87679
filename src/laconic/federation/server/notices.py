"""What the operator of the server is told while a federation runs: which node did not do as asked, and why."""

from __future__ import annotations

from collections.abc import Callable
from logging import WARNING, getLogger

from laconic.store.folder import RunFolder

_FILE = "notices.jsonl"
_LOG = getLogger("laconic.federation")


class Notices:
    """Rows of `notices.jsonl` in the run folder; also logged, and told to whoever watches."""

    def __init__(
        self, folder: RunFolder | None = None, watch: Callable[[int, int, int, str], None] = lambda *notice: None
    ) -> None:
        self._folder, self._watch = folder, watch

    def add(self, round: int, client: int, node: int, reason: str) -> None:
        """`node` is the carrier's name for the client; round 0 is before the first one."""
        self._watch(round, client, node, reason)
        _LOG.log(WARNING, "round %d: node %d (%d) %s", round, client, node, reason)
        if self._folder:
            self._folder.append(_FILE, {"round": round, "client": client, "node": str(node), "reason": reason})
