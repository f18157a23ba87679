"""Flower's grid as a courier: it asks nodes, and waits no longer than it must."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

from flwr.app import Error, Message
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from laconic.errors import TrainingError, WireError, one_line
from laconic.federation.courier import Answers
from laconic.federation.flower.messages import TYPES, fields_of, overhead, to_message
from laconic.federation.requests import REFUSED, Fields

_LONGEST = 300
"""Of a reason that a node gives: it goes into the server's log and into its errors."""
_POLL = 0.3  # Flower's own waiting looks every three seconds, which is most of a round


class FlowerCourier:
    """`nodes` are Flower's numbers of the clients 0, 1, …"""

    def __init__(self, grid: Grid, nodes: Sequence[int]) -> None:
        self._grid, self.nodes = grid, list(nodes)
        self._clients = {node: client for client, node in enumerate(nodes)}

    def ask(self, kind: str, requests: Mapping[int, Fields], *, timeout: float, enough: int | None = None) -> Answers:
        messages = self.messages(kind, requests, timeout=timeout)
        return self.answers(messages, self.deliver(messages, timeout=timeout, enough=enough), timeout=timeout)

    def wait_for(self, needed: int, *, timeout: float) -> None:
        """Return when so many of the nodes are there; an error after so many seconds."""
        end = time.monotonic() + timeout
        while (there := len(set(self.nodes) & set(self._grid.get_node_ids()))) < needed:
            if time.monotonic() > end:
                raise TrainingError(
                    f"{there} of {len(self.nodes)} nodes are there, but a round needs {needed}: nothing was charged;"
                    " resume the run when they are back"
                )
            time.sleep(_POLL)

    def messages(self, kind: str, requests: Mapping[int, Fields], *, timeout: float) -> list[Message]:
        """The requests as messages, which are void after the timeout."""
        return [
            to_message(kind, self.nodes[client], fields, group=str(fields.get("round", "")), ttl=timeout)
            for client, fields in requests.items()
        ]

    def deliver(self, messages: Sequence[Message], *, timeout: float, enough: int | None = None) -> list[Message]:
        """Send the messages; wait for all replies, for enough that bring something, or for so many seconds."""
        waiting = {name for name in self._grid.push_messages(messages) if name} if messages else set()
        replies: list[Message] = []
        end = time.monotonic() + timeout
        while waiting and time.monotonic() < end:
            for reply in self._grid.pull_messages(waiting):
                replies.append(reply)
                waiting.discard(reply.metadata.reply_to_message_id)
            if enough is not None and sum(_brings(reply) for reply in replies) >= enough:
                break
            if waiting:
                time.sleep(min(_POLL, max(0.0, end - time.monotonic())))
        return replies

    def answers(self, messages: Sequence[Message], replies: Iterable[Message], *, timeout: float) -> Answers:
        """The replies by client, and for every other client that was asked the reason why there is none."""
        asked = {m.metadata.message_id: self._clients[m.metadata.dst_node_id] for m in messages}
        answers = Answers(overhead_down=sum(map(overhead, messages)))
        late = f"gave no answer within {timeout:g} s ({_timeout_option(messages)})"
        for reply in replies:
            client = asked.get(reply.metadata.reply_to_message_id)
            if (fields := _fields(reply)) is not None:
                answers.overhead_up += overhead(reply)
            if client is None:
                continue
            if reply.has_error():  # it may come from the SuperLink, on behalf of a node that is gone
                answers.missing[client] = _why(reply.error, late)
            elif reply.metadata.src_node_id != self.nodes[client]:
                continue
            elif fields is None:
                answers.missing[client] = "sent an answer that cannot be read"
            else:
                answers.add(client, fields)
        for client in asked.values():
            if client not in answers.given and client not in answers.missing:
                answers.missing[client] = late
        return answers


def _timeout_option(messages: Sequence[Message]) -> str:
    """Which option says how long these are waited for."""
    joining = any(message.metadata.message_type == TYPES["keys"] for message in messages)
    return "federation.join_timeout" if joining else "federation.round_timeout"


def _why(error: Error, late: str) -> str:
    """Flower's reason in our words. A message is void when its "TTL" is over, which is our timeout."""
    if error.code in (ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE):
        return late
    if error.code == ErrorCode.NODE_UNAVAILABLE:
        return "is gone: its SuperNode no longer reports to the SuperLink"
    return f"failed: {one_line(error.reason, _LONGEST)}"


def _fields(reply: Message) -> Fields | None:
    """What the reply says, nothing for an error; None if a node sent what cannot be read, which must not end the run.

    Then it has one node less.
    """
    try:
        return fields_of(reply) if reply.has_content() else {}
    except WireError:
        return None


def _brings(reply: Message) -> bool:
    fields = _fields(reply)
    return fields is not None and reply.has_content() and REFUSED not in fields
