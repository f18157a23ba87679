"""Losses by their definitions, and the derivatives that exact sums of linear models use."""

from __future__ import annotations

import pytest
import torch

from laconic.models.networks import logistic
from laconic.train.flat import FlatModel
from laconic.train.losses import HUBER, LOSSES, huber, mean_squared_error
from laconic.train.units.linear import find_layer


def test_huber_is_squared_near_zero_and_linear_beyond() -> None:
    errors = torch.tensor([0.0, 0.1, -HUBER, 1.0, -3.0])
    expected = [0.0, 0.01, HUBER**2, 2 * HUBER - HUBER**2, 6 * HUBER - HUBER**2]
    assert huber(errors, torch.zeros(5)).tolist() == pytest.approx(expected)
    near = torch.linspace(-HUBER, HUBER, 9)
    assert torch.allclose(huber(near, torch.zeros(9)), mean_squared_error(near, torch.zeros(9)))


@pytest.mark.parametrize("loss", LOSSES)
def test_the_derivative_of_a_linear_layer_is_that_of_its_loss(loss: str) -> None:
    classes = {"cross-entropy": 3, "binary-cross-entropy": 2}.get(loss, 1)
    targets = torch.tensor([0.0, 0.9, -5.0]) if classes == 1 else torch.tensor([0, 1, classes - 1])
    model = FlatModel(logistic(input_shape=(2,), num_classes=classes), example=(torch.zeros(3, 2), targets), loss=loss)
    layer = find_layer(model)
    assert layer is not None
    outputs = torch.tensor([[0.1, -2.0, 0.3], [0.8, 0.0, 4.0], [1.0, 1.0, -1.0]])[:, : layer.outputs].double()
    outputs.requires_grad_()
    LOSSES[loss](outputs if classes > 2 else outputs[:, 0], targets).sum().backward()
    found = layer.residuals(outputs.detach().clone(), targets[:, None])
    assert outputs.grad is not None and torch.allclose(found, outputs.grad, atol=1e-8)
