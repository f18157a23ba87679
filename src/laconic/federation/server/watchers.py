"""Who watches a server: events, figures for Prometheus, and warnings about nodes for the operator."""

from __future__ import annotations

from collections.abc import Callable
from logging import WARNING, getLogger
from pathlib import Path

from laconic.observers.observer import Observer, Together
from laconic.observers.operator import RecordedEvents, RunFigures
from laconic.operations.events import EventLog
from laconic.options.sections import FederationSection
from laconic.stopwatch import Stopwatch
from laconic.store.folder import RunFolder


class Watchers:
    """`federation.log_file` and `federation.metrics_port`. A taken port is known before a node is asked."""

    def __init__(self, section: FederationSection) -> None:
        path = section.log_file
        log = None if path is None else EventLog(None if path == "-" else Path(path).expanduser())
        self.events = None if log is None else RecordedEvents(log)
        self.figures = None if section.metrics_port is None else RunFigures(section.metrics_port)

    @property
    def observer(self) -> Observer:
        return Together(*(one for one in (self.events, self.figures) if one is not None))

    def time(self, clock: Stopwatch) -> None:
        """Count seconds by stage, if anybody looks at them."""
        if self.figures is not None:
            clock.on = True
            self.figures.stages = clock.seconds

    def unanswered(self, round: int, client: int, node: int, reason: str) -> None:
        """A node did not do as asked."""
        if self.events is not None:
            self.events.unanswered(round, client, node, reason)
        if self.figures is not None:
            self.figures.unanswered(reason)

    def close(self) -> None:
        for one in (self.events, self.figures):
            if one is not None:
                one.close()


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
