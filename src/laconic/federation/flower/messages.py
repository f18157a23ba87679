"""Fields as Flower messages, and back; and the end of an app whose Flower process is gone.

Each kind of exchange is a message type of its own.

keys        query.keys      once per run
ready       query.ready     before a round, to nodes that the server has not heard of lately
upload      train.upload    every round
consent     query.consent   every round, in signed mode
unmask      query.unmask    every round in which sums are masked

Flower runs an app in a process of its own, and asks it to end when that process's parent is gone. One that waits for an
answer from a SuperLink or SuperNode that is gone can hang while it does, with the run folder or the node's log of
attempts locked. Nothing is lost by ending it at once: what counts is on disk before it is sent.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Message, RecordDict

from laconic.errors import WireError
from laconic.federation.requests import Fields, fields_bytes

TYPES = {
    "keys": "query.keys",
    "ready": "query.ready",
    "upload": "train.upload",
    "consent": "query.consent",
    "unmask": "query.unmask",
}
_LARGE = ("weights", "roster", "shared")
"""Fields that are the same for all nodes: Flower stores a record that several messages hold only once."""


def to_message(kind: str, node: int, fields: Fields, *, group: str, ttl: float) -> Message:
    """A request to a node; after `ttl` seconds neither it nor its answer is delivered any more."""
    return Message(_content(fields), node, TYPES[kind], group_id=group, ttl=ttl)


def to_reply(fields: Fields, request: Message) -> Message:
    return Message(_content(fields), reply_to=request)


def fields_of(message: Message) -> Fields:
    """The fields of a request or an answer."""
    fields: dict[str, Any] = {}
    for record in message.content.config_records.values():
        fields |= dict(record)
    for name, value in fields.items():
        if isinstance(value, bool) or not isinstance(value, bytes | int | str):
            raise WireError(f"the field '{name}' is a {type(value).__name__}")
    return fields


def overhead(message: Message) -> int:
    """The bytes of a message beside its fields: of all of Flower's objects as they are serialised, less the fields."""
    parts = [message.deflate()]
    if message.has_content():
        parts += [message.content.deflate(), *(record.deflate() for record in message.content.values())]
    return sum(map(len, parts)) - (fields_bytes([fields_of(message)]) if message.has_content() else 0)


def _content(fields: Fields) -> RecordDict:
    shared = {name: value for name, value in fields.items() if name in _LARGE}
    own = {name: value for name, value in fields.items() if name not in _LARGE}
    content = RecordDict({"own": ConfigRecord(dict(own))})
    if shared:
        content["shared"] = ConfigRecord(dict(shared))
    return content


_POLL, _GRACE = 0.5, 3.0


def end_if_orphaned() -> None:
    """Watch the parent process from now on. Does nothing where an app is called in some other process, as in tests."""
    if Path(sys.argv[0]).name.startswith("flwr-"):
        threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL)
    time.sleep(_GRACE)
    os._exit(1)
