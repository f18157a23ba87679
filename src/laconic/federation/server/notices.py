"""What the operator of the server is told while a federation runs: which node did not do as asked, and why."""

from __future__ import annotations

from logging import WARNING, getLogger

from laconic.store.folder import RunFolder

_FILE = "notices.jsonl"
_LOG = getLogger("laconic.federation")


class Notices:
    """Rows of `notices.jsonl` in the run folder; also logged."""

    def __init__(self, folder: RunFolder | None = None) -> None:
        self._folder = folder

    def add(self, round: int, client: int, node: int, reason: str) -> None:
        """`node` is the carrier's name for the client; round 0 is before the first one."""
        _LOG.log(WARNING, "round %d: node %d (%d) %s", round, client, node, reason)
        if self._folder:
            self._folder.append(_FILE, {"round": round, "client": client, "node": str(node), "reason": reason})
