"""A message comes out of a socket as it went in, and what is no message is refused without reading more than said."""

from __future__ import annotations

import socket
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laconic.errors import WireError
from laconic.federation.node.serve import hand_over as frames

VALUES = st.one_of(st.binary(max_size=200), st.text(max_size=50), st.integers(-(2**63), 2**63))


def through(kind: str, fields: dict[str, bytes | int | str]) -> tuple[str, dict[str, bytes | int | str]] | None:
    near, far = socket.socketpair()
    with near, far:
        sender = threading.Thread(target=frames.send, args=(near, kind, fields))
        sender.start()
        try:
            return frames.receive(far)
        finally:
            sender.join()


@settings(max_examples=40)
@given(st.text(max_size=20), st.dictionaries(st.text(max_size=20), VALUES, max_size=6))
def test_a_message_is_the_same_on_the_other_side(kind: str, fields: dict[str, bytes | int | str]) -> None:
    assert through(kind, fields) == (kind, fields)


def test_a_large_message() -> None:
    data = bytes(range(256)) * 20_000
    assert through("upload", {"weights": data, "round": 3}) == ("upload", {"weights": data, "round": 3})


def received(data: bytes, most: int = 1000) -> object:
    near, far = socket.socketpair()
    with near, far:
        near.sendall(data)
        near.shutdown(socket.SHUT_WR)
        return frames.receive(far, most=most)


def packed(
    head: bytes, body: bytes = b"", *, magic: bytes = b"LNOD", version: int = 1, size: int | None = None
) -> bytes:
    return frames._HEAD.pack(magic, version, len(head), len(body) if size is None else size) + head + body


@pytest.mark.parametrize(
    "data",
    [
        packed(b"{}", magic=b"HTTP"),
        packed(b"{}", version=2),
        packed(b'{"kind": "k", "fields": [["a", ["bytes"], 0]]}'),
        packed(b"{}", size=2000),
        frames._HEAD.pack(b"LNOD", 1, 2**31, 0),
        packed(b"not json"),
        packed(b"[1]"),
        packed(b'{"kind": 3, "fields": []}'),
        packed(b'{"kind": "keys", "fields": [["a", "bytes", -1]]}'),
        packed(b'{"kind": "keys", "fields": [["a", "bytes", true]]}', b"x"),
        packed(b'{"kind": "keys", "fields": [["a", "pickle", 1]]}', b"x"),
        packed(b'{"kind": "keys", "fields": [["a", "bytes", 2]]}', b"x"),
        packed(b'{"kind": "keys", "fields": [["a", "bytes", 1], ["a", "bytes", 0]]}', b"x"),
        packed(b'{"kind": "keys", "fields": [["a", "int", 1]]}', b"x"),
        packed(b'{"kind": "keys", "fields": [["a", "int", 30]]}', b"9" * 30),
        packed(b'{"kind": "keys", "fields": [["a", "str", 1]]}', b"\xff"),
        packed(b"[" * 60_000),
    ],
)
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        received(data)


def test_a_connection_that_ends() -> None:
    assert received(b"") is None
    whole = packed(b'{"kind": "keys", "fields": [["a", "bytes", 1]]}', b"x")
    for size in range(1, len(whole)):
        with pytest.raises(ConnectionError):
            received(whole[:size])
