"""Inputs that are numbers of words: which of them a model knows.

A number beyond the vocabulary must never reach an engine. For many clients at once the vectors of all of them are one
table, and the word would be looked up in another client's part of it.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from laconic.errors import DataError


@contextlib.contextmanager
def vocabularies(module: nn.Module, inputs: Tensor) -> Iterator[list[int]]:
    """While the module runs on these inputs: how many words each embedding knows that takes the inputs as they are."""
    found: list[int] = []

    def notice(layer: nn.Module, arguments: tuple[Any, ...]) -> None:
        assert isinstance(layer, nn.Embedding)
        given = arguments[0] if arguments else None
        if isinstance(given, Tensor) and given.shape == inputs.shape and given.data_ptr() == inputs.data_ptr():
            found.append(layer.num_embeddings)

    hooks = [m.register_forward_pre_hook(notice) for m in module.modules() if isinstance(m, nn.Embedding)]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def check_words(inputs: Tensor, vocabulary: int | None) -> None:
    """Refuse words that the model has no vector for; None: it looks none up."""
    if vocabulary is None or not inputs.numel():
        return
    low, high = (int(n) for n in inputs.aminmax())
    if low < 0 or high >= vocabulary:
        raise DataError(
            f"a record holds the word {low if low < 0 else high}, but the model knows 0 to {vocabulary - 1}: replace"
            " such words, or give the model more (--model-option vocabulary=…)"
        )


def keep_padding(module: nn.Module) -> None:
    """Let the vectors of `padding_idx` stay as they are inside `vmap` too, in place.

    There the vectors of all clients are one table, and torch would leave only the first client's as it is.
    """
    for layer in module.modules():
        if isinstance(layer, nn.Embedding) and layer.padding_idx is not None:
            number, layer.padding_idx = layer.padding_idx, None
            layer.register_forward_hook(functools.partial(_padded, number))


def _padded(number: int, layer: nn.Module, arguments: tuple[Any, ...], vectors: Tensor) -> Tensor:
    return torch.where((arguments[0] == number).unsqueeze(-1), vectors.detach(), vectors)
