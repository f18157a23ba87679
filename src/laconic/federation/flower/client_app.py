"""The node's side on Flower is a courier: it hands each message to the node's own process, and its answer back.

The data, the keys, the policy and the log are that process's (`laconic node serve`). An app that a server ships sees
nothing of them but the socket. The SuperNode is told where it is: --node-config 'socket="/run/laconic/node.socket"'.

With `laconic node courier` (`resident`) no app is run on the node at all, and no process is started for a message.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from laconic.errors import LaconicError
from laconic.federation.flower.messages import TYPES, end_if_orphaned, fields_of, to_reply
from laconic.federation.node.serve.hand_over import hand_over
from laconic.federation.requests import REFUSED, Fields

HandOver = Callable[[str, Fields], Fields]


def courier_app(to: Callable[[Context], HandOver]) -> ClientApp:
    """A `ClientApp` that hands over the messages of every scheme. `to` finds the process that answers."""
    app = ClientApp()
    for kind, message_type in TYPES.items():
        category, _, action = message_type.partition(".")
        getattr(app, category)(action)(partial(_carried, kind, to))
    return app


def _carried(kind: str, to: Callable[[Context], HandOver], message: Message, context: Context) -> Message:
    end_if_orphaned()
    try:
        return to_reply(to(context)(kind, fields_of(message)), message)
    except LaconicError as error:
        return to_reply({REFUSED: str(error)}, message)


def _node_of(context: Context) -> HandOver:
    path = context.node_config.get("socket")
    if not isinstance(path, str) or not path:
        return lambda kind, fields: {REFUSED: "this node's courier was not told where the node's socket is"}
    return partial(hand_over, path)


app = courier_app(_node_of)
