"""Attention for many clients at once: softmax(Q·Kᵀ/√d + mask)·V (Vaswani et al. 2017).

It has no weights of its own, so the clients become more records: (clients, batch, heads, …) is (clients·batch, heads,
…). `vmap` has no rule for torch's fused kernels and would call them client by client.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any, TypeGuard, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from laconic.train.layers.dropout import KeyedDropout
from laconic.train.layers.replacement import clients_first, watched


class Attention(nn.MultiheadAttention):
    """In place of a `nn.MultiheadAttention`, with the same weights.

    With `dropout`, the masks on the attention weights follow from a key. With `vmapped`, it is for use inside `vmap`.
    """

    def __init__(self, layer: nn.MultiheadAttention) -> None:
        nn.Module.__init__(self)
        self.__dict__.update(layer.__dict__)
        self.vmapped = False
        self.attention_dropout = KeyedDropout(layer.dropout, whole_channels=False) if layer.dropout else None

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """`is_causal` is a hint that `attn_mask` is; the mask alone counts."""
        if query.ndim == 2:  # one sequence alone
            one = [x[None] if self.batch_first else x[:, None] for x in (query, key, value)]
            if query is key and key is value:
                one = [one[0]] * 3
            padding = None if key_padding_mask is None else key_padding_mask[None]
            given = one[0], one[1], one[2], padding, need_weights, attn_mask, average_attn_weights
            y, alone = self.forward(*given)
            return y.squeeze(0 if self.batch_first else 1), None if alone is None else alone.squeeze(0)
        q, k, v = self._projected(query, key, value)
        mask = _additive(attn_mask, key_padding_mask, q)
        drops = self.attention_dropout is not None and self.training
        if need_weights or drops:
            weights = _weights(q, k, mask, None)
            if self.attention_dropout is not None:
                weights = self.attention_dropout(weights)
            y = weights @ v
        else:
            y = (_for_clients if self.vmapped else functional.scaled_dot_product_attention)(q, k, v, mask)
        y = y.transpose(1, 2).flatten(2)
        y = self.projected_out(y)
        y = y if self.batch_first else y.transpose(0, 1)
        if not need_weights:
            return y, None
        return y, weights.mean(1) if average_attn_weights else weights

    def _projected(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        """Queries, keys and values, (batch, heads, length, size): one product if they are of one input."""
        if query is key and key is value and self._qkv_same_embed_dim:
            every = self.projected_in(query if self.batch_first else query.transpose(0, 1))
            return every.view(*every.shape[:-1], 3, self.num_heads, -1).permute(2, 0, 3, 1, 4).unbind()
        found = []
        for number, x in enumerate((query, key, value)):
            one = self.projected_in(x if self.batch_first else x.transpose(0, 1), number)
            found.append(one.view(*one.shape[:-1], self.num_heads, -1).transpose(1, 2))
        return tuple(found)

    def projected_in(self, x: Tensor, number: int | None = None) -> Tensor:
        """Queries, keys and values of x side by side; or only queries (0), keys (1) or values (2)."""
        weight: Tensor | None = self.in_proj_weight
        bias: Tensor | None = self.in_proj_bias
        if number is not None:
            apart = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
            weight = apart[number] if weight is None else weight.chunk(3)[number]
            bias = None if bias is None else bias.chunk(3)[number]
        return functional.linear(x, cast(Tensor, weight), bias)

    def projected_out(self, y: Tensor) -> Tensor:
        return functional.linear(y, self.out_proj.weight, self.out_proj.bias)


def can_replace(layer: nn.Module) -> TypeGuard[nn.MultiheadAttention]:
    """True if `Attention` can replace this layer: exactly torch's class, no bias_k, no zero attention."""
    if type(layer) is not nn.MultiheadAttention or watched(layer):
        return False
    return layer.bias_k is None and not layer.add_zero_attn


def with_keyed_attention(module: nn.Module) -> None:
    """Let the dropout inside the module's attention layers follow from keys, in place."""
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if can_replace(child) and child.dropout:
                setattr(parent, name, Attention(child))


def use_client_attention(module: nn.Module) -> None:
    """Let the module's attention layers run for all clients at once inside `vmap`, in place."""
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if can_replace(child):
                child = Attention(child)
                setattr(parent, name, child)
            if isinstance(child, Attention):
                child.vmapped = True


def calls_attention(module: nn.Module, inputs: Tensor) -> bool:
    """Whether a `forward` of the user's in the module calls `scaled_dot_product_attention`."""
    known = ("torch.nn.", "laconic.")
    if all(type(layer).__module__.startswith(known) and not watched(layer) for layer in module.modules()):
        return False
    mode, devices = _Overridden(replace=False), [inputs.device] if inputs.is_cuda else []
    with torch.no_grad(), torch.random.fork_rng(devices=devices), mode:
        module(inputs)
    return mode.calls > 0


@contextlib.contextmanager
def attention_for_clients(wanted: bool) -> Iterator[None]:
    """While a module runs inside `vmap`: its calls of `scaled_dot_product_attention` are for all clients at once."""
    if not wanted:
        yield
        return
    with _Overridden(replace=True):
        yield


class _Overridden(TorchFunctionMode):
    """Sees every call of torch in this thread; it counts those of attention, and may answer them itself."""

    def __init__(self, replace: bool) -> None:
        super().__init__()
        self.calls, self._replace = 0, replace

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is functional.scaled_dot_product_attention:
            self.calls += 1
            if self._replace:
                return _for_clients(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _for_clients(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """One client's view of attention, inside `vmap`."""
    if dropout_p or enable_gqa:  # a mask without a key is refused by vmap; shared keys and values are left to torch
        return functional.scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    return cast(Tensor, _InVmap.apply(query, key, value, attn_mask, is_causal, scale))  # type: ignore[no-untyped-call]


class _InVmap(torch.autograd.Function):
    """The way from one client's view inside `vmap` to the attention of all clients."""

    @staticmethod
    def forward(*inputs: Any) -> Tensor:
        raise AssertionError("only inside vmap")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        raise AssertionError("only inside vmap")

    @staticmethod
    def vmap(
        info: Any,
        in_dims: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        causal: bool,
        scale: float | None,
    ) -> tuple[Tensor, int]:
        every = zip((query, key, value), in_dims, strict=False)
        q, k, v = (clients_first(t, dim, info.batch_size) for t, dim in every)
        if mask is not None and (in_dims[3] is not None or mask.ndim > 2):
            mask = clients_first(mask, in_dims[3], info.batch_size)
            shape = (*q.shape[:-1], k.shape[-2])
            mask = mask.reshape(len(mask), *[1] * (len(shape) - mask.ndim), *mask.shape[1:]).expand(shape)
        lead = q.shape[:-2]
        if q.ndim > 4:
            q, k, v = (t.flatten(0, -4) for t in (q, k, v))
            mask = mask if mask is None or mask.ndim == 2 else mask.flatten(0, -4)
        # The gradients of the fused kernels of a GPU differ from one time to the next.
        attend = as_products if q.is_cuda else functional.scaled_dot_product_attention
        y = attend(q, k, v, mask, is_causal=causal, scale=scale)
        return y.reshape(*lead, *y.shape[-2:]), 0


def as_products(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *, is_causal: bool = False, scale: float | None = None
) -> Tensor:
    """Attention as products, which have the same bits every time."""
    return _weights(q, k, _with_causal(mask, is_causal, q, k), scale) @ v


def _weights(q: Tensor, k: Tensor, mask: Tensor | None, scale: float | None) -> Tensor:
    """softmax(Q·Kᵀ·scale + mask), where scale is 1/√d unless given."""
    scores = (q * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)) @ k.mT
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype is torch.bool else scores + mask
    return scores.softmax(-1)


def _with_causal(mask: Tensor | None, causal: bool, q: Tensor, k: Tensor) -> Tensor | None:
    """The mask; with `causal`, position i looks at 0, …, i only."""
    if not causal:
        return mask
    return torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).tril()


def _additive(mask: Tensor | None, padding: Tensor | None, q: Tensor) -> Tensor | None:
    """Both masks of a layer as what is added to the scores: −∞ where True, or the numbers as they are."""
    if mask is not None:
        mask = _infinite(mask, q)
        if mask.ndim == 3:
            mask = mask.reshape(-1, q.shape[1], *mask.shape[1:])
    if padding is not None:
        padding = _infinite(padding, q)[:, None, None]
        mask = padding if mask is None else mask + padding
    return mask


def _infinite(mask: Tensor, like: Tensor) -> Tensor:
    if mask.dtype is not torch.bool:
        return mask.to(like.dtype)
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill(mask, -math.inf)
