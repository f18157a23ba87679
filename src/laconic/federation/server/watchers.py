"""Who watches a server: events as JSON lines, figures for Prometheus, and warnings about nodes, for its operator.

`federation.metrics_port` and `federation.log_file` ask for them. They are for the operator alone: sizes of cohorts,
bytes and times show who took part, which the outsider's ε assumes to be secret.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from logging import WARNING, getLogger
from pathlib import Path

from laconic.metrics import TEST, columns
from laconic.observers.observer import Ended, Observer, Row, Started, Together
from laconic.operations import Endpoint, EventLog, counter, exposition, fields, gauge
from laconic.options.sections import FederationSection
from laconic.stopwatch import Stopwatch
from laconic.store.folder import RunFolder

_STATUS = ("waiting", "running", "finished", "interrupted", "failed")


class RunFigures(Observer):
    """Figures of a run, on a port that is open from the beginning, while the server still waits for nodes."""

    def __init__(self, port: int) -> None:
        self._lock = threading.Lock()
        self._status, self._rounds, self._row = "waiting", 0, dict[str, float]()
        self._totals = {"bytes_up": 0.0, "bytes_down": 0.0, "discarded": 0.0, "seconds": 0.0}
        self._answers = {"refused": 0, "missing": 0}
        self.stages: Mapping[str, float] = {}
        """Seconds by stage, as a stopwatch counts them."""
        self.endpoint = Endpoint(port, self.text)

    def start(self, run: Started) -> None:
        with self._lock:
            self._status, self._rounds = "running", run.rounds
            self._row["round"] = run.finished

    def row(self, row: Row) -> None:
        with self._lock:
            self._row |= {name: value for name, value in row.items() if isinstance(value, int | float)}
            for name in ("bytes_up", "bytes_down", "seconds"):
                self._totals[name] += row.get(name, 0)
            self._totals["discarded"] += "discarded" in row

    def unanswered(self, reason: str) -> None:
        """Count an answer that is missing: the node refused, or gave none."""
        with self._lock:
            self._answers["refused" if reason.startswith("refuses") else "missing"] += 1

    def end(self, run: Ended) -> None:
        with self._lock:
            self._status = run.status

    def close(self) -> None:
        self.endpoint.close()

    def text(self) -> str:
        """All figures, as Prometheus reads them."""
        with self._lock:
            row, totals, answers = dict(self._row), dict(self._totals), dict(self._answers)
            status, rounds = self._status, self._rounds
        states = gauge("laconic_run_status", "1 for what the run does now.")
        for name in _STATUS:
            states.add(name == status, status=name)
        metric = gauge("laconic_metric", "What was measured last on the server's own records.")
        for name in columns(TEST, released=True):
            if name in row:
                metric.add(row[name], metric=name)
        epsilon = gauge("laconic_epsilon", "Privacy spent so far, by who looks on.")
        for against, name in (("outsider", "epsilon"), ("server", "participant_epsilon")):
            if name in row:
                epsilon.add(math.nan if row[name] is None else row[name], against=against)
        stages = counter("laconic_stage_seconds_total", "Seconds of the server by stage; upload and unmask are waits.")
        for name, value in sorted(dict(self.stages).items()):
            stages.add(value, stage=name)
        sent = counter("laconic_payload_bytes_total", "Packed codes and weights, by direction.")
        sent.add(totals["bytes_up"], direction="up").add(totals["bytes_down"], direction="down")
        return exposition(
            [
                states,
                gauge("laconic_rounds_planned", "Rounds that the run is to have.", rounds),
                gauge("laconic_round", "The last finished round.", row.get("round", 0)),
                gauge("laconic_cohort", "Nodes that were drawn in the last round.", row.get("cohort")),
                sent,
                counter("laconic_round_seconds_total", "Seconds of all rounds.", totals["seconds"]),
                stages,
                counter("laconic_discarded_rounds_total", "Rounds whose sum was not opened.", totals["discarded"]),
                counter("laconic_refusals_total", "Answers of nodes that refused.", answers["refused"]),
                counter(
                    "laconic_missing_answers_total", "Answers that did not come, or were wrong.", answers["missing"]
                ),
                epsilon,
                metric,
            ]
        )


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
        known = {name: row[name] for name in sorted(row.keys() & fields()) if isinstance(row[name], str | int | float)}
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
        """Count seconds by stage, if figures are served or logged."""
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
    """Rows of `notices.jsonl` in the run folder; also logged, and told to observers."""

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
