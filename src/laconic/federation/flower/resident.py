"""A courier that stays: it takes a SuperNode's messages one after the other and hands them to the node's process.

The SuperNode is started with `--isolation process`, which means that another process runs its apps. Here none does: the
app that came with the run is neither installed nor imported. And as no process is started for a message, an exchange
takes as long as Flower's polling and the node's own work.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
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
from flwr.supercore.retry import RetryInvoker, exponential
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity

from laconic.errors import LaconicError
from laconic.federation.flower.messages import TYPES, fields_of, to_reply
from laconic.federation.requests import REFUSED, Fields

_LOG = getLogger("laconic.courier")
_POLL = 0.1
_TRIES = 5
_HEARTBEAT = 10.0
"""Seconds; Flower gives a task up after about a minute without one."""
_IDENTITY = threading.Lock()
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
        self._ended, self._last = threading.Event(), _Work()

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
                    self._begin(given.token)
                away = False
            except httpx.HTTPError as error:
                if not away:
                    _LOG.warning("the SuperNode at %s does not answer: %s", self._runtime, _reason(error))
                away = True
            if not self._last.goes_on(seconds=1.0):
                self._ended.wait(1.0 if away else _POLL)

    def _begin(self, token: str) -> None:
        """Begin a task, and give up the one before if its message is not there yet.

        A SuperNode fetches one message at a time. It leaves a task behind if the run ends while it fetches the message,
        and the rest of that message never comes.
        """
        self._last.superseded.set()
        self._last = work = _Work()
        work.thread = threading.Thread(target=self._one_task, args=(token, work), daemon=True)
        work.thread.start()

    def _one_task(self, token: str, work: _Work) -> None:
        client = self._connected(RuntimeTokenHttpInterceptor(token), patient=True)
        try:
            with _alive(client):
                self._answer(client, work)
        except httpx.HTTPError as error:
            _LOG.warning("a message could not be carried: %s", _reason(error))
        except _Superseded:
            _LOG.warning("a message never came in full; its run has ended")
        except Exception:
            _LOG.exception("a message could not be carried")
        finally:
            client.close()

    def _answer(self, client: RuntimeHttpClient, work: _Work) -> None:
        task = client.PullTaskInput(PullTaskInputRequest())
        context = context_from_proto(task.context)
        node, run = Node(node_id=context.node_id), context.run_id
        message = _pulled(client, node, run, work)
        fields = self._answered(message)
        with _IDENTITY:  # Flower's messages take their sender from there
            TaskIdentity.task_id, TaskIdentity.run_id = task.task_id, task.run.run_id
            TaskIdentity.node_id = task.context.node_id
            reply = to_reply(fields, message)
        _push(client, node, run, reply)
        client.PushTaskOutput(PushTaskOutputRequest(context=task.context, sub_status=SubStatus.COMPLETED, details=""))

    def _answered(self, message: Message) -> Fields:
        kind = _KINDS.get(message.metadata.message_type)
        if kind is None:
            return {REFUSED: "this node answers laconic's messages, and no others"}
        try:
            return self._hand_over(kind, fields_of(message))
        except LaconicError as error:
            return {REFUSED: str(error)}

    def _connected(self, *interceptors: ProtobufClientInterceptor, patient: bool = False) -> RuntimeHttpClient:
        """A patient one tries again when a connection breaks: an answer that took minutes must not be lost by that.

        The SuperNode closes connections that were idle for five seconds, perhaps just as one is used again.
        """
        return RuntimeHttpClient.from_server_address(
            server_address=self._runtime,
            insecure=self._authority is None,
            root_certificates=self._authority,
            interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr-clientapp"), *interceptors],
            retry_invoker=RetryInvoker(_pauses, httpx.TransportError, _TRIES, None) if patient else None,
        )


def _pauses() -> Generator[float, None, None]:
    return exponential(max_delay=5)


_ACQUIRE = frozenset({"/flwr.proto.Runtime/AcquireTask"})


class _Superseded(Exception):
    """There is another task, so this one's message will never be complete."""


@dataclass
class _Work:
    """A task that is being worked on."""

    superseded: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None

    def goes_on(self, seconds: float) -> bool:
        """Whether it is still worked on after so many seconds; waits until then, or until it is done."""
        if self.thread is None:
            return False
        self.thread.join(seconds)
        return self.thread.is_alive()

    def check(self) -> None:
        if self.superseded.is_set():
            raise _Superseded


def _pulled(client: RuntimeHttpClient, node: Node, run: int, work: _Work) -> Message:
    """The message of a task, which may be there a little later than the task."""
    while not (trees := client.PullMessages(PullAppMessagesRequest()).message_object_trees):
        work.check()
        time.sleep(_POLL)
    tree, pull = trees[0], make_pull_object_fn_protobuf(client.PullObject, node, run)

    def pull_object(name: str) -> bytes:
        work.check()
        return pull(name)

    message = pull_and_inflate_object_from_tree(
        tree,
        pull_object,
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
