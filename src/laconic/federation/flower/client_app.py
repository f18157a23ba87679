"""The node's side as a Flower `ClientApp`.

A node is configured where it runs, with `--node-config`:

policy       the file that says what this node allows; without one it refuses everything
model        a model of the owner's own, as package.module:factory
folder       where it keeps its keys and its log
data …       whatever the app's `records` wants to know; for `node_records` see `node/own_records`
threads      for torch
"""

from __future__ import annotations

from collections.abc import Callable
from logging import ERROR, getLogger
from typing import TYPE_CHECKING, Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from laconic.errors import ConfigError, LaconicError
from laconic.federation.flower.messages import fields_of, to_reply
from laconic.federation.flower.orphan import end_if_orphaned
from laconic.federation.node.folder import NodeFolder
from laconic.federation.node.node import Node
from laconic.federation.node.own_model import own_model
from laconic.federation.node.policy import read_policy
from laconic.federation.node.withheld import WITHHELD
from laconic.federation.requests import REFUSED

if TYPE_CHECKING:
    from torch import nn

    from laconic.data.population import Records

_LOG = getLogger("flwr")
Loader = Callable[[Context], "Records | tuple[Any, Any]"]


def client_app(records: Loader, *, model: Callable[..., nn.Module] | None = None) -> ClientApp:
    """A `ClientApp` that answers laconic's exchanges. `records` loads this node's own records; they stay here.

    `model` makes the run's model, if it is none of laconic's own; the server's configuration names the same function.
    """
    app = ClientApp()

    def answer(kind: str, message: Message, context: Context) -> Message:
        end_if_orphaned()
        try:
            node = Node(
                NodeFolder(_setting(context, "folder", "where this node keeps its keys and its log")),
                read_policy(_setting(context, "policy", "the file that says what this node allows")),
                model=lambda offer: own_model(offer, _own_model(context) or model),
                records=lambda offer: _checked(records, context),
            )
            _use_threads(context, kind)
            return to_reply(node.answer(kind, fields_of(message)), message)
        except LaconicError as error:
            return to_reply({REFUSED: str(error)}, message)
        except Exception as error:  # its text may quote records, and must not leave this node
            _LOG.log(ERROR, "laconic: a %s message failed", kind, exc_info=error)
            return to_reply({REFUSED: WITHHELD}, message)

    @app.query("keys")
    def keys(message: Message, context: Context) -> Message:
        return answer("keys", message, context)

    @app.train("upload")
    def upload(message: Message, context: Context) -> Message:
        return answer("upload", message, context)

    @app.query("consent")
    def consent(message: Message, context: Context) -> Message:
        return answer("consent", message, context)

    @app.query("unmask")
    def unmask(message: Message, context: Context) -> Message:
        return answer("unmask", message, context)

    return app


def node_records(context: Context) -> Records:
    """What the node's settings name: tables, arrays, pictures or texts. `client_app(node_records)` needs no code."""
    from laconic.federation.node.own_records import own_records

    return own_records(context.node_config)


def _setting(context: Context, name: str, what: str) -> str:
    value = context.node_config.get(name)
    if not isinstance(value, str) or not value:
        raise ConfigError(f"this node has no {name} ({what}): start it with --node-config '{name}=\"PATH\"'")
    return value


def _own_model(context: Context) -> str | None:
    """The model of the owner's own, if the node was started with one."""
    named = context.node_config.get("model")
    return named if isinstance(named, str) and named else None


def _checked(records: Loader, context: Context) -> Records:
    from laconic.data.population import as_records

    return as_records(records(context), "this node's records")


def _use_threads(context: Context, kind: str) -> None:
    threads = context.node_config.get("threads")
    if isinstance(threads, int) and kind in ("keys", "upload"):
        import torch

        torch.set_num_threads(threads)
