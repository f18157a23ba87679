"""Convolutions client by client, with the pooling behind them, are what the module itself computes."""

from __future__ import annotations

import copy
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call, vmap
from torch.nn import functional

from benchmarks.conv_products import products
from laconic.train.layers.conv import (
    ClientConv1d,
    ClientConv2d,
    as_rows,
    input_gradients,
    use_client_convolutions,
    window_of,
)
from laconic.train.layers.dropout import KeyedDropout
from laconic.train.layers.replacement import pool_before_relu

_CPU = torch.device("cpu")
_POOLS = {
    "plain": nn.MaxPool2d(2),
    "overlapping": nn.MaxPool2d(3, stride=2, padding=1),
    "oblong": nn.MaxPool2d((2, 3), stride=(1, 2)),
    "dilated": nn.MaxPool2d(2, dilation=2),
    "ceiling": nn.MaxPool2d(2, ceil_mode=True),
}


def _module(pool: nn.Module, bias: bool = True) -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Sequential(nn.Conv2d(2, 4, 3, padding=1, bias=bias), nn.ReLU(), pool),
        nn.Conv2d(4, 3, 3),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.LazyLinear(5),
    )


def _clients(module: nn.Module, clients: int = 3) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    inputs = torch.randn(clients, 4, 2, 13, 13)
    module(inputs[0])  # the lazy layer learns its size
    return {n: torch.randn(clients, *p.shape) / 3 for n, p in module.named_parameters()}, inputs


def _gradients(module: nn.Module, weights: dict[str, torch.Tensor], inputs: torch.Tensor) -> list[torch.Tensor]:
    leaves = {n: w.clone().requires_grad_() for n, w in weights.items()}
    outputs = vmap(lambda w, x: functional_call(module, w, (x,)))(leaves, inputs)
    return [outputs, *torch.autograd.grad(outputs.square().sum(), list(leaves.values()))]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("pool", _POOLS)
def test_convolution_and_pooling_in_one_are_the_same(pool: str, bias: bool) -> None:
    module = _module(_POOLS[pool], bias)
    weights, inputs = _clients(module)
    changed = copy.deepcopy(module)
    use_client_convolutions(changed, _CPU)
    assert [layer.pool is not None for layer in changed.modules() if isinstance(layer, ClientConv2d)] == [True, True]
    for mine, theirs in zip(_gradients(changed, weights, inputs), _gradients(module, weights, inputs), strict=True):
        assert torch.allclose(mine, theirs, atol=1e-4, rtol=1e-4)


def test_pooling_before_relu_changes_no_bit_even_where_values_tie() -> None:
    module = nn.Sequential(nn.ReLU(), nn.MaxPool2d(2))
    swapped = copy.deepcopy(module)
    pool_before_relu(swapped)
    assert [type(layer) for layer in swapped] == [nn.MaxPool2d, nn.ReLU]
    values = torch.randint(-2, 3, (50, 3, 8, 8), generator=torch.Generator().manual_seed(0)).float()
    found = []
    for layers in (module, swapped):
        x = values.clone().requires_grad_()
        y = layers(x)
        found.append((y, *torch.autograd.grad((y * torch.arange(y.numel()).view_as(y)).sum(), x)))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_strides_and_padding_with_zeros_are_done_by_the_convolution() -> None:
    module = nn.Sequential(
        nn.ZeroPad2d((0, 1, 0, 2)),
        nn.Conv2d(2, 4, 3, stride=2),
        nn.ReLU(),
        nn.Conv2d(4, 3, (2, 3), stride=(1, 2), padding=(1, 0)),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.LazyLinear(5),
    )
    weights, inputs = _clients(module)
    changed = copy.deepcopy(module)
    use_client_convolutions(changed, _CPU)
    assert [type(changed[i]) for i in (0, 1, 3)] == [nn.Identity, ClientConv2d, ClientConv2d]
    inputs.requires_grad_()
    for mine, theirs in zip(_gradients(changed, weights, inputs), _gradients(module, weights, inputs), strict=True):
        assert torch.allclose(mine, theirs, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("bias", [True, False])
def test_products_take_the_place_of_convolutions(bias: bool) -> None:
    """The way of a GPU, all clients at once, with another computation behind it; pooling stays a layer of its own."""
    torch.manual_seed(1)
    module = nn.Sequential(
        nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(2, 4, 3, stride=2, bias=bias), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.LazyLinear(5),
    )  # fmt: skip
    weights, inputs = _clients(module)
    changed = copy.deepcopy(module)
    use_client_convolutions(changed, _CPU, products())
    assert isinstance(changed[1], ClientConv2d) and changed[1].pool is None
    for mine, theirs in zip(_gradients(changed, weights, inputs), _gradients(module, weights, inputs), strict=True):
        assert torch.allclose(mine, theirs, atol=1e-4, rtol=1e-4)
    rounded = copy.deepcopy(module)
    use_client_convolutions(rounded, _CPU, products(), half=True)
    for mine, theirs in zip(_gradients(rounded, weights, inputs), _gradients(module, weights, inputs), strict=True):
        assert 1e-5 < float((mine - theirs).detach().norm() / theirs.detach().norm()) < 2e-2


def _pooled(y: torch.Tensor, window: tuple[int, int], relu: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """What the kernels of a GPU do, in torch."""
    (kh, kw), (rows, columns) = window, (y.shape[2] // window[0], y.shape[3] // window[1])
    cut = y[:, :, : rows * kh, : columns * kw].unflatten(3, (columns, kw)).unflatten(2, (rows, kh))
    found, places = cut.transpose(3, 4).flatten(4, 5).max(4)
    if relu:
        places = places.where(found > 0, torch.tensor(kh * kw))
    return (found.relu() if relu else found), places.to(torch.uint8)


def _unpooled(g: torch.Tensor, places: torch.Tensor, window: tuple[int, int], image: tuple[int, int]) -> torch.Tensor:
    kh, kw = window
    every = torch.stack([g * (places == place) for place in range(kh * kw)], 4)
    spread = every.unflatten(4, (kh, kw)).transpose(3, 4).flatten(4, 5).flatten(2, 3)
    missing = (0, 0, 0, image[1] - spread.shape[3], 0, image[0] - spread.shape[2])
    return functional.pad(spread, missing)


@pytest.mark.parametrize("relu", [True, False])
def test_pooling_and_relu_behind_a_convolution_of_all_clients_are_done_by_it(relu: bool) -> None:
    """The way of a GPU. Windows that overlap stay a layer of their own."""
    torch.manual_seed(1)
    module = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), *([nn.ReLU()] if relu else []), nn.MaxPool2d((2, 3)),
        nn.Conv2d(4, 3, 2), nn.MaxPool2d(2, stride=1), nn.ReLU(), nn.Flatten(), nn.LazyLinear(5),
    )  # fmt: skip
    weights, inputs = _clients(module)
    changed = copy.deepcopy(module)
    way = replace(products(), pool=_pooled, unpool=_unpooled)
    use_client_convolutions(changed, _CPU, way)
    first, second = (layer for layer in changed if isinstance(layer, ClientConv2d))
    assert first.pool is not None and first.shape.relu == relu and second.pool is None and not second.shape.relu
    assert [type(layer) for layer in changed].count(nn.ReLU) == 1
    for mine, theirs in zip(_gradients(changed, weights, inputs), _gradients(module, weights, inputs), strict=True):
        assert torch.allclose(mine, theirs, atol=1e-4, rtol=1e-4)


def test_values_stay_half_between_convolutions_only() -> None:
    """Behind the last one, and before a layer that minds the type, they are float32 again; gradients always are."""
    torch.manual_seed(1)
    module = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), KeyedDropout(0.3, whole_channels=False), nn.Conv2d(4, 6, 3),
        nn.GroupNorm(2, 6), nn.Conv2d(6, 3, 1), nn.Flatten(), nn.LazyLinear(5),
    )  # fmt: skip
    weights, inputs = _clients(module)
    rounded = copy.deepcopy(module)
    use_client_convolutions(rounded, _CPU, products(), half=True)
    assert [layer.shape.stays_half for layer in rounded if isinstance(layer, ClientConv2d)] == [True, False, False]
    for mine, theirs in zip(_gradients(rounded, weights, inputs), _gradients(module, weights, inputs), strict=True):
        assert mine.dtype is torch.float32
        assert 1e-5 < float((mine - theirs).detach().norm() / theirs.detach().norm()) < 0.15


@pytest.mark.parametrize("pool", [nn.MaxPool1d(3), nn.MaxPool1d((2,), stride=1, padding=1), nn.AvgPool1d(2)])
def test_convolutions_over_sequences_are_the_same(pool: nn.Module) -> None:
    torch.manual_seed(1)
    module = nn.Sequential(
        nn.Flatten(2),
        nn.Conv1d(2, 4, 5, padding=1),
        nn.ReLU(),
        pool,
        nn.Conv1d(4, 3, 2, stride=3, bias=False),
        nn.Flatten(),
        nn.LazyLinear(5),
    )
    weights, inputs = _clients(module)
    changed = copy.deepcopy(module)
    use_client_convolutions(changed, _CPU)
    assert [type(changed[i]) for i in (1, 4)] == [ClientConv1d, ClientConv1d]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no step is done client by client
        found = _gradients(changed, weights, inputs)
    for mine, theirs in zip(found, _gradients(module, weights, inputs), strict=True):
        assert torch.allclose(mine, theirs, atol=1e-4, rtol=1e-4)


_WINDOWS = {
    "same": ((8, 8), (3, 3), (1, 1), (1, 1, 1, 1)),
    "stride of an even size, as Keras pads": ((8, 8), (3, 3), (2, 2), (0, 1, 0, 1)),
    "stride of an odd size": ((7, 9), (3, 3), (2, 2), (1, 1, 1, 1)),
    "all different": ((9, 7), (2, 4), (3, 2), (0, 2, 3, 1)),
    "inputs that no output looks at": ((6, 6), (1, 1), (2, 2), (0, 0, 0, 0)),
    "a sequence": ((1, 20), (1, 5), (1, 1), (0, 0, 0, 0)),
    "much padding": ((5, 5), (5, 5), (1, 1), (4, 4, 4, 4)),
    "inputs left over": ((11, 10), (3, 2), (2, 3), (2, 0, 0, 2)),
}


@pytest.mark.parametrize("name", _WINDOWS)
def test_products_over_patches_are_the_convolution_and_its_gradients(name: str) -> None:
    """The way back through strides, too, which the GPU's kernel shares."""
    image, kernel, stride, padding = _WINDOWS[name]
    torch.manual_seed(0)
    x = torch.randn(2, 3, 4, *image, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(2, 5, 4, *kernel, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(2, 5, dtype=torch.float64)
    top, bottom, left, right = padding
    around = functional.pad(x, (left, right, top, bottom))
    y = torch.stack([functional.conv2d(around[k], weight[k], bias[k], stride=stride) for k in range(2)])
    g = torch.randn_like(y)
    by_x, by_weight = torch.autograd.grad((y * g).sum(), [x, weight])
    window = window_of(image, kernel, stride, padding)
    way = products()
    last, back = x.detach().permute(0, 1, 3, 4, 2).contiguous(), g.permute(0, 1, 3, 4, 2).contiguous()
    rows = way.weight_gradients(last, back, window).reshape(2, *kernel, 4, 5)
    found = (
        way.convolve(last, as_rows(weight.detach()), bias, window),
        input_gradients(way.convolve, back, weight.detach(), window, image),
    )
    for mine, theirs in zip(found, (y, by_x), strict=True):
        assert torch.allclose(mine.permute(0, 1, 4, 2, 3), theirs, atol=1e-12)
    assert torch.allclose(rows.permute(0, 4, 3, 1, 2), by_weight, atol=1e-12)


def test_a_module_that_takes_its_layers_apart_keeps_their_order() -> None:
    class Skips(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            middle = self.body[:2](x)
            return self.body[2](middle).flatten(1).sum(1) + middle.flatten(1).sum(1)

    module = Skips()
    use_client_convolutions(module, _CPU)
    assert [type(layer) for layer in module.body] == [ClientConv2d, nn.ReLU, nn.MaxPool2d]


@pytest.mark.parametrize("pool_first", [False, True])
def test_relu_in_place_is_trained_for_many_clients_at_once(pool_first: bool) -> None:
    middle: list[nn.Module] = [nn.ReLU(inplace=True), nn.MaxPool2d(2)]
    torch.manual_seed(1)
    module = nn.Sequential(
        nn.Conv2d(2, 3, 3), *(middle[::-1] if pool_first else middle), nn.Flatten(), nn.LazyLinear(2)
    )
    weights, inputs = _clients(module)
    changed = copy.deepcopy(module)
    use_client_convolutions(changed, _CPU)
    for layer in module:
        if isinstance(layer, nn.ReLU):
            layer.inplace = False  # torch's own vmap does not take it either
    for mine, theirs in zip(_gradients(changed, weights, inputs), _gradients(module, weights, inputs), strict=True):
        assert torch.allclose(mine, theirs, atol=1e-4, rtol=1e-4)


def test_a_pool_whose_size_is_a_numpy_number() -> None:
    module = _module(nn.MaxPool2d(np.int64(2)))  # type: ignore[arg-type]
    weights, inputs = _clients(module)
    use_client_convolutions(module, _CPU)
    assert _gradients(module, weights, inputs)[0].shape == (3, 4, 5)


def test_layers_that_are_used_elsewhere_too_stay_as_they_are() -> None:
    class First(nn.Module):
        def __init__(self, block: nn.Sequential) -> None:
            super().__init__()
            self.block = block

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.block[0](x)

    block = nn.Sequential(nn.Conv2d(2, 2, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2))
    use_client_convolutions(nn.Sequential(block, First(block)), _CPU)
    assert [type(layer) for layer in block] == [ClientConv2d, nn.ReLU, nn.MaxPool2d]
    assert block[0].pool is None and block[1].inplace


@pytest.mark.parametrize("place", [0, 1])
def test_a_layer_with_another_forward_is_left_alone(place: int) -> None:
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2))
    module[place].forward = lambda x: x.abs()  # type: ignore[method-assign]
    use_client_convolutions(module, _CPU)
    assert type(module[place]) in (nn.Conv2d, nn.ReLU)
    if place == 1:
        assert [type(layer) for layer in module] == [ClientConv2d, nn.ReLU, nn.MaxPool2d]


@pytest.mark.parametrize("watched", [1, 2])
def test_a_layer_that_somebody_watches_stays_where_it_is(watched: int) -> None:
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2))
    module[watched].register_forward_hook(lambda layer, inputs, output: None)
    use_client_convolutions(module, _CPU)
    assert [type(layer) for layer in module] == [ClientConv2d, nn.ReLU, nn.MaxPool2d]


def test_indices_of_a_pooling_are_still_returned() -> None:
    module = nn.Sequential(nn.ReLU(), nn.MaxPool2d(2, return_indices=True))
    pool_before_relu(module)
    assert type(module[0]) is nn.ReLU
