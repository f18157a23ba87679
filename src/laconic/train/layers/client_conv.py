"""Convolution in which every client has weights of its own, as one GPU kernel instead of a grouped convolution.

Each output is a row of a product: its patch of the input, gathered while it is read, times the client's weights. The
gradients of the inputs are the same kernel with the weights turned round, those of the weights the transposed product.
"""

from __future__ import annotations

import importlib.util
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from laconic.train.layers.chains import chains, pool_before_relu, pools, watched

_Pool = tuple[Any, ...]
"""Kernel, stride, padding, dilation (each for both axes) and ceil_mode of a `nn.MaxPool2d`."""


def use_client_convolutions(module: nn.Module, device: torch.device) -> None:
    """Let the module's plain 2-D convolutions run client by client inside `vmap`, in place.

    On a GPU that is one kernel, if Triton is there; on a CPU a loop over fast convolutions, each with the pooling
    behind it while its output is in the cache.
    """
    pool_before_relu(module)
    if device.type == "cuda" and importlib.util.find_spec("triton") is None:
        return
    # Normalisation over groups of channels wants its inputs in the usual order; pooling is faster in the other.
    normalised = any(
        isinstance(layer, nn.GroupNorm | nn.modules.instancenorm._InstanceNorm) for layer in module.modules()
    )
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Conv2d and _plain(child):
                setattr(parent, name, ClientConv2d(child, channels_last=not normalised))
    if device.type == "cpu":
        _pool_in_convolutions(module)


def _pool_in_convolutions(module: nn.Module) -> None:
    for chain, single in chains(module):
        for i in range(len(chain) - 1):
            conv, pool = chain[i], chain[i + 1]
            if isinstance(conv, ClientConv2d) and single(conv) and isinstance(pool, nn.MaxPool2d) and pools(pool):
                sizes = (pool.kernel_size, pool.stride, pool.padding, pool.dilation)
                conv.pool = (*map(_pair, sizes), pool.ceil_mode)
                chain[i + 1] = nn.Identity()


def _plain(conv: nn.Conv2d) -> bool:
    simple = conv.stride == (1, 1) and conv.dilation == (1, 1) and conv.groups == 1 and conv.padding_mode == "zeros"
    return simple and not isinstance(conv.padding, str) and not watched(conv)


class ClientConv2d(nn.Conv2d):
    """In place of a `nn.Conv2d` with stride 1, for use inside `vmap` only. With a pool, its output is pooled."""

    pool: _Pool | None = None

    def __init__(self, conv: nn.Conv2d, *, channels_last: bool) -> None:
        nn.Module.__init__(self)
        self.__dict__.update(conv.__dict__)
        self._channels_last = channels_last

    def forward(self, x: Tensor) -> Tensor:
        y = cast(Tensor, _InVmap.apply(x, self.weight, self.bias, self.padding, self.pool))  # type: ignore[no-untyped-call]
        return y if self._channels_last else y.contiguous()


class _InVmap(torch.autograd.Function):
    """The way from one client's view inside `vmap` to `_ClientConv`, which sees all clients."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None, padding: tuple[int, int], pool: _Pool | None) -> Tensor:
        y = functional.conv2d(x, weight, bias, padding=padding)
        return y if pool is None else functional.max_pool2d(y, *pool)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        raise NotImplementedError("only inside vmap")

    @staticmethod
    def vmap(
        info: Any,
        in_dims: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        padding: tuple[int, int],
        pool: _Pool | None,
    ) -> tuple[Tensor, int]:
        x, weight = (
            t.expand(info.batch_size, *t.shape) if dim is None else t.movedim(dim, 0)
            for t, dim in ((x, in_dims[0]), (weight, in_dims[1]))
        )
        if bias is None:
            bias = weight.new_zeros(weight.shape[:2])
        elif in_dims[2] is None:
            bias = bias.expand(info.batch_size, *bias.shape)
        if x.is_cuda:
            return cast(Tensor, _OneKernel.apply(x, weight, bias, padding)), 0  # type: ignore[no-untyped-call]
        return cast(Tensor, _OneByOne.apply(x, weight, bias, padding, pool)), 0  # type: ignore[no-untyped-call]


class _OneByOne(torch.autograd.Function):
    """The same as `_OneKernel`, client by client; each client's output is pooled at once, if there is a pool."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, padding: tuple[int, int], pool: _Pool | None
    ) -> Tensor:
        last = [one.to(memory_format=torch.channels_last) for one in x]
        outputs, places = [], []
        for one in zip(last, weight, bias, strict=True):
            y = functional.conv2d(*one, padding=padding)
            ctx.shape = y.shape
            if pool is not None:
                y, place = torch.ops.aten.max_pool2d_with_indices(y, *pool)
                places.append(place)
            outputs.append(y.permute(0, 2, 3, 1))
        ctx.save_for_backward(weight, *last, *places)
        ctx.padding, ctx.pool = padding, pool
        return torch.stack(outputs).permute(0, 1, 4, 2, 3)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor, Tensor, None, None]:
        weight, *saved = ctx.saved_tensors
        clients, wanted = len(weight), [ctx.needs_input_grad[0], True, True]
        last, places = saved[:clients], saved[clients:]
        found: list[list[Tensor]] = []
        for k, (g, x, w) in enumerate(zip(gradients[0], last, weight, strict=True)):
            if ctx.pool is not None:
                g = _unpooled(g, ctx.shape, ctx.pool, places[k])
            found.append(
                torch.ops.aten.convolution_backward(
                    g, x, w, [len(w)], [1, 1], ctx.padding, [1, 1], False, [0, 0], 1, wanted
                )
            )
        back, by_weight, by_bias = zip(*found, strict=True)
        through = torch.stack([b.permute(0, 2, 3, 1) for b in back]).permute(0, 1, 4, 2, 3) if wanted[0] else None
        return through, torch.stack(by_weight), torch.stack(by_bias), None, None


def _unpooled(gradients: Tensor, shape: torch.Size, pool: _Pool, places: Tensor) -> Tensor:
    """Each gradient at the place of its maximum. Of the pooling's input only shape and order are looked at."""
    order = torch.channels_last
    like = torch.empty(shape, dtype=gradients.dtype, device=gradients.device, memory_format=order)
    gradients = gradients.contiguous(memory_format=order)
    back = torch.ops.aten.max_pool2d_with_indices_backward(gradients, like, *pool, places)
    return cast(Tensor, back)


def _pair(size: Any) -> list[int]:
    return [int(n) for n in size] if isinstance(size, tuple | list) else [int(size)] * 2


class _OneKernel(torch.autograd.Function):
    """x (clients, batch, C, H, W), weight (clients, O, C, kh, kw), bias (clients, O). Memory is channels-last."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, padding: tuple[int, int]) -> Tensor:
        from laconic.train.layers.conv_kernels import convolve

        last = x.permute(0, 1, 3, 4, 2).contiguous()
        ctx.save_for_backward(last, weight)
        ctx.padding = padding
        return convolve(last, _as_rows(weight), bias, weight.shape[3:], padding).permute(0, 1, 4, 2, 3)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor, Tensor, None]:
        from laconic.train.layers.conv_kernels import convolve, weight_gradients

        x, weight = ctx.saved_tensors
        last = gradients[0].permute(0, 1, 3, 4, 2).contiguous()
        kernel, padding = weight.shape[3:], ctx.padding
        back = None
        if ctx.needs_input_grad[0]:
            turned = _as_rows(weight.flip(3, 4).transpose(1, 2))
            opposite = (kernel[0] - 1 - padding[0], kernel[1] - 1 - padding[1])
            back = convolve(last, turned, None, kernel, opposite).permute(0, 1, 4, 2, 3)
        rows = weight_gradients(x, last, kernel, padding)  # (clients, kh·kw·C, O)
        shaped = rows.reshape(len(x), *kernel, x.shape[-1], -1).permute(0, 4, 3, 1, 2)
        return back, shaped, last.sum((1, 2, 3)), None


def _as_rows(weight: Tensor) -> Tensor:
    """(clients, O, C, kh, kw) → (clients, kh·kw·C, O)."""
    return weight.permute(0, 3, 4, 2, 1).reshape(len(weight), -1, weight.shape[1]).contiguous()
