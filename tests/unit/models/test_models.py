"""The papers' networks have the papers' sizes and Keras' initialisation."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn

from laconic.errors import ConfigError, DataError
from laconic.models.networks import same_convolution
from laconic.models.registry import build_model, default_model
from laconic.train.flat import FlatModel


def size(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("name", "shape", "classes", "count"),
    [
        ("cnn", (1, 28, 28), 10, 1_663_370),
        ("mlp", (7280,), 2, 1_496_601),
        ("mlp", (24428,), 2, 4_926_201),
        ("logistic", (1, 8, 8), 10, 650),
        ("all-cnn-c", (3, 32, 32), 10, 1_369_738),
        ("cnn-lstm", (400,), 2, 402_701),
        ("lfw-cnn", (3, 62, 47), 2, 880_450),
        ("lfw-cnn", (3, 64, 64), 2, 1_273_666),
        ("text-cnn", (400,), 2, 313_001),
        ("text-cnn", (30,), 2, 313_001),
        ("sensor-cnn", (128, 6), 12, 228_640),
    ],
)
def test_sizes(name: str, shape: tuple[int, ...], classes: int, count: int) -> None:
    assert size(build_model(name, input_shape=shape, num_classes=classes, seed=0)) == count


@pytest.mark.parametrize(
    ("name", "shape", "classes", "fans"),
    [
        ("cnn", (1, 28, 28), 10, [25 * 33, 25 * 96, 3136 + 512, 512 + 10]),
        (
            "all-cnn-c",
            (3, 32, 32),
            10,
            [9 * (3 + 96), 9 * 192, 9 * 192, 9 * (96 + 192), *[9 * 384] * 3, 192 + 192, 192 + 10],
        ),
        ("lfw-cnn", (3, 62, 47), 2, [9 * (3 + 32), 9 * 96, 9 * 192, 3072 + 256, 256 + 2]),
        ("cnn-lstm", (400,), 2, [5 * (50 + 250), 70 + 1]),
    ],
)
def test_glorot_uniform_weights_and_zero_biases(
    name: str, shape: tuple[int, ...], classes: int, fans: list[int]
) -> None:
    """Keras' fans are filters times the size of the kernel. A uniform law has the fourth moment 9/5 of its variance².

    So the variance of n draws has a relative standard deviation of √(0.8/n): six of them are allowed, and the seed is
    fixed. The largest of n draws is below 1 − 12/n of the bound with probability e^−12.
    """
    model = build_model(name, input_shape=shape, num_classes=classes, seed=0)
    layers = [layer for layer in model.modules() if isinstance(layer, nn.Linear | nn.Conv2d)]
    assert len(layers) == len(fans)
    for layer, fan in zip(layers, fans, strict=True):
        bound, weights = math.sqrt(6 / fan), layer.weight.detach()
        most = float(weights.abs().max())
        assert bound * (1 - 12 / weights.numel()) < most <= bound * (1 + 1e-6)
        spread = float(weights.double().square().mean()) / (bound**2 / 3)
        assert abs(spread - 1) < 6 * math.sqrt(0.8 / weights.numel())
        assert layer.bias is not None
        assert not layer.bias.any()


def test_words_start_as_in_keras() -> None:
    """Uniform in ±0.05. The standard deviation of 250,000 draws is off by 2 % with a probability below 1e-100."""
    words = build_model("cnn-lstm", input_shape=(400,), num_classes=2, seed=0)[0].weight.detach()
    assert words.shape == (5000, 50)
    assert 0.0499 < float(words.abs().max()) <= 0.05
    assert float(words.std()) == pytest.approx(0.05 / math.sqrt(3), rel=0.02)


def test_layers_of_the_cnn_lstm_have_the_published_sizes() -> None:
    model = build_model("cnn-lstm", input_shape=(400,), num_classes=2, seed=0)
    assert [size(layer) for layer in model if size(layer)] == [250_000, 62_750, 89_880, 71]
    words = torch.randint(0, 5000, (3, 400), generator=torch.Generator().manual_seed(0))
    steps = model[:-3](words)
    assert steps.shape == (3, 132, 250)
    assert model(words).shape == (3,)


def by_keras(x: np.ndarray, layer: nn.Conv2d, stride: int) -> np.ndarray:
    """One picture (channels, height, width) by the definition of padding 'same', sum by sum."""
    weight, bias = layer.weight.detach().double().numpy(), layer.bias.detach().double().numpy()  # type: ignore[union-attr]
    count = [math.ceil(n / stride) for n in x.shape[1:]]
    before = [max((c - 1) * stride + 3 - n, 0) // 2 for c, n in zip(count, x.shape[1:], strict=True)]
    y = np.tile(bias[:, None, None], (1, *count))
    for o, i, j, a, b in itertools.product(range(len(weight)), range(count[0]), range(count[1]), range(3), range(3)):
        h, w = i * stride + a - before[0], j * stride + b - before[1]
        if 0 <= h < x.shape[1] and 0 <= w < x.shape[2]:
            y[o, i, j] += weight[o, :, a, b] @ x[:, h, w]
    return y


@pytest.mark.parametrize(("height", "width", "stride"), [(6, 6, 2), (7, 5, 2), (6, 7, 2), (5, 6, 1)])
def test_same_padding_is_that_of_keras(height: int, width: int, stride: int) -> None:
    torch.manual_seed(0)
    layers = nn.Sequential(*same_convolution(2, 3, (height, width), stride)).double()
    x = torch.randn(1, 2, height, width, dtype=torch.float64)
    assert np.allclose(layers(x)[0].detach(), by_keras(x[0].numpy(), layers[-1], stride), atol=1e-12)  # type: ignore[arg-type]
    if stride == 2 and height % 2 == 0:
        other = nn.functional.conv2d(x, layers[-1].weight, layers[-1].bias, stride=2, padding=1)  # type: ignore[arg-type]
        assert not np.allclose(layers(x).detach(), other.detach(), atol=1e-2)


def test_all_cnn_c_is_eight_by_eight_before_the_mean() -> None:
    model = build_model("all-cnn-c", input_shape=(3, 32, 32), num_classes=10, seed=0)
    x = torch.randn(2, 3, 32, 32)
    assert model[:-1](x).shape == (2, 10, 8, 8)
    layers = [layer for layer in model if isinstance(layer, nn.Conv2d | nn.Dropout)]
    order = [layer.p if isinstance(layer, nn.Dropout) else layer.out_channels for layer in layers]
    assert order == [96, 96, 96, 0.5, 192, 192, 192, 0.5, 192, 192, 10]  # after blocks 1 and 2, and nowhere else
    strides = [(layer.kernel_size[0], layer.stride[0]) for layer in layers if isinstance(layer, nn.Conv2d)]
    assert strides == [*[(3, 1), (3, 1), (3, 2)] * 2, (3, 1), (1, 1), (1, 1)]
    with_relu = build_model(
        "all-cnn-c", input_shape=(3, 32, 32), num_classes=10, seed=0, options={"strided_relu": True}
    )
    assert isinstance(model, nn.Sequential) and isinstance(with_relu, nn.Sequential)
    for net, relus in ((model, 6), (with_relu, 8)):
        kinds = [type(layer) for layer in net]
        assert (kinds.count(nn.ReLU), kinds.count(nn.Conv2d)) == (relus, 9)
    assert build_model("all-cnn-c", input_shape=(1, 7, 9), num_classes=3, seed=0)(torch.randn(2, 1, 7, 9)).shape == (
        2,
        3,
    )


@pytest.mark.parametrize(
    ("name", "shape", "match"),
    [
        ("all-cnn-c", (3, 3, 32), "4 × 4 or more"),
        ("lfw-cnn", (3, 21, 47), "22 × 22 or more"),
        ("cnn-lstm", (6,), "7 words or more"),
        ("cnn-lstm", (3, 32, 32), "whole numbers"),
        ("text-cnn", (4,), "5 words or more"),
        ("sensor-cnn", (128,), "windows"),
    ],
)
def test_records_that_do_not_fit_are_refused(name: str, shape: tuple[int, ...], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        build_model(name, input_shape=shape, num_classes=2, seed=0)


@pytest.mark.parametrize(("name", "shape"), [("all-cnn-c", (1, 4, 4)), ("lfw-cnn", (1, 22, 22)), ("cnn-lstm", (7,))])
def test_the_smallest_records_fit(name: str, shape: tuple[int, ...]) -> None:
    model = build_model(name, input_shape=shape, num_classes=2, seed=0)
    assert len(model(torch.ones(2, *shape, dtype=torch.int64 if len(shape) == 1 else torch.float32))) == 2


def test_words_must_be_whole_numbers_that_the_model_knows() -> None:
    model = build_model("cnn-lstm", input_shape=(20,), num_classes=2, seed=0, options={"vocabulary": 10})
    targets = torch.zeros(2, dtype=torch.int64)
    with pytest.raises(DataError, match="needs whole numbers"):
        FlatModel(model, example=(torch.zeros(2, 20), targets))
    for word in (10, -1):
        with pytest.raises(DataError, match=f"the word {word}, but the model knows 0 to 9"):
            FlatModel(model, example=(torch.full((2, 20), word), targets))
    flat = FlatModel(model, example=(torch.full((2, 20), 9), targets))
    with pytest.raises(DataError, match="the word 11"):
        flat.evaluate(flat.initial, torch.full((2, 20), 11), targets)


@pytest.mark.parametrize(
    ("shape", "whole", "name"),
    [
        ((1, 8, 8), False, "logistic"),
        ((1, 28, 28), False, "cnn"),
        ((3, 64, 64), False, "cnn"),
        ((3, 32, 32), False, "all-cnn-c"),
        ((3, 62, 47), False, "lfw-cnn"),
        ((400,), True, "cnn-lstm"),
        ((400,), False, "logistic"),
        ((20,), True, "logistic"),
        ((128, 6), False, "sensor-cnn"),
        ((8, 8), False, "logistic"),
        ((), False, "logistic"),
    ],
)
def test_the_default_follows_the_shape(shape: tuple[int, ...], whole: bool, name: str) -> None:
    assert default_model(shape, integer_inputs=whole) == name


def test_the_seed_decides() -> None:
    first, again, other = (
        build_model("logistic", input_shape=(4,), num_classes=3, seed=s)[1].weight for s in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_options_and_mistakes() -> None:
    assert size(build_model("mlp", input_shape=(4,), num_classes=3, seed=0, options={"hidden": 5})) == 25 + 30 + 18
    with pytest.raises(ConfigError, match="did you mean 'dropout'"):
        build_model("mlp", input_shape=(4,), num_classes=3, seed=0, options={"droput": 0.5})
    with pytest.raises(ConfigError, match="did you mean 'logistic'"):
        build_model("logistik", input_shape=(4,), num_classes=3, seed=0)
    with pytest.raises(ConfigError, match="cannot import 'no_such_module'"):
        build_model("no_such_module:make", input_shape=(4,), num_classes=3, seed=0)
    with pytest.raises(ConfigError, match="needs images"):
        build_model("cnn", input_shape=(4,), num_classes=3, seed=0)


def test_own_factory_by_name() -> None:
    model = build_model(
        "torch.nn:Linear",
        input_shape=(4,),
        num_classes=3,
        seed=0,
        options={
            "in_features": 4,
            "out_features": 2,
        },
    )
    assert size(model) == 10
