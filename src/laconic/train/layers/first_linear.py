"""A model as rest(X·Wᵀ): the weights W of the dense layer that takes the inputs, and everything behind it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.func import grad, vmap

if TYPE_CHECKING:
    from laconic.train.flat import FlatModel

Gradient = Callable[..., tuple[list[Tensor], Tensor]]
"""(params, hidden, targets, weight, key) of several clients → gradients by the rest's parameters, and by `hidden`."""


@dataclass(frozen=True)
class FirstLinear:
    """Where W is among the model's parameters, and the rest of the model, which takes X·Wᵀ as its input."""

    position: int
    rest: FlatModel
    gradient: Gradient

    def apart(self, params: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """(W, the rest's parameters), in the rest's order."""
        return params[self.position], params[: self.position] + params[self.position + 1 :]

    def together(self, first: Tensor, others: list[Tensor]) -> list[Tensor]:
        """The inverse of `apart`."""
        return [*others[: self.position], first, *others[self.position :]]


class AddBias(nn.Module):
    """What is left of a dense layer when its product X·Wᵀ comes from elsewhere."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.bias = layer.bias

    def forward(self, product: Tensor) -> Tensor:
        return product if self.bias is None else product + self.bias


def find_first_linear(model: FlatModel, example: tuple[Tensor, Tensor]) -> FirstLinear | str:
    """The layer that takes the inputs, or why the model cannot be taken apart there.

    The module may do anything in `forward`, so a layer is taken for the one only if the gradient of the parts put
    together is that of the whole, at random weights and inputs and with dropout on. So a module that looks at its
    inputs elsewhere, uses W twice or draws random numbers of its own is not taken apart.
    """
    inputs, targets = example
    if inputs.ndim != 2:
        return f"its inputs have shape {tuple(inputs.shape[1:])}, not one row of numbers"
    names = {name: position for position, name in enumerate(model.names)}
    reason = f"no nn.Linear takes the {inputs.shape[1]} input columns"
    for name, layer in model.module.named_modules():
        position = names.get(f"{name}.weight" if name else "weight")
        if type(layer) is not nn.Linear or layer.in_features != inputs.shape[1] or position is None:
            continue
        try:
            first = _taken_apart(model, name, layer, position, targets)
            if _same_gradient(model, first, inputs, targets):
                return first
            reason = f"its output does not depend on the inputs through '{name}' alone"
        except Exception as error:  # a user's module may raise anything when its parts are not what it expects
            reason = (str(error).splitlines() or [type(error).__name__])[0]
    return reason


def _taken_apart(model: FlatModel, name: str, layer: nn.Linear, position: int, targets: Tensor) -> FirstLinear:
    rest, short = copy.deepcopy(model.module), AddBias(copy.deepcopy(layer))
    parent, _, own = name.rpartition(".")
    if name:
        setattr(rest.get_submodule(parent), own, short)
    else:
        rest = short
    hidden = torch.zeros(len(targets), layer.out_features, device=model.initial.device)
    flat = type(model)(rest, example=(hidden, targets), loss=model.loss)
    # randomness="error": a draw inside the model would differ between engines, so it is refused.
    return FirstLinear(position, flat, vmap(grad(loss_of(flat), argnums=(0, 1)), randomness="error"))


def loss_of(model: FlatModel) -> Callable[..., Tensor]:
    """`mean_loss` of the parameters in their order."""
    return lambda params, *others: model.mean_loss(dict(zip(model.names, params, strict=True)), *others)


def _same_gradient(model: FlatModel, first: FirstLinear, inputs: Tensor, targets: Tensor) -> bool:
    generator = torch.Generator().manual_seed(0)
    device = model.initial.device
    model.module.train()
    first.rest.module.train()
    for _ in range(2):
        x = torch.randn(inputs.shape, generator=generator).to(device)
        noise = torch.randn(model.size, generator=generator).to(device)
        params = model.split(model.initial + 0.05 * noise)
        share = torch.full((len(targets),), 1 / len(targets), device=device)
        key = torch.tensor(1, device=device)
        whole = grad(loss_of(model))(params, x, targets, share, key)
        weight, others = first.apart(params)
        # Two clients, so that the whole way through vmap is tried.
        stacked = [p[None].repeat(2, *[1] * p.ndim) for p in (*others, x @ weight.t(), targets, share, key)]
        *others, hidden, both_targets, shares, keys = stacked
        gradients, gradient = first.gradient(others, hidden, both_targets, shares, keys)
        parts = first.together(gradient[0].t() @ x, [s[0] for s in gradients])
        scale = max(float(p.abs().max()) for p in whole)
        if scale == 0 or any(float((a - b).abs().max()) > 1e-4 * scale for a, b in zip(whole, parts, strict=True)):
            return False
    return True
