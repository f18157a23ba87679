"""The LSTM is Keras': against torch's own with the same weights, against the plain formula, and for many clients."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from laconic.errors import ConfigError
from laconic.models.lstm import LSTM

INPUTS, UNITS, BATCH, STEPS = 6, 5, 4, 9


def made(activation: str) -> LSTM:
    """Float64, with weights so large that gates close and hard sigmoids saturate."""
    torch.manual_seed(0)
    lstm = LSTM(INPUTS, UNITS, recurrent_activation=activation).double()
    with torch.no_grad():
        for weights in lstm.parameters():
            weights.copy_(torch.randn_like(weights))
    return lstm


def sequences(*lead: int) -> Tensor:
    return torch.randn(*lead, BATCH, STEPS, INPUTS, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def by_formula(lstm: LSTM, x: Tensor) -> Tensor:
    """Step by step, gates in Keras' order i, f, c, o, σ(z) = clip(0.2·z + 0.5, 0, 1)."""

    def sigma(z: Tensor) -> Tensor:
        return torch.clamp(0.2 * z + 0.5, 0.0, 1.0)

    h = c = torch.zeros(len(x), UNITS, dtype=x.dtype)
    for step in range(x.shape[1]):
        z = x[:, step] @ lstm.kernel + h @ lstm.recurrent_kernel + lstm.bias
        i, f, g, o = (z[:, k * UNITS : (k + 1) * UNITS] for k in range(4))
        c = sigma(f) * c + sigma(i) * torch.tanh(g)
        h = sigma(o) * torch.tanh(c)
    return h


def gradients(outputs: Tensor, of: list[Tensor]) -> list[Tensor]:
    weights = torch.arange(1.0, outputs.numel() + 1, dtype=outputs.dtype).view_as(outputs)
    return list(torch.autograd.grad((outputs * weights).sum(), of))


def test_outputs_and_gradients_are_those_of_torch() -> None:
    mine, theirs = made("sigmoid"), nn.LSTM(INPUTS, UNITS, batch_first=True).double()
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(mine.kernel.T)
        theirs.weight_hh_l0.copy_(mine.recurrent_kernel.T)
        theirs.bias_ih_l0.copy_(mine.bias)
        theirs.bias_hh_l0.zero_()
    x = sequences().requires_grad_()
    one, other = mine(x), theirs(x)[0][:, -1]
    assert torch.allclose(one, other, atol=1e-12)
    found = gradients(one, [x, *mine.parameters()])
    expected = gradients(other, [x, theirs.weight_ih_l0, theirs.weight_hh_l0, theirs.bias_ih_l0])
    for a, b in zip(found, (expected[0], expected[1].T, expected[2].T, expected[3]), strict=True):
        assert torch.allclose(a, b, atol=1e-11)


def test_the_hard_sigmoid_is_that_of_the_formula() -> None:
    lstm, x = made("hard-sigmoid"), sequences().requires_grad_()
    mine, plain = lstm(x), by_formula(lstm, x)
    assert torch.allclose(mine, plain, atol=1e-12)
    parameters = [x, *lstm.parameters()]
    for a, b in zip(gradients(mine, parameters), gradients(plain, parameters), strict=True):
        assert torch.allclose(a, b, atol=1e-11)
    assert not torch.allclose(mine, made("sigmoid")(x), atol=1e-2)


@pytest.mark.parametrize("steps", [1, 2])
def test_short_sequences(steps: int) -> None:
    lstm, x = made("hard-sigmoid"), sequences()[:, :steps].requires_grad_()
    parameters = [x, *lstm.parameters()]
    for a, b in zip(gradients(lstm(x), parameters), gradients(by_formula(lstm, x), parameters), strict=True):
        assert torch.allclose(a, b, atol=1e-12)


@pytest.mark.parametrize("activation", ["hard-sigmoid", "sigmoid"])
def test_many_clients_at_once_are_each_of_them(activation: str) -> None:
    """In both orders that engines use: gradients of what is vectorised, and vectorised gradients; no slow way."""
    lstm, x = made(activation), sequences(3)
    weights = {n: torch.stack([p.detach() * s for s in (1.0, 0.5, -0.7)]) for n, p in lstm.named_parameters()}

    def loss(params: dict[str, Tensor], one: Tensor) -> Tensor:
        return functional_call(lstm, params, (one,)).square().sum()

    leaves = {n: w.clone().requires_grad_() for n, w in weights.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outside = torch.autograd.grad(vmap(loss)(leaves, x).sum(), list(leaves.values()))
        inside = vmap(grad(loss))(weights, x)
        shared = vmap(grad(loss), in_dims=(None, 0))({n: w[0] for n, w in weights.items()}, x)
    for client in range(3):
        alone = grad(loss)({n: w[client] for n, w in weights.items()}, x[client])
        for name, other in zip(alone, outside, strict=True):
            assert torch.allclose(alone[name], other[client], atol=1e-12)
            assert torch.allclose(alone[name], inside[name][client], atol=1e-12)
        first = grad(loss)({n: w[0] for n, w in weights.items()}, x[client])
        assert all(torch.allclose(first[name], shared[name][client], atol=1e-12) for name in first)


def test_initial_values_are_those_of_keras() -> None:
    """For a uniform law the standard deviation of 70,000 draws is off by 2 % with probability 3e-32."""
    torch.manual_seed(3)
    lstm = LSTM(250, 70)
    bound = math.sqrt(6 / (250 + 280))  # the fans of all four gates together
    kernel = lstm.kernel.detach()
    assert kernel.shape == (250, 280)
    assert float(kernel.abs().max()) <= bound
    assert float(kernel.abs().max()) > 0.999 * bound  # missed with probability 0.999^70000, about 4e-31
    assert float(kernel.std()) == pytest.approx(bound / math.sqrt(3), rel=0.02)
    recurrent = lstm.recurrent_kernel.detach()
    assert torch.allclose(recurrent @ recurrent.T, torch.eye(70), atol=1e-5)
    assert lstm.bias.tolist() == [0.0] * 70 + [1.0] * 70 + [0.0] * 140


def test_an_unknown_activation_is_refused() -> None:
    with pytest.raises(ConfigError, match="recurrent_activation"):
        LSTM(2, 3, recurrent_activation="hard")
