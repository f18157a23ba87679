"""A node's process that is killed after any of its writes, in every stage of a round, and started again.

Its courier asks again, as `hand_over` does. The run must finish, no vector may be masked twice in an attempt, and the
node's log must know of every vector that left it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install '.[flower]'")

from flower_tools import PRIVATE, LocalFederation, config_for
from flwr.app import Message

from laconic.federation.flower.messages import TYPES, fields_of
from laconic.federation.requests import bytes_in
from laconic.guard import folder as node_folder
from laconic.guard.keys import keyring
from laconic.guard.transcript import UPLOADED, Transcript
from laconic.secagg.attempts import Nonces
from laconic.secagg.client import SecAggClient

VICTIM = 0


class Killed(BaseException):
    """Stands for SIGKILL: nothing in the package catches it."""


class Killer:
    """Counts the writes of one node, and ends its process right after one of them: between two writes nothing lasts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fatal, self.active = -1, False
        self.asked, self.writes = "", list[str]()
        """The message that is being answered, and that of each write."""
        self.masked: list[tuple[int, int, bytes]] = []
        writers = ((node_folder, "replace_file"), (keyring, "replace_file"))
        for owner, name in (*writers, (Transcript, "add")):
            monkeypatch.setattr(owner, name, self._watched(getattr(owner, name)))
        mask = SecAggClient.mask

        def recorded(member: SecAggClient, values: np.ndarray) -> bytes:
            plan = member._plan
            done = mask(member, values)
            if self.active and plan is not None:
                self.masked.append((plan.round, plan.attempt, done))
            return done

        monkeypatch.setattr(SecAggClient, "mask", recorded)

    def _watched(self, write: Callable[..., None]) -> Callable[..., None]:
        def watched(*arguments: Any, **options: Any) -> None:
            if not self.active:
                return write(*arguments, **options)
            number = len(self.writes)
            self.writes.append(self.asked)
            write(*arguments, **options)
            if number == self.fatal:
                raise Killed
            return None

        return watched

    def restarted(self, some: LocalFederation) -> Callable[[Message], Message]:
        """The victim, whose courier asks again when it was killed."""
        app = some.grid._apps[VICTIM]

        def answer(message: Message) -> Message:
            self.active, self.asked = True, message.metadata.message_type
            try:
                while True:
                    try:
                        return app(message)
                    except Killed:
                        some.processes[VICTIM] = Nonces()
            finally:
                self.active = False

        return answer


def finished(path: Path, killer: Killer, fatal: int) -> LocalFederation:
    config = config_for("fl-std-dp", **PRIVATE, run__rounds=1, sampler__max_dropouts=1, federation__round_timeout=5.0)
    some = LocalFederation(path, config, policy="min_cohort = 2\n")
    some.grid._apps[VICTIM] = killer.restarted(some)
    killer.fatal = fatal
    killer.writes.clear()
    killer.masked.clear()
    some.run()
    (row,) = [json.loads(line) for line in (path / "run/rounds.jsonl").read_text().splitlines()]
    assert "discarded" not in row
    assert row["messages_up"] >= 4
    return some


def test_a_node_killed_at_any_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killer = Killer(monkeypatch)
    finished(tmp_path / "unharmed", killer, -1)
    writes, missing = list(killer.writes), []
    assert (
        len(writes) >= 12
    )  # when it joins, uploads and reveals: keys, offer, roster, terms, plan, claims, rows, answers
    for fatal in range(len(writes)):
        some = finished(tmp_path / str(fatal), killer, fatal)
        assert len({(round, attempt) for round, attempt, _ in killer.masked}) == len(killer.masked), "masked twice"
        sent = [m for client, m in some.grid.received if client == VICTIM and "upload" in fields_of(m)]
        assert len({bytes_in(fields_of(m), "upload") for m in sent}) <= 1
        uploads = [row for row in some.node(VICTIM).log.rows() if row["what"] == UPLOADED]
        assert len(sent) <= len(uploads) <= 1
        missing += [] if sent else [fatal]
    # The plan is of the process that was killed, so the round goes on without the node, unless its answer was kept.
    uploading = [number for number, kind in enumerate(writes) if kind == TYPES["upload"]]
    assert missing == uploading[:-1]
