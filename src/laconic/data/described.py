"""What one record looks like, in plain values. With it a run's model can be built again without the data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from laconic.data.inputs import Inputs
from laconic.data.pictures import Pictures
from laconic.data.sparse import SparseRows

NUMBERS, WORDS, BYTES, SPARSE = "numbers", "words", "bytes", "sparse"
"""Floats; whole numbers that stand for words or the like; pixels from 0 to 255; few that are not zero."""


def described(inputs: Inputs, *, num_classes: int | None = None, classes: Sequence[str] = ()) -> dict[str, Any]:
    """Shape and kind of a record, the number of classes if it is known, and their names."""
    found: dict[str, Any] = {"input_shape": list(inputs.shape[1:]), "inputs": _kind(inputs)}
    return found | {"num_classes": num_classes, "classes": list(classes)}


def _kind(inputs: Inputs) -> str:
    if isinstance(inputs, SparseRows):
        return SPARSE
    values = inputs.pixels if isinstance(inputs, Pictures) else inputs
    if values.is_floating_point():
        return NUMBERS
    return BYTES if values.dtype == torch.uint8 else WORDS
