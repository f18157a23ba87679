"""Packed integers of any width."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laconic.packing import centred, pack, packed_size, unpack


@given(st.integers(1, 64), st.lists(st.integers(-(2**63), 2**63 - 1), max_size=40))
def test_residues_survive(bits: int, values: list[int]) -> None:
    data = pack(np.array(values, dtype=np.int64), bits)
    assert len(data) == packed_size(len(values), bits) == -(-len(values) * bits // 8)
    assert unpack(data, len(values), bits).tolist() == [v % 2**bits for v in values]


@given(st.integers(2, 64), st.data())
def test_signed_values_survive_if_they_fit(bits: int, data: st.DataObject) -> None:
    half = 2 ** (bits - 1)
    values = data.draw(st.lists(st.integers(-half, half - 1), max_size=30))
    packed = pack(np.array(values, dtype=np.int64), bits)
    assert centred(unpack(packed, len(values), bits), bits).tolist() == values


@given(st.integers(2, 40), st.lists(st.lists(st.integers(-1000, 1000), min_size=4, max_size=4), min_size=1, max_size=9))
def test_sums_of_residues_are_residues_of_sums(bits: int, rows: list[list[int]]) -> None:
    total = sum(unpack(pack(np.array(row), bits), 4, bits) for row in rows)
    assert [int(t) % 2**bits for t in total] == [s % 2**bits for s in np.array(rows).sum(0).tolist()]  # type: ignore[union-attr]


@pytest.mark.parametrize("bits", [*range(1, 65)])
def test_the_string_of_bits_is_what_it_is_said_to_be(bits: int) -> None:
    """Against Python's own integers, with a count that fills neither a byte nor a block of the packing."""
    values = np.random.default_rng(bits).integers(0, 2**64, 70_003 if bits in (13, 24, 63) else 1_003, dtype=np.uint64)
    residues = [v % 2**bits for v in values.tolist()]
    string = "".join(f"{v:0{bits}b}" for v in residues)
    data = pack(values, bits)
    assert data == int(string + "0" * (-len(string) % 8), 2).to_bytes(packed_size(len(values), bits))
    assert unpack(data, len(values), bits).tolist() == residues
    assert unpack(memoryview(data), len(values), bits).tolist() == residues


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.float64])
@pytest.mark.parametrize("bits", [8, 13, 16, 24, 64])
def test_any_type_of_number_is_packed_by_its_residue(dtype: type, bits: int) -> None:
    values = (np.arange(-50, 50) if np.dtype(dtype).kind != "u" else np.arange(100)).astype(dtype)
    assert unpack(pack(values, bits), 100, bits).tolist() == [int(v) % 2**bits for v in values]


def test_wrong_lengths_and_widths() -> None:
    with pytest.raises(ValueError, match="cannot be"):
        unpack(b"abc", 5, 8)
    with pytest.raises(ValueError, match="1 to 64"):
        pack(np.zeros(3), 65)
    with pytest.raises(ValueError, match="1 to 64"):
        unpack(b"", 0, 0)
