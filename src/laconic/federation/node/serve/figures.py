"""Figures of a node for Prometheus: what its own log says, and what this process has answered.

They are for the node's owner alone: that this node took part in a round is a secret of the server, too.
"""

from __future__ import annotations

from typing import Any

from laconic.errors import LaconicError
from laconic.federation.node.serve.watched import WatchedNode
from laconic.guard.folder import NodeFolder
from laconic.guard.policy import Policy
from laconic.guard.transcript import JOINED, REFUSED, UPLOADED
from laconic.operations.metrics import Family, counter, exposition, gauge


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
        count = {what: sum(row["what"] == what for row in rows) for what in (JOINED, UPLOADED, REFUSED)}
        last = next((row for row in reversed(rows) if row["what"] == UPLOADED), None)
        cohort = None if last is None else last.get("cohort")
        return [
            counter("laconic_node_runs_joined_total", "Runs that this node has joined.", count[JOINED]),
            counter("laconic_node_participations_total", "Uploads, over all runs.", count[UPLOADED]),
            counter("laconic_node_refusals_total", "Messages that were refused.", count[REFUSED]),
            gauge("laconic_node_round", "The round of the last upload.", None if last is None else last["round"]),
            gauge("laconic_node_cohort", "Nodes in the cohort of the last upload.", cohort),
            self._epsilon(rows, count[JOINED] + count[UPLOADED]),
        ]

    def _epsilon(self, rows: list[dict[str, Any]], costly: int) -> Family:
        if self._known is None or self._known[0] != costly:
            self._known = costly, self._computed(rows)
        return self._known[1]

    def _computed(self, rows: list[dict[str, Any]]) -> Family:
        from laconic.federation.node.lifetime import logged_costs, spent

        family = gauge("laconic_node_epsilon", "Privacy spent, of the last run and of all runs, by who looks on.")
        joined = [row["run"] for row in rows if row["what"] in (JOINED, UPLOADED)]
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
