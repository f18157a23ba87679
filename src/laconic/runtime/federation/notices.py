"""What the server tells its people while a federation runs: which node did not do as asked, and why."""

from __future__ import annotations

from logging import WARNING, getLogger

from laconic.runtime.folder import RunFolder

_FILE = "notices.jsonl"
_LOG = getLogger("laconic.federation")


class Notices:
    """Rows of `notices.jsonl` in the run folder; also logged."""

    def __init__(self, folder: RunFolder | None = None) -> None:
        self._folder, self.round = folder, 0

    def add(self, client: int, reason: str, *, node: int | None = None) -> None:
        text = f"node {client}" + (f" ({node})" if node is not None else "") + f" {reason}"
        _LOG.log(WARNING, "%s", text)
        if self._folder:
            self._folder.append(_FILE, {"round": self.round, "client": client, "reason": reason, "text": text})
