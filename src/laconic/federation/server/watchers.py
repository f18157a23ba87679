"""Who watches a server: a log of events and figures for Prometheus, where its options ask for them."""

from __future__ import annotations

from pathlib import Path

from laconic.observers.observer import Observer, Together
from laconic.observers.operator import RecordedEvents, RunFigures
from laconic.operations.events import EventLog
from laconic.options.sections import FederationSection
from laconic.stopwatch import Stopwatch


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
