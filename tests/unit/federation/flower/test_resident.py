"""The courier that stays, and a SuperNode that hangs up on it."""

from __future__ import annotations

import socket
import threading

import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install '.[flower]'")

import httpx
from flwr.proto.runtime_pb2 import PushTaskOutputRequest

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
