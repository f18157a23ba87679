"""Low-rank adapters (LoRA; Hu et al. 2022): a trained module of which few weights are trained further.

A layer's weights W stay as they are, and (alpha/rank)·B·A is added to them: A (rank, in) starts at random and B (out,
rank) at 0, so that training starts from the module as it was. What is trained, sent, clipped and noised are the
adapters alone, and other weights that the user names. All clients share one product with W.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn
from torch.nn import functional

from laconic.errors import ConfigError
from laconic.parts import positive, positive_int
from laconic.train.layers.attention import Attention, can_replace


class LoRALinear(nn.Module):
    """x·Wᵀ + b + scale·x·Aᵀ·Bᵀ, where W and b are those of `base`."""

    def __init__(self, base: nn.Linear, rank: int, scale: float) -> None:
        super().__init__()
        self.base, self.scale = base, scale
        self.down, self.up = _adapter(base.in_features, base.out_features, rank, base.weight)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.base(x)
        return found + self.scale * functional.linear(functional.linear(x, self.down), self.up)

    def merged(self) -> nn.Linear:
        """The plain layer that does the same."""
        weight = self.base.weight + self.scale * self.up @ self.down
        self.base.weight = nn.Parameter(weight.detach())  # another one: the old one may be another layer's, too
        return self.base


class LoRAAttention(Attention):
    """A `nn.MultiheadAttention` with one adapter for queries, keys and values together, and one for the outputs."""

    def __init__(self, layer: nn.MultiheadAttention, rank: int, scale: float) -> None:
        super().__init__(layer)
        self.scale = scale
        size, like = layer.embed_dim, layer.out_proj.weight
        self.in_down, self.in_up = _adapter(size, 3 * size, rank, like)
        self.out_down, self.out_up = _adapter(size, size, rank, like)

    def projected_in(self, x: Tensor, number: int | None = None) -> Tensor:
        up = self.in_up if number is None else self.in_up.chunk(3)[number]
        more = functional.linear(functional.linear(x, self.in_down), up)
        return super().projected_in(x, number) + self.scale * more

    def projected_out(self, y: Tensor) -> Tensor:
        more = functional.linear(functional.linear(y, self.out_down), self.out_up)
        return super().projected_out(y) + self.scale * more

    def merged(self) -> nn.MultiheadAttention:
        """The plain layer that does the same."""
        biased = self.in_proj_bias is not None
        plain = nn.MultiheadAttention(
            self.embed_dim, self.num_heads, self.dropout, biased, batch_first=self.batch_first
        )
        with torch.no_grad():
            plain.in_proj_weight.copy_(self.in_proj_weight + self.scale * self.in_up @ self.in_down)
            plain.out_proj.weight.copy_(self.out_proj.weight + self.scale * self.out_up @ self.out_down)
            if biased:
                plain.in_proj_bias.copy_(self.in_proj_bias)
                plain.out_proj.bias.copy_(self.out_proj.bias)
        return plain


def lora(
    module: nn.Module,
    *,
    rank: int = 8,
    alpha: float | None = None,
    targets: Sequence[str] | None = None,
    also: Sequence[str] = (),
) -> nn.Module:
    """A copy of the module that trains low-rank adapters only; all its other weights are fixed.

    Args:
        module: what was trained before, on public data.
        rank: of an adapter; at most the smaller side of its layer.
        alpha: ΔW = (alpha/rank)·B·A. By default, the rank.
        targets: names of the layers that get an adapter, with wildcards, such as "encoder.*.linear1". Dense layers and
            attention can have one. By default, all that are not in `also`.
        also: names of layers or weights that are trained themselves, with wildcards, such as "head".

    Returns:
        The module to train. `merged` makes torch's own layers of it again.

    Examples:
        >>> import torch
        >>> base = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))
        >>> model = laconic.lora(base, rank=2, also=["2"])
        >>> [name for name, weight in model.named_parameters() if weight.requires_grad]
        ['0.down', '0.up', '2.weight', '2.bias']

    References:
        Hu et al., LoRA: Low-Rank Adaptation of Large Language Models, ICLR 2022.
    """
    positive_int(rank=rank)
    alpha = float(rank) if alpha is None else alpha
    positive(alpha=alpha)
    module = copy.deepcopy(module)
    trained = _matching(also, [name for name, _ in module.named_parameters()], "also")
    places = [place for place in _places(module) if _adaptable(place[3])]
    wanted = _matching(targets, [name for name, *_ in places], "targets") if targets is not None else None
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name in trained)
    replaced: dict[nn.Module, nn.Module] = {}
    for name, parent, key, layer in places:
        if (wanted is not None and name not in wanted) or any(p.requires_grad for p in layer.parameters()):
            continue
        if layer not in replaced:
            replaced[layer] = _adapted(layer, rank, alpha)
        module = replaced[layer] if parent is None else module
        if parent is not None:
            setattr(parent, key, replaced[layer])
    if not replaced:
        raise ConfigError("lora: no layer gets an adapter: dense layers (nn.Linear) and attention can have one")
    _without_fast_path(module)
    return module


def merged(module: nn.Module) -> nn.Module:
    """A copy of the module with every adapter added to its layer: torch's own layers again, all of them trainable.

    Args:
        module: what `lora` made, trained or not.

    Examples:
        >>> import torch
        >>> laconic.merged(laconic.lora(torch.nn.Sequential(torch.nn.Linear(4, 2)), rank=1))
        Sequential(
          (0): Linear(in_features=4, out_features=2, bias=True)
        )
    """
    module = copy.deepcopy(module)
    replaced: dict[nn.Module, nn.Module] = {}
    for _, parent, key, layer in list(_places(module)):
        if isinstance(layer, LoRALinear | LoRAAttention):
            if layer not in replaced:
                replaced[layer] = layer.merged()
            module = replaced[layer] if parent is None else module
            if parent is not None:
                setattr(parent, key, replaced[layer])
    return module.requires_grad_(True)


def _adapter(inputs: int, outputs: int, rank: int, like: Tensor) -> tuple[nn.Parameter, nn.Parameter]:
    """(A, B) of a layer."""
    rank = min(rank, inputs, outputs)
    down, up = like.new_empty(rank, inputs), like.new_zeros(outputs, rank)
    nn.init.kaiming_uniform_(down, a=math.sqrt(5))  # as torch initialises a dense layer
    return nn.Parameter(down), nn.Parameter(up)


def _adaptable(layer: nn.Module) -> bool:
    if isinstance(layer, nn.MultiheadAttention):
        return can_replace(layer) and layer._qkv_same_embed_dim
    return type(layer) is nn.Linear


def _adapted(layer: nn.Module, rank: int, alpha: float) -> nn.Module:
    if isinstance(layer, nn.MultiheadAttention):
        return LoRAAttention(layer, rank, alpha / rank)
    assert isinstance(layer, nn.Linear)
    return LoRALinear(layer, rank, alpha / rank)


def _places(module: nn.Module) -> Iterator[tuple[str, nn.Module | None, str, nn.Module]]:
    """(name, parent, its name there, layer) of every place in the module; the module itself has no parent."""
    yield "", None, "", module
    for prefix, parent in list(module.named_modules()):
        for key, layer in parent._modules.items():
            if layer is not None:
                yield f"{prefix}.{key}".lstrip("."), parent, key, layer


def _matching(patterns: Sequence[str], names: list[str], option: str) -> set[str]:
    """The names that a pattern means, or what is inside of them."""
    found: set[str] = set()
    for pattern in patterns:
        some = {name for name in names if fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")}
        if not some:
            layers = {name for one in names for name in (one, one.rpartition(".")[0])}
            near = get_close_matches(pattern, layers, 1)
            hint = f": did you mean '{near[0]}'?" if near else " (model.named_modules() lists them)"
            raise ConfigError(f"lora, {option}: the module has no '{pattern}' that can be meant{hint}")
        found |= some
    return found


def _without_fast_path(module: nn.Module) -> None:
    """torch's fast path of an encoder layer, without gradients, reads the weights of its layers and goes past them."""
    for layer in module.modules():
        if isinstance(layer, nn.TransformerEncoderLayer):
            layer.activation_relu_or_gelu = 0
        elif isinstance(layer, nn.TransformerEncoder):
            layer.use_nested_tensor = False
