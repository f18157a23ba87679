"""What training a model for many clients at once would bring: how large its operations are, and which stand alone.

Many clients at once share the cost of calling an operation, some microseconds. On a CPU they also share its cache. So
small operations are better done for many clients at once, and large ones client by client.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

_MEASURED = (
    nn.MultiheadAttention,
    nn.RNNBase,
    nn.RNNCellBase,
    nn.LayerNorm,
    nn.GroupNorm,
    nn.RMSNorm,
    nn.modules.instancenorm._InstanceNorm,
)
"""For models with such layers the size of operations decides. The others' choice is older, and runs keep it."""


def numbers_per_operation(module: nn.Module, inputs: Tensor, batch: int) -> float | None:
    """How many numbers one operation of a client's step writes on average; None: the model has none of the layers.

    An operation is a call of a layer without parts. torch's GRU is one for each moment, because that is how it works.
    """
    if not any(isinstance(layer, _MEASURED) for layer in module.modules()):
        return None
    written: list[int] = []
    calls: list[int] = []

    def notice(layer: nn.Module, arguments: tuple[Any, ...], outputs: Any) -> None:
        found = outputs[0] if isinstance(outputs, tuple) else outputs
        if not isinstance(found, Tensor):
            return
        count, times = found.numel(), 1
        if isinstance(layer, nn.MultiheadAttention):
            length = arguments[0].shape[1 if layer.batch_first else 0]
            count, times = 5 * count + count // layer.embed_dim * layer.num_heads * length, 4
        elif isinstance(layer, nn.RNNBase):
            gates = 4 if isinstance(layer, nn.LSTM) else 3
            count *= gates * layer.num_layers
            if not isinstance(layer, nn.LSTM):
                times = layer.num_layers * math.prod(found.shape[:-1]) // len(inputs)
        written.append(count)
        calls.append(times)

    whole = (nn.MultiheadAttention, nn.RNNBase)
    hooks: list[RemovableHandle] = []
    for layer in module.modules():
        if isinstance(layer, whole) or not any(True for _ in layer.children()):
            hooks.append(layer.register_forward_hook(notice))
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[inputs.device] if inputs.is_cuda else []):
            module.train()(inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return sum(written) * batch / len(inputs) / max(1, sum(calls))


@dataclass(frozen=True)
class Alone:
    """A layer that is not done for all clients at once, and why. If it is `possible`, it is done client by client."""

    layer: str
    why: str
    possible: bool


def find_alone(module: nn.Module, vectorised: Callable[[], None]) -> Alone | None:
    """The first such layer of the module when `vectorised` runs it inside `vmap`; None: there is none."""
    found = _tried(module, vectorised, "error")
    # What is behind a layer that vmap does client by client may be impossible.
    return (_tried(module, vectorised, "ignore") or found) if found is not None and found.possible else found


def _tried(module: nn.Module, vectorised: Callable[[], None], warning: Literal["error", "ignore"]) -> Alone | None:
    inside: list[str] = []
    hooks: list[RemovableHandle] = []
    for name, layer in module.named_modules():
        kind = type(layer).__name__.removeprefix("Client")
        called = f"'{name}' ({kind})" if name else f"the model ({kind})"
        hooks.append(layer.register_forward_pre_hook(lambda *_, called=called: inside.append(called)))
        hooks.append(layer.register_forward_hook(lambda *_: inside.pop() and None))
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings(warning, message=_ONE_BY_ONE)
            vectorised()
    except (RuntimeError, UserWarning) as problem:
        operation = re.search(r"aten::(\w+)", str(problem))
        why = f"torch cannot vectorise {operation.group(1)}" if operation else str(problem).splitlines()[0]
        return Alone(inside[-1] if inside else "the loss", why, isinstance(problem, UserWarning))
    finally:
        for hook in hooks:
            hook.remove()
    return None


_ONE_BY_ONE = ".*batching rule for"
"""What vmap warns of when it does an operation client by client."""
