"""Messages as bytes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from laconic.clients.wire import Message, decode, encode, message_size
from laconic.errors import WireError
from laconic.packing import FLOAT16
from laconic.round import in_half

PRINT = "0123456789abcdef0123456789abcdef"
MESSAGE = Message("code", 7, 1, 42, 3.0, PRINT, torch.arange(5, dtype=torch.float32))
EXPECTED = {"fingerprint": PRINT, "round": 7, "attempt": 1, "size": 5}


def test_round_trip() -> None:
    back = decode(encode(MESSAGE), **EXPECTED)  # type: ignore[arg-type]
    assert torch.equal(back.values, MESSAGE.values)
    assert (back.kind, back.round, back.attempt, back.client, back.weight) == ("code", 7, 1, 42, 3.0)


@given(st.integers(0, 3000))
def test_the_counted_size_is_the_serialised_one(count: int) -> None:
    message = Message("weights", 1, 0, 0, 0.0, PRINT, torch.zeros(count))
    assert len(encode(message)) == message_size(count)
    assert message_size(count) <= 4 * count + 256


@given(st.lists(st.floats(-1e6, 1e6, width=32), max_size=60))
def test_floats_of_16_bits_take_two_bytes_and_are_rounded_as_clients_round_them(values: list[float]) -> None:
    sent = torch.tensor(values, dtype=torch.float32)
    data = encode(Message("weights", 7, 1, 0, 0.0, PRINT, sent), FLOAT16)
    assert len(data) == message_size(len(values), FLOAT16) == 60 + 2 * len(values)
    back = decode(data, **(EXPECTED | {"size": len(values)}), encoding=FLOAT16).values  # type: ignore[arg-type]
    assert back.dtype == torch.float32
    assert torch.equal(back, in_half(sent))
    near = sent.clamp(-65504, 65504)
    assert bool(((back - near).abs() <= near.abs() / 2048 + 2**-25).all())
    with pytest.raises(WireError, match="16 bits, expected float32"):
        decode(data, **(EXPECTED | {"size": len(values)}))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [("fingerprint", "f" * 32, "scheme"), ("round", 8, "round"), ("attempt", 0, "round"), ("size", 6, "values")],
)
def test_what_does_not_belong_here_is_refused(field: str, value: object, reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        decode(encode(MESSAGE), **(EXPECTED | {field: value}))  # type: ignore[arg-type]


@given(st.integers(0, len(encode(MESSAGE)) - 1))
def test_truncation_is_refused(length: int) -> None:
    with pytest.raises(WireError):
        decode(encode(MESSAGE)[:length], **EXPECTED)  # type: ignore[arg-type]


@given(st.integers(0, len(encode(MESSAGE)) - 1), st.integers(1, 255))
def test_a_flipped_byte_never_passes_as_other_values(place: int, flip: int) -> None:
    data = bytearray(encode(MESSAGE))
    data[place] ^= flip
    try:
        message = decode(bytes(data), **EXPECTED)  # type: ignore[arg-type]
    except WireError:
        return
    assert torch.equal(message.values, MESSAGE.values)


@given(st.binary(max_size=200))
def test_garbage_is_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        decode(data, **EXPECTED)  # type: ignore[arg-type]
