"""The courier that stays: a SuperNode that hangs up on it, or that leaves a task behind."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install '.[flower]'")

import httpx
from flwr.app import Context, RecordDict
from flwr.common.serde import context_to_proto
from flwr.proto.message_pb2 import ObjectTree, PullObjectResponse
from flwr.proto.runtime_pb2 import (
    AcquireTaskResponse,
    PullAppMessagesResponse,
    PullTaskInputResponse,
    PushTaskOutputRequest,
)
from flwr.proto.task_pb2 import Task

from laconic.federation.flower import resident
from laconic.federation.flower.resident import Resident

_GOOD = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


@pytest.fixture
def hangs_up_once() -> str:
    """Where a server listens that closes its first connection as soon as it is asked, and answers on the second."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for answer in (b"", _GOOD):
            connection, _ = listener.accept()
            connection.recv(65536)
            connection.sendall(answer)
            connection.close()
        listener.close()

    threading.Thread(target=serve, daemon=True).start()
    return f"127.0.0.1:{listener.getsockname()[1]}"


def test_an_answer_is_handed_in_again_if_the_connection_broke(
    hangs_up_once: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resident, "_pauses", lambda: iter([0.0]))
    courier = Resident(hangs_up_once, lambda kind, fields: fields)
    client = courier._connected(patient=True)
    client.PushTaskOutput(PushTaskOutputRequest())
    client.close()


def test_without_that_it_would_be_lost(hangs_up_once: str) -> None:
    client = Resident(hangs_up_once, lambda kind, fields: fields)._connected()
    with pytest.raises(httpx.RemoteProtocolError):
        client.PushTaskOutput(PushTaskOutputRequest())
    client.close()


class HalfAMessage:
    """A SuperNode's runtime API with two tasks. The message of the first never comes in full; the second has one."""

    def __init__(self, path: str, token: str = "") -> None:
        self.token = token

    def AcquireTask(self, request: Any) -> AcquireTaskResponse:
        return AcquireTaskResponse(task=Task(task_id=1), token=TOKENS.pop(0)) if TOKENS else AcquireTaskResponse()

    def PullTaskInput(self, request: Any) -> PullTaskInputResponse:
        return PullTaskInputResponse(context=context_to_proto(Context(7, 8, {}, RecordDict(), {}, series_id=9)))

    def SendTaskHeartbeat(self, request: Any) -> None:
        pass

    def PullMessages(self, request: Any) -> PullAppMessagesResponse:
        if self.token == "second":
            DONE.set()
            raise httpx.ReadError("enough for this test")
        return PullAppMessagesResponse(message_object_trees=[ObjectTree(object_id="0" * 64)])

    def PullObject(self, request: Any) -> PullObjectResponse:
        return PullObjectResponse(object_found=True, object_available=False)

    def ConfirmMessageReceived(self, request: Any) -> None:
        raise AssertionError("the message is not there")

    def close(self) -> None:
        CLOSED.append(self.token)


TOKENS, CLOSED, DONE = ["first", "second"], list[str](), threading.Event()


def test_a_message_that_never_comes_in_full_does_not_keep_others_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A SuperNode leaves such a task behind if the run ends while it fetches the message."""
    monkeypatch.setattr(resident, "RuntimeTokenHttpInterceptor", lambda token: token)
    monkeypatch.setattr(
        Resident, "_connected", lambda self, token="", patient=False: HalfAMessage(self._runtime, token)
    )
    courier = Resident("somewhere", lambda kind, fields: fields)
    thread = threading.Thread(target=courier.run)
    thread.start()
    assert DONE.wait(10)
    courier.stop()
    thread.join(10)
    end = time.monotonic() + 10
    while sorted(CLOSED) != ["first", "second"]:  # the first was given up
        assert time.monotonic() < end
        time.sleep(0.02)
