"""Convolutions in which every client has weights of its own, as one GPU kernel instead of a grouped convolution.

Each output is a row of a product: its patch of the input, gathered while it is read, times the client's weights. The
gradients of the inputs are the same kernel with the weights turned round, those of the weights the transposed product.
Memory is channels-last: (clients, batch, height, width, channels). Weights are rows: (clients, kh·kw·in, out). Max
pooling and the ReLU behind it are one kernel, which keeps a byte for each window: where its maximum was. On a CPU it is
a loop over fast convolutions, each with the pooling behind it.

Group normalisation is one call: C channels in G groups of each of K clients are K·C channels in K·G groups (Wu and He
2018). `vmap` would normalise without weights and then multiply and add in passes of their own, forward and backward.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from laconic.train.layers.dropout import KeyedDropout
from laconic.train.layers.replacement import chains, clients_first, pool_before_relu, pools, watched

_Two = tuple[int, int]


@dataclass(frozen=True)
class Window:
    """Output (i, j) looks at inputs i·stride − start + (0, …, kernel − 1), and the same for j; `outputs` of them.

    `start` is the padding above and to the left. What is looked at outside of the image is 0, so padding below and to
    the right only shows in the number of outputs.
    """

    kernel: _Two
    stride: _Two
    start: _Two
    outputs: _Two


class Convolution(Protocol):
    """Each client's convolution, plus the bias."""

    def __call__(self, x: Tensor, rows: Tensor, bias: Tensor | None, window: Window) -> Tensor: ...


class WeightGradients(Protocol):
    """The gradients by the weights (clients, kh·kw·in, out), for those by the outputs."""

    def __call__(self, x: Tensor, gradients: Tensor, window: Window) -> Tensor: ...


class Pooling(Protocol):
    """The maxima of windows side by side, after ReLU if asked for, and where each was."""

    def __call__(self, y: Tensor, window: _Two, relu: bool) -> tuple[Tensor, Tensor]: ...


class Unpooling(Protocol):
    """Each gradient at the place of its maximum, in images of that size; 0 elsewhere."""

    def __call__(self, gradients: Tensor, places: Tensor, window: _Two, image: _Two) -> Tensor: ...


@dataclass(frozen=True)
class Convolutions:
    """A way to compute the convolutions of all clients: the kernels of a GPU, or products.

    A way may pool, too. Places (uint8) count the entries of a window row by row; the number of entries itself stands
    where ReLU stopped the maximum, which then has no gradient.
    """

    convolve: Convolution
    weight_gradients: WeightGradients
    pool: Pooling | None = None
    unpool: Unpooling | None = None


def window_of(image: _Two, kernel: _Two, stride: _Two, padding: tuple[int, int, int, int]) -> Window:
    """The window over images of that size, with so much padding (top, bottom, left, right)."""
    top, bottom, left, right = padding
    outputs = (
        (image[0] + top + bottom - kernel[0]) // stride[0] + 1,
        (image[1] + left + right - kernel[1]) // stride[1] + 1,
    )
    return Window(kernel, stride, (top, left), outputs)


def as_rows(weight: Tensor) -> Tensor:
    """(clients, out, in, kh, kw) → (clients, kh·kw·in, out); in memory the terms of a sum are side by side."""
    return weight.permute(0, 1, 3, 4, 2).reshape(*weight.shape[:2], -1).mT


def input_gradients(convolve: Convolution, gradients: Tensor, weight: Tensor, window: Window, image: _Two) -> Tensor:
    """The gradients by the inputs (clients, batch, *image, in), for those by the outputs.

    Input h takes part in output o through the weight k = h + start − stride·o. So the inputs with the same remainder
    r of h by the stride have the same weights a, a + stride, … with a = (r + start) mod stride: a convolution of the
    gradients with these weights turned round, without a stride. Nothing is multiplied by inserted zeros.
    """
    if window.stride == (1, 1):
        return _phase(convolve, gradients, weight, window, image, (0, 0))
    back = gradients.new_zeros(*gradients.shape[:2], *image, weight.shape[2])
    down, right = window.stride
    for r in range(min(down, image[0])):
        for s in range(min(right, image[1])):
            part = _phase(convolve, gradients, weight, window, image, (r, s))
            if part.numel():
                back[:, :, r::down, s::right] = part
    return back


def _phase(
    convolve: Convolution, gradients: Tensor, weight: Tensor, window: Window, image: _Two, remainder: _Two
) -> Tensor:
    """The gradients by the inputs of one remainder; empty where no output looks at them."""
    first, start, count = [], [], []
    for r, k, stride, padding, size in zip(remainder, window.kernel, window.stride, window.start, image, strict=True):
        a = (r + padding) % stride
        taps = -(-(k - a) // stride)
        first.append(a)
        start.append(taps - 1 - (r + padding - a) // stride)
        count.append(-(-(size - r) // stride))
    some = weight[..., first[0] :: window.stride[0], first[1] :: window.stride[1]]
    kernel = (some.shape[3], some.shape[4])
    if 0 in kernel:
        return gradients.new_empty(0)
    turned = as_rows(some.flip(3, 4).transpose(1, 2))
    there = replace(window, kernel=kernel, stride=(1, 1), start=(start[0], start[1]), outputs=(count[0], count[1]))
    return convolve(gradients, turned, None, there)


class ClientGroupNorm(nn.GroupNorm):
    """In place of a `nn.GroupNorm`, for use inside `vmap` only."""

    def __init__(self, layer: nn.GroupNorm) -> None:
        nn.Module.__init__(self)
        self.__dict__.update(layer.__dict__)

    def forward(self, x: Tensor) -> Tensor:
        found = _NormInVmap.apply(x, self.weight, self.bias, self.num_groups, self.eps)  # type: ignore[no-untyped-call]
        return cast(Tensor, found)


def use_client_norms(module: nn.Module) -> None:
    """Let the module's group normalisations run for all clients at once inside `vmap`, in place."""
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.GroupNorm and not watched(child):
                setattr(parent, name, ClientGroupNorm(child))


class _NormInVmap(torch.autograd.Function):
    """The way from one client's view inside `vmap` to the normalisation of all clients."""

    @staticmethod
    def forward(*inputs: Any) -> Tensor:
        raise NotImplementedError("only inside vmap")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        raise NotImplementedError("only inside vmap")

    @staticmethod
    def vmap(
        info: Any, in_dims: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, groups: int, eps: float
    ) -> tuple[Tensor, int]:
        count = info.batch_size
        every = clients_first(x, in_dims[0], count).transpose(0, 1)  # (batch, clients, channels, …)
        scale, shift = (
            None if t is None else clients_first(t, dim, count).reshape(-1)
            for t, dim in ((weight, in_dims[1]), (bias, in_dims[2]))
        )
        y = functional.group_norm(every.flatten(1, 2), count * groups, scale, shift, eps)
        return y.view(every.shape), 1


_Pool = tuple[Any, ...]
"""Kernel, stride, padding, dilation (each for both axes) and ceil_mode of a `nn.MaxPool2d`."""


@dataclass(frozen=True)
class _Shape:
    """How a convolution goes over its images: padding is that of top, bottom, left and right; then a pool, then ReLU.

    With `half` its factors are bfloat16; its output too, if `stays_half`.
    """

    stride: tuple[int, int]
    padding: tuple[int, int, int, int]
    pool: _Pool | None = None
    relu: bool = False
    way: Convolutions | None = None
    half: bool = False
    stays_half: bool = False


def use_client_convolutions(
    module: nn.Module, device: torch.device, way: Convolutions | Literal["auto", "loop"] = "auto", *, half: bool = False
) -> None:
    """Let the module's plain 1-D and 2-D convolutions run client by client inside `vmap`, in place.

    On a GPU that is one kernel, if Triton is there. cuDNN's grouped convolutions are faster for wide layers (All-CNN-C:
    141 ms a step against 168), but their gradients differ from one time to the next, and a replayed round must have the
    same bits. On a CPU it is a loop over fast convolutions, each with the pooling behind it while its output is in the
    cache. Another `way` is for measurements. Padding with zeros is done by the convolution that follows it.

    With `half` what is multiplied is rounded to bfloat16 (8 bits), and what goes from one convolution to the next is
    kept so; sums, weights and their gradients are float32. It is for kernels: a loop stays as it is.
    """
    pool_before_relu(module)
    if way == "auto" and device.type == "cuda":
        if importlib.util.find_spec("triton") is None:
            return
        from laconic.train.layers.kernels import kernels

        way = kernels()
    # Normalisation over groups of channels wants its inputs in the usual order; pooling is faster in the other.
    normalised = any(
        isinstance(layer, nn.GroupNorm | nn.modules.instancenorm._InstanceNorm)
        and not isinstance(layer, ClientGroupNorm)  # which puts them in order itself
        for layer in module.modules()
    )
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if type(child) in (nn.Conv1d, nn.Conv2d) and _plain(child):
                kind = ClientConv2d if type(child) is nn.Conv2d else ClientConv1d
                layer = kind(child, channels_last=not normalised)
                layer.shape = replace(layer.shape, way=None if isinstance(way, str) else way, half=half)
                setattr(parent, name, layer)
    _pad_in_convolutions(module)
    if isinstance(way, str) or way.pool is not None:
        _pool_in_convolutions(module)
    if half and not isinstance(way, str):
        _stay_half(module)


def _stay_half(module: nn.Module) -> None:
    """Between two convolutions values stay bfloat16, if the layers there do not mind the type."""
    for chain, single in chains(module):
        before: ClientConv2d | None = None
        for layer in chain:
            if isinstance(layer, ClientConv2d) and single(layer):
                if before is not None:
                    before.shape = replace(before.shape, stays_half=True)
                before = layer
            elif type(layer) not in (nn.ReLU, nn.Identity, nn.MaxPool2d, KeyedDropout) or watched(layer):
                before = None


def _pad_in_convolutions(module: nn.Module) -> None:
    for chain, single in chains(module):
        for i in range(1, len(chain)):
            pad, conv = chain[i - 1], chain[i]
            if type(pad) is nn.ZeroPad2d and isinstance(conv, ClientConv2d) and single(pad) and single(conv):
                left, right, top, bottom = pad.padding
                if min(pad.padding) < 0:  # it cuts off
                    continue
                conv.shape = replace(conv.shape, padding=_added(conv.shape.padding, (top, bottom, left, right)))
                chain[i - 1] = nn.Identity()


def _added(padding: tuple[int, int, int, int], more: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    top, bottom, left, right = (a + b for a, b in zip(padding, more, strict=True))
    return top, bottom, left, right


def _pool_in_convolutions(module: nn.Module) -> None:
    for chain, single in chains(module):
        for i in range(len(chain) - 1):
            conv, pool = chain[i], chain[i + 1]
            if not isinstance(conv, _ClientConv) or not single(conv) or not pools(pool):
                continue
            if isinstance(conv, nn.Conv1d) is isinstance(pool, nn.MaxPool1d):
                assert isinstance(pool, nn.MaxPool1d | nn.MaxPool2d)
                settings = ((pool.kernel_size, 1), (pool.stride, 1), (pool.padding, 0), (pool.dilation, 1))
                sequence = isinstance(pool, nn.MaxPool1d)
                sizes = [_along(size, one) if sequence else _pair(size) for size, one in settings]
                found = (*sizes, pool.ceil_mode)
                if conv.shape.way is not None and not _side_by_side(found):
                    continue
                conv.shape = replace(conv.shape, pool=found)
                chain[i + 1] = nn.Identity()
                after = chain[i + 2] if i + 2 < len(chain) else None
                if conv.shape.way is not None and type(after) is nn.ReLU and single(after):
                    conv.shape = replace(conv.shape, relu=True)
                    chain[i + 2] = nn.Identity()


def _side_by_side(pool: _Pool) -> bool:
    """Whether every entry is in one window at most, and a window has few enough entries to count them in a byte."""
    kernel, stride, padding, dilation, ceil_mode = pool
    plain = kernel == stride and padding == [0, 0] and dilation == [1, 1] and not ceil_mode
    return plain and kernel[0] * kernel[1] < 256


def _plain(conv: nn.Module) -> bool:
    assert isinstance(conv, nn.Conv1d | nn.Conv2d)
    simple = not any(d != 1 for d in conv.dilation) and conv.groups == 1 and conv.padding_mode == "zeros"
    return simple and not isinstance(conv.padding, str) and not watched(conv)


class _ClientConv(nn.Module):
    """In place of a convolution, for use inside `vmap` only. With a pool, its output is pooled."""

    shape: _Shape
    weight: Tensor
    bias: Tensor | None

    def __init__(self, conv: nn.Module, *, channels_last: bool) -> None:
        nn.Module.__init__(self)
        self.__dict__.update(conv.__dict__)
        self._channels_last = channels_last

    @property
    def pool(self) -> _Pool | None:
        return self.shape.pool

    def _convolved(self, x: Tensor, weight: Tensor) -> Tensor:
        y = cast(Tensor, _InVmap.apply(x, weight, self.bias, self.shape))  # type: ignore[no-untyped-call]
        return y if self._channels_last else y.contiguous()


class ClientConv2d(_ClientConv, nn.Conv2d):
    """In place of a `nn.Conv2d`."""

    def __init__(self, conv: nn.Module, *, channels_last: bool) -> None:
        super().__init__(conv, channels_last=channels_last)
        down, right = cast("tuple[int, int]", self.padding)
        self.shape = _Shape(cast("tuple[int, int]", self.stride), (down, down, right, right))

    def forward(self, x: Tensor) -> Tensor:
        return self._convolved(x, self.weight)


class ClientConv1d(_ClientConv, nn.Conv1d):
    """In place of a `nn.Conv1d`, which is a convolution over images of height 1."""

    def __init__(self, conv: nn.Module, *, channels_last: bool) -> None:
        super().__init__(conv, channels_last=channels_last)
        (along,), (stride,) = cast("tuple[int]", self.padding), self.stride
        self.shape = _Shape((1, stride), (0, 0, along, along))

    def forward(self, x: Tensor) -> Tensor:
        return self._convolved(x.unsqueeze(-2), self.weight.unsqueeze(-2)).squeeze(-2)


class _InVmap(torch.autograd.Function):
    """The way from one client's view inside `vmap` to `_ClientConv`, which sees all clients."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None, shape: _Shape) -> Tensor:
        raise NotImplementedError("only inside vmap")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        raise NotImplementedError("only inside vmap")

    @staticmethod
    def vmap(
        info: Any, in_dims: Any, x: Tensor, weight: Tensor, bias: Tensor | None, shape: _Shape
    ) -> tuple[Tensor, int]:
        x, weight = (
            t.expand(info.batch_size, *t.shape) if dim is None else t.movedim(dim, 0)
            for t, dim in ((x, in_dims[0]), (weight, in_dims[1]))
        )
        if bias is None:
            bias = weight.new_zeros(weight.shape[:2])
        elif in_dims[2] is None:
            bias = bias.expand(info.batch_size, *bias.shape)
        function = _OneByOne if shape.way is None else _AllAtOnce
        return cast(Tensor, function.apply(x, weight, bias, shape)), 0  # type: ignore[no-untyped-call]


class _OneByOne(torch.autograd.Function):
    """The same as `_AllAtOnce`, client by client; each client's output is pooled at once, if there is a pool."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, shape: _Shape) -> Tensor:
        top, bottom, left, right = shape.padding
        ctx.even = top == bottom and left == right  # what torch's convolution can do by itself
        ctx.padding = (top, left) if ctx.even else (0, 0)
        if not ctx.even:
            x = functional.pad(x, (left, right, top, bottom))
        last = [one.to(memory_format=torch.channels_last) for one in x]
        outputs, places = [], []
        for one in zip(last, weight, bias, strict=True):
            y = functional.conv2d(*one, stride=shape.stride, padding=ctx.padding)
            ctx.full = y.shape
            if shape.pool is not None:
                y, place = torch.ops.aten.max_pool2d_with_indices(y, *shape.pool)
                places.append(place)
            outputs.append(y.permute(0, 2, 3, 1))
        ctx.save_for_backward(weight, *last, *places)
        ctx.shape = shape
        return torch.stack(outputs).permute(0, 1, 4, 2, 3)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor, Tensor, None]:
        weight, *saved = ctx.saved_tensors
        clients, wanted = len(weight), [ctx.needs_input_grad[0], True, True]
        last, places = saved[:clients], saved[clients:]
        found: list[list[Tensor]] = []
        for k, (g, x, w) in enumerate(zip(gradients[0], last, weight, strict=True)):
            if ctx.shape.pool is not None:
                g = _unpooled(g, ctx.full, ctx.shape.pool, places[k])
            found.append(
                torch.ops.aten.convolution_backward(
                    g, x, w, [len(w)], ctx.shape.stride, ctx.padding, [1, 1], False, [0, 0], 1, wanted
                )
            )
        back, by_weight, by_bias = zip(*found, strict=True)
        through = torch.stack([b.permute(0, 2, 3, 1) for b in back]).permute(0, 1, 4, 2, 3) if wanted[0] else None
        if through is not None and not ctx.even:
            top, bottom, left, right = ctx.shape.padding
            through = functional.pad(through, (-left, -right, -top, -bottom))
        return through, torch.stack(by_weight), torch.stack(by_bias), None


def _unpooled(gradients: Tensor, shape: torch.Size, pool: _Pool, places: Tensor) -> Tensor:
    """Each gradient at the place of its maximum. Of the pooling's input only shape and order are looked at."""
    order = torch.channels_last
    like = torch.empty(shape, dtype=gradients.dtype, device=gradients.device, memory_format=order)
    gradients = gradients.contiguous(memory_format=order)
    back = torch.ops.aten.max_pool2d_with_indices_backward(gradients, like, *pool, places)
    return cast(Tensor, back)


def _pair(size: Any) -> list[int]:
    return [int(n) for n in size] if isinstance(size, tuple | list) else [int(size)] * 2


def _along(size: Any, across: int) -> list[int]:
    """A pool's size along a sequence as that over images of height 1."""
    return [across, int(size[0] if isinstance(size, tuple | list) else size)]


class _AllAtOnce(torch.autograd.Function):
    """x (clients, batch, C, H, W), weight (clients, O, C, kh, kw), bias (clients, O). Memory is channels-last."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, shape: _Shape) -> Tensor:
        assert shape.way is not None
        last = x.permute(0, 1, 3, 4, 2).contiguous()
        if shape.half:
            last = last.to(torch.bfloat16)
        height, width, kh, kw = *x.shape[3:], *weight.shape[3:]
        ctx.window = window_of((height, width), (kh, kw), shape.stride, shape.padding)
        ctx.shape, ctx.dtype = shape, x.dtype
        y = shape.way.convolve(last, as_rows(weight), bias, ctx.window)
        places = None
        if shape.pool is not None:
            assert shape.way.pool is not None
            y, places = shape.way.pool(y, _window(shape.pool), shape.relu)
        ctx.save_for_backward(last, weight, places)
        y = y.permute(0, 1, 4, 2, 3)
        return y if shape.stays_half else y.to(weight.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor, Tensor, None]:
        x, weight, places = ctx.saved_tensors
        shape, way = ctx.shape, ctx.shape.way
        last = gradients[0].permute(0, 1, 3, 4, 2).contiguous()
        if places is None:
            by_bias = last.sum((1, 2, 3), dtype=weight.dtype)
            last = last.to(x.dtype)
        else:
            window = _window(shape.pool)
            passed = last * (places < window[0] * window[1]) if shape.relu else last
            by_bias = passed.sum((1, 2, 3), dtype=weight.dtype)
            last = way.unpool(last.to(x.dtype), places, window, ctx.window.outputs)
        back = None
        if ctx.needs_input_grad[0]:
            back = input_gradients(way.convolve, last, weight, ctx.window, x.shape[2:4]).permute(0, 1, 4, 2, 3)
            back = back.to(ctx.dtype)
        rows = way.weight_gradients(x, last, ctx.window)  # (clients, kh·kw·C, O)
        shaped = rows.reshape(len(x), *weight.shape[3:], x.shape[-1], -1).permute(0, 4, 3, 1, 2)
        return back, shaped, by_bias, None


def _window(pool: _Pool) -> _Two:
    return pool[0][0], pool[0][1]
