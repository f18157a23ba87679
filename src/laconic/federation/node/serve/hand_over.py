"""What a courier does with a message: open the node's socket, hand the fields over, take the answer.

The node's process may be restarted at any time, so a courier tries again for a while. That is safe: the node writes
down what it will send before it sends it, and masks no second vector in an attempt.
"""

from __future__ import annotations

import contextlib
import socket
import time
from pathlib import Path

from laconic.errors import WireError
from laconic.federation.node.serve import frames
from laconic.federation.node.serve.address import address
from laconic.federation.requests import REFUSED, Fields

PATIENCE = 30.0
"""Seconds in which a node's process that is gone has to come back."""
_POLL = 0.2
ANSWER = "answer"


def hand_over(
    path: str | Path, kind: str, fields: Fields, *, patience: float = PATIENCE, within: float | None = None
) -> Fields:
    """The node's answer. If its process is not there, that is an answer too: a refusal that says so.

    A process that is there has as long as it takes, or so many seconds for each step (`within`).
    """
    end = time.monotonic() + patience
    while True:
        try:
            return _asked(path, kind, fields, within)
        except PermissionError:
            return {REFUSED: "this node's courier may not open the node's socket; its owner must allow it"}
        except OSError:
            if time.monotonic() > end:
                return {REFUSED: "this node's own process does not answer; its owner must start it"}
            time.sleep(_POLL)
        except WireError:
            return {REFUSED: "this node's courier and its process do not understand each other: install the same"}


def _asked(path: str | Path, kind: str, fields: Fields, within: float | None) -> Fields:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stream:
        stream.settimeout(within)
        with address(path) as short:
            stream.connect(short)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            frames.send(stream, kind, fields)  # a busy node answers and hangs up before it reads: its answer waits
        answer = frames.receive(stream)
    if answer is None:
        raise ConnectionError("the node's process ended before it answered")
    return answer[1]
