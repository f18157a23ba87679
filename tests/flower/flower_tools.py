"""What the Flower tests share: a grid that calls the nodes' apps in this process, and small federations."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from laconic.data.population import Records
from laconic.runtime.config import RunConfig
from laconic.runtime.flower.client_app import client_app

SIZES = [14, 9, 11, 12, 7]
FIRST_NODE = 1000


class LocalGrid(Grid):
    """Nodes in this process: a message is answered when it is pushed. `lose` may swallow requests and replies."""

    def __init__(self, apps: list[Callable[[Message], Message]]) -> None:
        self._apps = apps
        # In a deployment Flower sets this in every process that runs an app; messages cannot be made without it.
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
        self._replies: dict[str, Message] = {}
        self.sent: list[Message] = []
        self.lose: Callable[[int, Message, str], bool] = lambda client, message, when: False

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def create_message(self, *arguments: Any, **options: Any) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return [FIRST_NODE + number for number in range(len(self._apps))]

    def get_nodes(self) -> Iterable[Any]:
        return [SimpleNamespace(node_id=node, registered_at="") for node in self.get_node_ids()]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        names = []
        for message in messages:
            name = message.object_id
            message.metadata.__dict__["_message_id"] = name
            names.append(name)
            self.sent.append(message)
            client = message.metadata.dst_node_id - FIRST_NODE
            if self.lose(client, message, "request"):
                continue
            reply = self._apps[client](message)
            if not self.lose(client, message, "reply"):
                self._replies[name] = reply
        return names

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self._replies.pop(name) for name in list(message_ids) if name in self._replies]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        return self.pull_messages(self.push_messages(messages))


def run_config(config: RunConfig) -> dict[str, Any]:
    """The configuration as Flower hands it to apps."""
    return {f"{section}.{key}": value for section, keys in config.to_dict().items() for key, value in keys.items()}


def write_policy(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def node_app(
    folder: Path, policy: Path, config: RunConfig, records: Records, node: int
) -> Callable[[Message], Message]:
    """A node's app with its context; every message gets a fresh app, as in a process of its own."""

    def answer(message: Message) -> Message:
        app: ClientApp = client_app(lambda context: records)
        settings = {"folder": str(folder), "policy": str(policy)}
        return app(message, Context(0, node, settings, RecordDict(), run_config(config)))

    return answer
