"""Where a convolution looks, and its way back as convolutions too.

Memory is channels-last: (clients, batch, height, width, channels). Weights are rows: (clients, kh·kw·in, out).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

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


@dataclass(frozen=True)
class Convolutions:
    """A way to compute the convolutions of all clients: the kernels of a GPU, or products."""

    convolve: Convolution
    weight_gradients: WeightGradients


def window_of(image: _Two, kernel: _Two, stride: _Two, padding: tuple[int, int, int, int]) -> Window:
    """The window over images of that size, with so much padding (top, bottom, left, right)."""
    top, bottom, left, right = padding
    outputs = (
        (image[0] + top + bottom - kernel[0]) // stride[0] + 1,
        (image[1] + left + right - kernel[1]) // stride[1] + 1,
    )
    return Window(kernel, stride, (top, left), outputs)


def as_rows(weight: Tensor) -> Tensor:
    """(clients, out, in, kh, kw) → (clients, kh·kw·in, out)."""
    return weight.permute(0, 3, 4, 2, 1).reshape(len(weight), -1, weight.shape[1]).contiguous()


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


def padded_for(x: Tensor, window: Window) -> Tensor:
    """The images with zeros around them, or without what no output looks at: what the window slides over exactly."""
    (kh, kw), (sh, sw), (top, left), (oh, ow) = window.kernel, window.stride, window.start, window.outputs
    bottom, right = (oh - 1) * sh + kh - top - x.shape[2], (ow - 1) * sw + kw - left - x.shape[3]
    return torch.nn.functional.pad(x, (0, 0, left, right, top, bottom))
