"""Modules of a user's own may remember what they saw: in attributes, buffers, globals, in their loss.

What is remembered goes from one client's training into the next one's, around the clip: one client would move a sum by
more than S. torch's layers and Laconic's remember nothing but buffers, which are checked after every client.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from laconic.errors import ConfigError

_OF_TORCH = frozenset(nn.Module().__dict__)
_HOOKS = [name for name in _OF_TORCH if name.endswith("hooks")]
_CLOSE = 1e-4


def own_layers(module: nn.Module) -> list[nn.Module]:
    """The layers that compute what neither torch nor Laconic wrote: of another class, with hooks or a new `forward`."""
    return [layer for layer in module.modules() if _is_own(layer)]


def _is_own(layer: nn.Module) -> bool:
    ours = type(layer).__module__.startswith(("torch.", "laconic."))
    return not ours or "forward" in vars(layer) or any(vars(layer)[name] for name in _HOOKS)


class Forgetful:
    """A hook before a module's forward: its own layers have the attributes again that they were made with.

    So every call of the module is the first one. Weights, buffers and parts stay as they are.
    """

    def __init__(self, module: nn.Module, layers: list[nn.Module]) -> None:
        self._layers = layers
        self._parts = [*module.modules(), *module.parameters(), *module.buffers()]
        self._made = [copy.deepcopy(_attributes(layer), self._shared()) for layer in layers]

    def __call__(self, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        for layer, made in zip(self._layers, self._made, strict=True):
            for name in _attributes(layer).keys() - made.keys():
                del layer.__dict__[name]
            layer.__dict__.update(copy.deepcopy(made, self._shared()) if _changeable(made) else made)

    def _shared(self) -> dict[int, Any]:
        """What a copy of attributes has in common with the module: for `copy.deepcopy`."""
        return {id(part): part for part in self._parts}


def _attributes(layer: nn.Module) -> dict[str, Any]:
    return {name: value for name, value in vars(layer).items() if name not in _OF_TORCH}


def _changeable(attributes: dict[str, Any]) -> bool:
    return any(not isinstance(value, int | float | str | None) for value in attributes.values())


def let_forget(module: nn.Module) -> bool:
    """Let the module forget between calls; False if it has no layers that could remember."""
    layers = own_layers(module)
    if layers:
        module.register_forward_pre_hook(Forgetful(module, layers), prepend=True)
    return bool(layers)


def check_memory(gradient: Callable[[Tensor, Tensor], Tensor], inputs: Tensor, targets: Tensor) -> None:
    """Refuse a module or loss that gives other gradients after it has seen other records.

    Memory outside a module's attributes (a global, a closure) is nothing that can be put back. So a step is tried, then
    one on other records, then the first one again.
    """
    first = gradient(inputs, targets)
    for _ in range(2):
        gradient(_others(inputs), targets.flip(0))
    again = gradient(inputs, targets)
    scale = float(torch.cat([first.abs(), again.abs()]).max()) if len(first) else 0.0
    if not torch.allclose(first, again, rtol=0, atol=_CLOSE * scale, equal_nan=True):
        raise ConfigError(
            "the model or its loss remembers records that it saw before: in training, one client's records would change"
            " what others send, and no ε holds. Keep no state in globals, in closures or in the loss"
        )


def _others(inputs: Tensor) -> Tensor:
    return 2 * inputs.flip(0) if inputs.is_floating_point() else torch.zeros_like(inputs)
