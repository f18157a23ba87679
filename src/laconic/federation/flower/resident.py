"""A courier that stays: it takes a SuperNode's messages one after the other and hands them to the node's process.

The SuperNode is started with `--isolation process`, which means that somebody else runs its apps. Here nobody does: the
app that came with the run is neither installed nor imported. And as no process is started for a message, an exchange
takes as long as Flower's polling and the node's own work.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from logging import getLogger

import httpx
from flwr.app import Message
from flwr.app.message import remove_content_from_message
from flwr.common.constant import SubStatus
from flwr.common.serde import context_from_proto, message_to_proto
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import (
    AcquireTaskRequest,
    PullAppMessagesRequest,
    PullTaskInputRequest,
    PushAppMessagesRequest,
    PushTaskOutputRequest,
    SendTaskHeartbeatRequest,
)
from flwr.supercore.constant import TaskType
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_protobuf_utils import (
    make_confirm_message_received_fn_protobuf,
    make_pull_object_fn_protobuf,
    make_push_object_fn_protobuf,
)
from flwr.supercore.inflatable.inflatable_utils import pull_and_inflate_object_from_tree, push_objects
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.protobuf.client import ProtobufClientInterceptor
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity

from laconic.errors import LaconicError
from laconic.federation.flower.messages import TYPES, fields_of, to_reply
from laconic.federation.requests import REFUSED, Fields

_LOG = getLogger("laconic.courier")
_POLL = 0.1
_HEARTBEAT = 10.0
"""Seconds; Flower gives a task up after about a minute without one."""
_KINDS = {message_type: kind for kind, message_type in TYPES.items()}


class Resident:
    """`runtime` is where the SuperNode's runtime API listens, `hand_over` asks the node's process."""

    def __init__(
        self,
        runtime: str,
        hand_over: Callable[[str, Fields], Fields],
        *,
        authority: bytes | None = None,
        secret: bytes | None = None,
    ) -> None:
        self._runtime, self._hand_over, self._authority = runtime, hand_over, authority
        own = [] if secret is None else [SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods=_ACQUIRE)]
        self._client = self._connected(*own)
        self._ended = threading.Event()

    def stop(self) -> None:
        self._ended.set()

    def run(self) -> None:
        """Carry messages until `stop`. A SuperNode that is gone is waited for."""
        wanted = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
        away = False
        while not self._ended.is_set():
            try:
                given = self._client.AcquireTask(wanted)
                if given.HasField("task") and given.token:
                    self._one_task(given.token)
                away = False
            except httpx.HTTPError as error:
                if not away:
                    _LOG.warning("the SuperNode at %s does not answer: %s", self._runtime, _reason(error))
                away = True
            self._ended.wait(1.0 if away else _POLL)

    def _one_task(self, token: str) -> None:
        client = self._connected(RuntimeTokenHttpInterceptor(token))
        try:
            with _alive(client):
                self._answer(client)
        finally:
            client.close()

    def _answer(self, client: RuntimeHttpClient) -> None:
        task = client.PullTaskInput(PullTaskInputRequest())
        # Flower's messages take their sender from here.
        TaskIdentity.task_id, TaskIdentity.run_id = task.task_id, task.run.run_id
        TaskIdentity.node_id = task.context.node_id
        context = context_from_proto(task.context)
        node, run = Node(node_id=context.node_id), context.run_id
        message = _pulled(client, node, run)
        _push(client, node, run, to_reply(self._answered(message), message))
        client.PushTaskOutput(PushTaskOutputRequest(context=task.context, sub_status=SubStatus.COMPLETED, details=""))

    def _answered(self, message: Message) -> Fields:
        kind = _KINDS.get(message.metadata.message_type)
        if kind is None:
            return {REFUSED: "this node answers laconic's messages, and no others"}
        try:
            return self._hand_over(kind, fields_of(message))
        except LaconicError as error:
            return {REFUSED: str(error)}

    def _connected(self, *interceptors: ProtobufClientInterceptor) -> RuntimeHttpClient:
        return RuntimeHttpClient.from_server_address(
            server_address=self._runtime,
            insecure=self._authority is None,
            root_certificates=self._authority,
            interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr-clientapp"), *interceptors],
        )


_ACQUIRE = frozenset({"/flwr.proto.Runtime/AcquireTask"})


def _pulled(client: RuntimeHttpClient, node: Node, run: int) -> Message:
    tree = client.PullMessages(PullAppMessagesRequest()).message_object_trees[0]
    message = pull_and_inflate_object_from_tree(
        tree,
        make_pull_object_fn_protobuf(client.PullObject, node, run),
        make_confirm_message_received_fn_protobuf(client.ConfirmMessageReceived, node, run),
        return_type=Message,
    )
    message.metadata.__dict__["_message_id"] = tree.object_id
    return message


def _push(client: RuntimeHttpClient, node: Node, run: int, reply: Message) -> None:
    reply.metadata.__dict__["_message_id"] = reply.object_id
    with no_object_id_recompute():
        told = client.PushMessages(
            PushAppMessagesRequest(
                messages_list=[message_to_proto(remove_content_from_message(reply))],
                message_object_trees=[get_object_tree(reply)],
            )
        )
        push_objects(
            get_all_nested_objects(reply),
            make_push_object_fn_protobuf(client.PushObject, node, run_id=run, session_id=told.session_id),
            object_ids_to_push=set(told.objects_to_push),
        )


@contextmanager
def _alive(client: RuntimeHttpClient) -> Iterator[None]:
    """Tell the SuperNode that the task is being worked on."""
    done = threading.Event()

    def beat() -> None:
        while not done.is_set():
            try:
                client.SendTaskHeartbeat(SendTaskHeartbeatRequest())
            except httpx.HTTPError as error:
                _LOG.warning("a heartbeat was not taken: %s", _reason(error))
            done.wait(_HEARTBEAT)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(timeout=5)


def _reason(error: httpx.HTTPError) -> str:
    if isinstance(error, httpx.HTTPStatusError):
        return f"it answered {error.response.status_code}"
    return type(error).__name__
