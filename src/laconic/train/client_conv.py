"""Convolution in which every client has weights of its own, as one GPU kernel instead of a grouped convolution.

Each output is a row of a product: its patch of the input, gathered while it is read, times the client's weights. The
slopes of the inputs are the same kernel with the weights turned round, those of the weights the transposed product.
"""

from __future__ import annotations

import importlib.util
from typing import Any, cast

import torch
from torch import Tensor, nn


def use_client_convolutions(module: nn.Module) -> None:
    """Let the module's plain 2-D convolutions run in one kernel inside `vmap`, in place, where the GPU tools exist."""
    if importlib.util.find_spec("triton") is None:
        return
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Conv2d and _plain(child):
                setattr(parent, name, ClientConv2d(child))


def _plain(conv: nn.Conv2d) -> bool:
    simple = conv.stride == (1, 1) and conv.dilation == (1, 1) and conv.groups == 1 and conv.padding_mode == "zeros"
    return simple and not isinstance(conv.padding, str) and not conv._forward_hooks and not conv._forward_pre_hooks


class ClientConv2d(nn.Conv2d):
    """In place of a `nn.Conv2d` with stride 1, for use inside `vmap` only."""

    def __init__(self, conv: nn.Conv2d) -> None:
        nn.Module.__init__(self)
        self.__dict__.update(conv.__dict__)

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, _InVmap.apply(x, self.weight, self.bias, self.padding))  # type: ignore[no-untyped-call]


class _InVmap(torch.autograd.Function):
    """The way from one client's view inside `vmap` to `_ClientConv`, which sees all clients."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None, padding: tuple[int, int]) -> Tensor:
        return torch.nn.functional.conv2d(x, weight, bias, padding=padding)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        raise NotImplementedError("only inside vmap")

    @staticmethod
    def vmap(
        info: Any, in_dims: Any, x: Tensor, weight: Tensor, bias: Tensor | None, padding: tuple[int, int]
    ) -> tuple[Tensor, int]:
        x, weight = (
            t.expand(info.batch_size, *t.shape) if dim is None else t.movedim(dim, 0)
            for t, dim in ((x, in_dims[0]), (weight, in_dims[1]))
        )
        if bias is None:
            bias = weight.new_zeros(weight.shape[:2])
        elif in_dims[2] is None:
            bias = bias.expand(info.batch_size, *bias.shape)
        return cast(Tensor, _ClientConv.apply(x, weight, bias, padding)), 0  # type: ignore[no-untyped-call]


class _ClientConv(torch.autograd.Function):
    """x (clients, batch, C, H, W), weight (clients, O, C, kh, kw), bias (clients, O). Memory is channels-last."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, padding: tuple[int, int]) -> Tensor:
        from laconic.train.conv_kernels import convolve

        last = x.permute(0, 1, 3, 4, 2).contiguous()
        ctx.save_for_backward(last, weight)
        ctx.padding = padding
        return convolve(last, _as_rows(weight), bias, weight.shape[3:], padding).permute(0, 1, 4, 2, 3)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, Tensor, Tensor, None]:
        from laconic.train.conv_kernels import convolve, weight_slopes

        x, weight = ctx.saved_tensors
        last = slopes[0].permute(0, 1, 3, 4, 2).contiguous()
        kernel, padding = weight.shape[3:], ctx.padding
        back = None
        if ctx.needs_input_grad[0]:
            turned = _as_rows(weight.flip(3, 4).transpose(1, 2))
            opposite = (kernel[0] - 1 - padding[0], kernel[1] - 1 - padding[1])
            back = convolve(last, turned, None, kernel, opposite).permute(0, 1, 4, 2, 3)
        rows = weight_slopes(x, last, kernel, padding)  # (clients, kh·kw·C, O)
        shaped = rows.reshape(len(x), *kernel, x.shape[-1], -1).permute(0, 4, 3, 1, 2)
        return back, shaped, last.sum((1, 2, 3)), None


def _as_rows(weight: Tensor) -> Tensor:
    """(clients, O, C, kh, kw) → (clients, kh·kw·C, O)."""
    return weight.permute(0, 3, 4, 2, 1).reshape(len(weight), -1, weight.shape[1]).contiguous()
