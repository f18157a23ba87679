"""Dropout whose masks are a function of a key, so that every engine, device and process draws the same ones."""

from __future__ import annotations

import importlib.util
from typing import Any, cast

import torch
from torch import Tensor, nn

from laconic.errors import ConfigError

_HAS_TRITON = importlib.util.find_spec("triton") is not None


class KeyedDropout(nn.Module):
    """Inverted dropout with the mask hash(key + position) < p. The key is a buffer: one per client and step."""

    key: Tensor

    def __init__(self, p: float, *, whole_channels: bool) -> None:
        super().__init__()
        self.p = p
        self._whole_channels = whole_channels
        self.register_buffer("key", torch.zeros((), dtype=torch.int64), persistent=False)

    def forward(self, inputs: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return inputs
        shape = (*inputs.shape[:2], *[1] * (inputs.ndim - 2)) if self._whole_channels else tuple(inputs.shape)
        if inputs.is_cuda and inputs.dtype is not torch.float64 and _HAS_TRITON:
            stays = cast(Tensor, _OnGPU.apply(self.key, shape, self.p))  # type: ignore[no-untyped-call]
        else:
            position = torch.arange(_product(shape), device=inputs.device).reshape(shape)
            uniform = (_mixed(position + self.key) & 0xFFFFFF).to(torch.promote_types(inputs.dtype, torch.float32))
            stays = uniform / 2**24 >= self.p
        return inputs * stays / (1 - self.p)


class _OnGPU(torch.autograd.Function):
    """Every client's mask by one kernel; `vmap` brings the keys of all clients together."""

    @staticmethod
    def forward(key: Tensor, shape: tuple[int, ...], p: float) -> Tensor:
        from laconic.train.layers.dropout_kernel import kept

        return kept(key.reshape(1), shape, p)[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None: ...

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, None]:
        return None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, key: Tensor, shape: tuple[int, ...], p: float) -> tuple[Tensor, int]:
        from laconic.train.layers.dropout_kernel import kept

        return kept(key, shape, p), 0


def with_keyed_dropout(module: nn.Module) -> list[KeyedDropout]:
    """Replace the module's dropout layers in place; the list of the replacements."""
    found = []
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.AlphaDropout | nn.FeatureAlphaDropout | nn.RReLU):
                raise ConfigError(f"{type(child).__name__} is not supported: its noise cannot be replayed; use Dropout")
            if isinstance(child, nn.modules.dropout._DropoutNd):
                keyed = KeyedDropout(child.p, whole_channels=not isinstance(child, nn.Dropout))
                setattr(parent, name, keyed)
                found.append(keyed)
    return found


def layer_keys(key: Tensor, num_layers: int) -> list[Tensor]:
    """A key of its own for every dropout layer."""
    return [_mixed(key + layer) for layer in range(num_layers)]


def _mixed(x: Tensor) -> Tensor:
    """SplitMix64 in wrapping int64 arithmetic (the shifts are made logical by masking)."""
    x = x * -7046029254386353131 + -7046029254386353131
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * -4658895280553007687
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * -7723592293110705685
    return x ^ ((x >> 31) & 0x1FFFFFFFF)


def _product(shape: tuple[int, ...]) -> int:
    result = 1
    for length in shape:
        result *= length
    return result
