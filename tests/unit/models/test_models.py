"""The papers' networks have the papers' sizes and Keras' initialisation."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from laconic.errors import ConfigError
from laconic.models.registry import build_model


def size(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("name", "shape", "classes", "count"),
    [
        ("cnn", (1, 28, 28), 10, 1_663_370),
        ("mlp", (7280,), 2, 1_496_601),
        ("mlp", (24428,), 2, 4_926_201),
        ("logistic", (1, 8, 8), 10, 650),
    ],
)
def test_sizes(name: str, shape: tuple[int, ...], classes: int, count: int) -> None:
    assert size(build_model(name, input_shape=shape, num_classes=classes, seed=0)) == count


def test_glorot_uniform_weights_and_zero_biases() -> None:
    model = build_model("cnn", input_shape=(1, 28, 28), num_classes=10, seed=0)
    second, dense = model[3], model[7]
    assert isinstance(second, nn.Conv2d)
    assert isinstance(dense, nn.Linear)
    for layer, fans in ((second, 32 * 25 + 64 * 25), (dense, 3136 + 512)):
        bound = math.sqrt(6 / fans)
        assert float(layer.weight.detach().abs().max()) <= bound
        assert float(layer.weight.detach().std()) == pytest.approx(bound / math.sqrt(3), rel=0.02)
        assert layer.bias is not None
        assert not layer.bias.any()


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
