"""Dropout whose masks are a function of a key, so that every engine, device and process draws the same ones."""

from __future__ import annotations

import importlib.util
import math
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from laconic.errors import ConfigError

_FACTORS = np.array([0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB], dtype=np.uint64)
"""Those of SplitMix64 (Steele, Lea and Flood 2014)."""
_BLOCK = 1 << 14
"""Positions that are hashed together on a CPU: they stay in its cache."""
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
        if inputs.is_cuda and (inputs.dtype is torch.float64 or not _HAS_TRITON):
            position = torch.arange(math.prod(shape), device=inputs.device).reshape(shape)
            stays = (_mixed(position + self.key) & 0xFFFFFF) >= _least(self.p, inputs.dtype)
        else:
            least = _least(self.p, inputs.dtype)
            stays = cast(Tensor, _Masks.apply(self.key, shape, least))  # type: ignore[no-untyped-call]
        return inputs * stays / (1 - self.p)


def _least(p: float, dtype: torch.dtype) -> int:
    """Hashes from this one on are kept: hash/2²⁴ ≥ p, where p has the precision of the inputs."""
    return math.ceil(float(torch.tensor(p, dtype=torch.promote_types(dtype, torch.float32))) * 2**24)


class _Masks(torch.autograd.Function):
    """Every client's mask at once; `vmap` brings the keys of all clients together."""

    @staticmethod
    def forward(key: Tensor, shape: tuple[int, ...], least: int) -> Tensor:
        return _kept(key.reshape(1), shape, least)[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None: ...

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, None]:
        return None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, key: Tensor, shape: tuple[int, ...], least: int) -> tuple[Tensor, int]:
        return _kept(key, shape, least), 0


def _kept(keys: Tensor, shape: tuple[int, ...], least: int) -> Tensor:
    """Which entries stay, (clients, *shape)."""
    if keys.is_cuda:
        from laconic.train.layers.kernels import kept

        return kept(keys, shape, least)
    mask = torch.empty(len(keys), *shape, dtype=torch.bool)
    rows = mask.view(len(keys), -1).numpy()
    for key, row in zip(keys.numpy().view(np.uint64), rows, strict=True):
        for start in range(0, len(row), _BLOCK):
            x = np.arange(start, min(start + _BLOCK, len(row)), dtype=np.uint64) + key
            for factor, shift in zip(_FACTORS, (30, 27, 31), strict=True):  # as `_mixed` does, in half the time
                x *= factor
                if shift == 30:
                    x += factor
                x ^= x >> np.uint64(shift)
            np.greater_equal(x & np.uint64(0xFFFFFF), np.uint64(least), out=row[start : start + _BLOCK])
    return mask


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
    first, second, third = (int(factor.view(np.int64)) for factor in _FACTORS)
    x = x * first + first
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * second
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * third
    return x ^ ((x >> 31) & 0x1FFFFFFFF)
