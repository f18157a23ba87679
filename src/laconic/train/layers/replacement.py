"""Which layers of a user's module may be replaced by a cheaper order or by one for all clients at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from torch import Tensor, nn


def pool_before_relu(module: nn.Module) -> None:
    """max and relu commute, and so do their gradients; behind the pooling there is less to do. Changes the module."""
    for chain, single in chains(module):
        for i in range(1, len(chain)):
            before, layer = chain[i - 1], chain[i]
            if type(layer) is nn.ReLU and single(layer):
                layer.inplace = False  # what it reads may be a view of all clients' values, and no other layer reads it
            if type(before) is nn.ReLU and single(before) and pools(layer) and single(layer):
                before.inplace = False
                chain[i - 1], chain[i] = layer, before


def chains(module: nn.Module) -> Iterator[tuple[nn.Sequential, Callable[[nn.Module], bool]]]:
    """Layers that run one after the other for certain, and whether a layer is used once and has no hooks.

    They are those of the module itself and of what is nested in it, if these are plain `nn.Sequential`s: no
    `forward` of a user can take them apart.
    """
    uses = Counter(child for parent in module.modules() for child in parent._modules.values())

    def single(layer: nn.Module) -> bool:
        return uses[layer] <= 1 and not watched(layer)

    def inside(layer: nn.Module) -> Iterator[nn.Sequential]:
        if type(layer) is nn.Sequential and single(layer):
            yield layer
            for child in layer:
                yield from inside(child)

    return ((chain, single) for chain in inside(module))


def pools(layer: nn.Module) -> bool:
    return type(layer) in (nn.MaxPool1d, nn.MaxPool2d) and not layer.return_indices and not watched(layer)


def watched(layer: nn.Module) -> bool:
    """True if the layer has hooks, which see its inputs or outputs, or another `forward` in place of its class's."""
    hooks = (layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks)
    return any(hooks) or "forward" in layer.__dict__


def clients_first(tensor: Tensor, dim: int | None, count: int) -> Tensor:
    """What `vmap` hands over, with the clients on its first axis."""
    return tensor.expand(count, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
