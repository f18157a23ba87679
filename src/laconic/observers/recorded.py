"""`federation.log_file`: what happens in a run, as JSON lines for the server's operator."""

from __future__ import annotations

from laconic.observers.observer import Ended, Observer, Row, Started
from laconic.operations.events import FIELDS, EventLog


class RecordedEvents(Observer):
    """A line when the run starts, after each round, for each node that did not do as asked, and at the end."""

    def __init__(self, log: EventLog) -> None:
        self._log = log

    def start(self, run: Started) -> None:
        self._log.write(
            "run started", scheme=run.scheme, fingerprint=run.fingerprint, rounds=run.rounds, finished=run.finished
        )

    def row(self, row: Row) -> None:
        level = "warning" if "discarded" in row else "info"
        known = {name: value for name, value in row.items() if name in FIELDS and isinstance(value, str | int | float)}
        self._log.write("round finished", level=level, **known)

    def unanswered(self, round: int, client: int, node: int, reason: str) -> None:
        """A node did not do as asked. `node` is the carrier's number of it."""
        self._log.write("node failed", level="warning", round=round, client=client, node=str(node), reason=reason)

    def note(self, text: str) -> None:
        self._log.write("note", text=text)

    def end(self, run: Ended) -> None:
        reason = None if run.summary is None else run.summary.get("stop_reason")
        level = "error" if run.status == "failed" else "info"
        self._log.write("run ended", level=level, status=run.status, stop_reason=reason)

    def close(self) -> None:
        self._log.close()
