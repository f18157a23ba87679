"""A node that is watched: every message is counted and logged, with nothing of what was in it; figures for Prometheus.

The figures say what the node's own log says, and what this process has answered. They are for the node's owner alone:
that this node took part in a round is a secret of the server, too.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any, Protocol

from laconic.errors import LaconicError, RunFolderError
from laconic.federation.requests import REFUSED, Fields, fields_bytes
from laconic.guard import transcript
from laconic.guard.folder import NodeFolder
from laconic.guard.policy import Policy
from laconic.operations import EventLog, Family, counter, exposition, gauge
from laconic.secagg.terms import RUN_BYTES

KINDS = ("keys", "ready", "upload", "consent", "unmask")


class Answers(Protocol):
    """`Node`, or something that answers in its place."""

    def answer(self, kind: str, fields: Mapping[str, Any]) -> Fields: ...


class WatchedNode:
    """Answers as `node` does. A refusal is logged with the reason that the server was told, never with the detail that
    stays in the node's own log: that may quote records."""

    def __init__(self, node: Answers, events: EventLog | None = None) -> None:
        self._node, self._events, self._lock = node, events, threading.Lock()
        self.messages: Counter[tuple[str, str]] = Counter()
        """By kind of message and "given" or "refused"."""
        self.seconds: Counter[str] = Counter()
        self.bytes_in: Counter[str] = Counter()
        self.bytes_out: Counter[str] = Counter()

    def answer(self, kind: str, fields: Mapping[str, Any]) -> Fields:
        began = time.perf_counter()
        try:
            answer = self._node.answer(kind, fields)
        except Exception as error:
            self._failed(error)
            raise
        seconds = time.perf_counter() - began
        refused, named = REFUSED in answer, kind if kind in KINDS else "unknown"
        came, went = fields_bytes([dict(fields)]), fields_bytes([answer])
        with self._lock:
            self.messages[named, "refused" if refused else "given"] += 1
            self.seconds[named] += seconds  # type: ignore[assignment]
            self.bytes_in[named] += came
            self.bytes_out[named] += went
        if self._events is not None:
            run = fields.get("run")
            self._events.write(
                "refused" if refused else "answered",
                level="warning" if refused else "info",
                message=named,
                run=run.hex() if isinstance(run, bytes) and len(run) == RUN_BYTES else None,
                round=_number(fields.get("round")),
                attempt=_number(fields.get("attempt")),
                seconds=round(seconds, 4),
                bytes_in=came,
                bytes_out=went,
                reason=str(answer[REFUSED]) if refused else None,
            )
        return answer

    def _failed(self, error: Exception) -> None:
        """The folder cannot be read or written (a full disk, say). Of any other error only its kind is safe to say."""
        if self._events is not None:
            reason = str(error) if isinstance(error, RunFolderError) else type(error).__name__
            self._events.write("failed", level="error", reason=reason)


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) else None


class NodeFigures:
    """The text of a scrape. ε is computed again when the log has grown by what costs something."""

    def __init__(self, folder: NodeFolder, policy: Policy, watched: WatchedNode | None = None) -> None:
        self._folder, self._watched = folder, watched
        self._delta = policy.max_delta or 1e-5
        self._known: tuple[int, Family] | None = None

    def text(self) -> str:
        try:
            rows, healthy = self._folder.log.rows(), True
        except LaconicError:
            rows, healthy = [], False
        families = [
            gauge("laconic_node_log_in_order", "Whether the node's log can be read.", healthy),
            gauge(
                "laconic_node_needs_attention",
                "Whether the node does nothing until its owner has looked.",
                (self._folder.copied or self._folder.attention or self._folder.bad_records) is not None,
            ),
        ]
        if healthy:
            families += self._logged(rows)
        if self._watched is not None:
            families += _answered(self._watched)
        return exposition(families)

    def _logged(self, rows: list[dict[str, Any]]) -> list[Family]:
        count = {
            what: sum(row["what"] == what for row in rows)
            for what in (transcript.JOINED, transcript.UPLOADED, transcript.REFUSED)
        }
        last = next((row for row in reversed(rows) if row["what"] == transcript.UPLOADED), None)
        cohort = None if last is None else last.get("cohort")
        return [
            counter("laconic_node_runs_joined_total", "Runs that this node has joined.", count[transcript.JOINED]),
            counter("laconic_node_participations_total", "Uploads, over all runs.", count[transcript.UPLOADED]),
            counter("laconic_node_refusals_total", "Messages that were refused.", count[transcript.REFUSED]),
            gauge("laconic_node_round", "The round of the last upload.", None if last is None else last["round"]),
            gauge("laconic_node_cohort", "Nodes in the cohort of the last upload.", cohort),
            self._epsilon(rows, count[transcript.JOINED] + count[transcript.UPLOADED]),
        ]

    def _epsilon(self, rows: list[dict[str, Any]], costly: int) -> Family:
        if self._known is None or self._known[0] != costly:
            self._known = costly, self._computed(rows)
        return self._known[1]

    def _computed(self, rows: list[dict[str, Any]]) -> Family:
        from laconic.federation.node.lifetime import logged_costs, spent

        family = gauge("laconic_node_epsilon", "Privacy spent, of the last run and of all runs, by who looks on.")
        joined = [row["run"] for row in rows if row["what"] in (transcript.JOINED, transcript.UPLOADED)]
        if not joined:
            return family
        try:
            costs = logged_costs(rows)
        except LaconicError:  # rows of an older version
            return family
        last = [cost for (run, _), cost in costs.items() if run == joined[-1]]
        for over, some in (("run", last), ("lifetime", list(costs.values()))):
            figures = spent(some, self._delta)
            family.add(figures.epsilon, against="outsider", over=over)
            family.add(figures.participant_epsilon, against="server", over=over)
        return family


def _answered(watched: WatchedNode) -> list[Family]:
    messages = counter("laconic_node_messages_total", "Messages since this process has started.")
    for (kind, answer), count in sorted(watched.messages.items()):
        messages.add(count, message=kind, answer=answer)
    seconds = counter("laconic_node_seconds_total", "Seconds to answer them.")
    for kind, value in sorted(watched.seconds.items()):
        seconds.add(value, message=kind)
    sizes = counter("laconic_node_bytes_total", "Bytes of their fields.")
    for direction, known in (("in", watched.bytes_in), ("out", watched.bytes_out)):
        for kind, size in sorted(known.items()):
            sizes.add(size, message=kind, direction=direction)
    return [messages, seconds, sizes]
