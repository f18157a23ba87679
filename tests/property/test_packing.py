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


def test_wrong_lengths_and_widths() -> None:
    with pytest.raises(ValueError, match="cannot be"):
        unpack(b"abc", 5, 8)
    with pytest.raises(ValueError, match="1 to 64"):
        pack(np.zeros(3), 65)
