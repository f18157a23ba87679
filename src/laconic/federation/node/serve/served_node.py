"""The node that a process serves: its owner's settings, one `Node` for each message, and what is kept between them.

The policy is read as its owner has saved it, never as half of it: an editor empties the file before it writes it again.
Half a policy is valid, and limits less than the whole. A sender of messages could wait for that instant.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laconic import __version__
from laconic.errors import LaconicError, one_line
from laconic.federation.node.kept import KeptRecords, KeptWork, Signature, signature
from laconic.federation.node.node import Node
from laconic.federation.node.serve.hand_over import Daemon
from laconic.federation.node.serve.place import ServingLock, open_socket
from laconic.federation.node.serve.watched import NodeFigures, WatchedNode
from laconic.federation.offer import UNCHECKED
from laconic.federation.requests import REFUSED, Fields
from laconic.guard.folder import NodeFolder
from laconic.guard.keys.files import replace_file
from laconic.guard.keys.secret import Secret
from laconic.guard.policy import Policy, read_policy
from laconic.guard.withheld import WITHHELD
from laconic.operations import Endpoint, EventLog
from laconic.secagg.attempts import Nonces

if TYPE_CHECKING:
    from torch import nn

    from laconic.data.meaning import Meaning
    from laconic.federation.offer import Offer


SETTLING = 0.5
"""Seconds in which a changed file must not have changed again."""


class SettledPolicy:
    """A policy file that is read anew for every message."""

    def __init__(self, path: Path) -> None:
        self._path = path.expanduser()
        self._known: Signature | None = None

    def read(self) -> Policy:
        """The policy; `ConfigError` if it is none. A file that was changed is read once it stays as it is."""
        while True:
            before = signature(self._path)
            if self._known is not None and before != self._known:
                time.sleep(SETTLING)
                if signature(self._path) != before:
                    continue
            policy = read_policy(self._path)
            if signature(self._path) == before:
                self._known = before
                return policy


STATE = "serving.json"


@dataclass(frozen=True, kw_only=True)
class Serving:
    """How a node is served. `socket` is in the folder unless it is named; `group` may open it, too.

    `secret` opens the keys, if they are encrypted. Events go to `log`, or to stderr; `metrics_port` has figures for
    Prometheus, for readers with the `metrics_token`. `kept_runs` are the runs whose work stays in memory, `waiting` the
    messages that may be open at a time. `front_end` is the owner's copy of a front end, `front_end_module` a factory
    that it may use. `held_out` is the fraction of the records that is measured on and never trained on, in runs with
    evaluations. With `keep_weights` the newest weights of each run stay in the folder.
    """

    folder: Path
    policy: Path
    socket: Path | None = None
    group: str | None = None
    kept_runs: int = 2
    waiting: int = 4
    threads: int | None = None
    held_out: float | None = None
    keep_weights: bool = False
    secret: Secret | None = None
    log: Path | None = None
    metrics_port: int | None = None
    metrics_token: Secret | None = None
    front_end: Path | None = None
    front_end_module: str | None = None

    @property
    def socket_path(self) -> Path:
        return (self.socket or self.folder / "node.socket").expanduser().absolute()


class ServedNode:
    """Answers messages. The policy is read anew for each, so that a change counts at once."""

    def __init__(
        self,
        serving: Serving,
        records: KeptRecords,
        model: Callable[[Offer], nn.Module],
        meaning: Meaning | str | None = UNCHECKED,
    ) -> None:
        self._serving, self._records, self._model, self._meaning = serving, records, model, meaning
        self.folder, self._kept = NodeFolder(serving.folder, serving.secret), KeptWork(serving.kept_runs)
        self._nonces = Nonces()
        self._policy = SettledPolicy(serving.policy)
        self._most_bytes = self._policy.read().max_message_bytes

    def answer(self, kind: str, fields: Mapping[str, Any]) -> Fields:
        try:
            policy = self._policy.read()
        except LaconicError as error:  # it may quote the policy, which is its owner's alone
            with self.folder.alone():
                self.folder.log.add_refusal(b"", message=one_line(kind, 30), reason=WITHHELD, detail=str(error))
            return {REFUSED: WITHHELD}
        held_out = self._serving.held_out
        node = Node(
            self.folder,
            policy,
            model=self._model,
            records=lambda offer: self._records.read(),
            of_patients=self._records.of_patients,
            kept=self._kept,
            nonces=self._nonces,
            meaning=self._meaning,
            front_end=self._serving.front_end,
            front_end_module=self._serving.front_end_module,
            keep_weights=self._serving.keep_weights,
            **({} if held_out is None else {"held_out": held_out}),
        )
        return node.answer(kind, fields)

    @property
    def most_bytes(self) -> int:
        """Message size limit; the last valid one if the policy file is invalid: a message is read, to be refused."""
        with contextlib.suppress(LaconicError):
            self._most_bytes = read_policy(self._serving.policy).max_message_bytes
        return self._most_bytes


def serve(
    serving: Serving,
    records: KeptRecords,
    model: Callable[[Offer], nn.Module],
    *,
    meaning: Meaning | str | None = UNCHECKED,
    on_ready: Callable[[Path], None] = lambda path: None,
) -> None:
    """Serve the node until this process is told to end. Mistakes of its owner are errors before it begins."""
    read_policy(serving.policy)
    node = ServedNode(serving, records, model, meaning)
    if serving.threads is not None:
        import torch

        torch.set_num_threads(serving.threads)
    with ServingLock(serving.folder):
        node.folder.keys.check()
        records.read()
        path = serving.socket_path
        listening = open_socket(path, serving.group, waiting=serving.waiting)
        try:
            with _watched(serving, node) as watched:
                daemon = Daemon(listening, watched.answer, most_bytes=lambda: node.most_bytes, waiting=serving.waiting)
                _write_state(serving, path)
                with _ended_by_signals(daemon.stop):
                    on_ready(path)
                    daemon.serve()
        finally:
            listening.close()
            path.unlink(missing_ok=True)


def read_state(folder: Path) -> dict[str, Any]:
    """What the process that serves the folder, or the last one that did, says of itself; empty if there was none."""
    with contextlib.suppress(OSError, ValueError):
        found = json.loads((folder / STATE).read_text())
        return found if isinstance(found, dict) else {}
    return {}


def _write_state(serving: Serving, path: Path) -> None:
    state = {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "process": os.getpid(),
        "laconic": __version__,
        "socket": str(path),
        "policy": str(serving.policy.expanduser().absolute()),  # `status` may be called elsewhere
    }
    replace_file(serving.folder / STATE, json.dumps(state).encode())


@contextmanager
def _watched(serving: Serving, node: ServedNode) -> Iterator[WatchedNode]:
    """The node with its log, and with its figures on a port if that is asked for."""
    events = EventLog(serving.log)
    watched = WatchedNode(node, events)
    own = NodeFolder(serving.folder)  # a scrape comes in a thread of its own, and a transcript is read by one thread
    with contextlib.suppress(LaconicError):
        own.log.rows()
    figures = NodeFigures(own, read_policy(serving.policy), watched)
    token = None if serving.metrics_token is None else serving.metrics_token.value
    port = None if serving.metrics_port is None else Endpoint(serving.metrics_port, figures.text, token)
    events.write("node started", version=__version__)
    try:
        yield watched
    finally:
        events.write("node stopped")
        if port is not None:
            port.close()
        events.close()


@contextmanager
def _ended_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    kinds = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = {kind: signal.signal(kind, lambda number, frame: stop()) for kind in kinds}
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)
