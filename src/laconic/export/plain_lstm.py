"""The LSTM as a plain loop, which TorchScript takes. Laconic's own has its steps in an autograd function."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn

from laconic.models.lstm import LSTM


class PlainLSTM(nn.Module):
    """(batch, steps, inputs) → the last h, with the weights of an `LSTM`; gates i, f, c̃, o as Keras has them."""

    def __init__(self, original: LSTM) -> None:
        super().__init__()
        self.kernel, self.recurrent, self.bias = original.kernel, original.recurrent_kernel, original.bias
        self.hard = original.hard

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.zeros(x.shape[0], self.recurrent.shape[0], dtype=x.dtype)
        cell = torch.zeros_like(hidden)
        for step in range(x.shape[1]):
            gates = x[:, step] @ self.kernel + hidden @ self.recurrent + self.bias
            i, f, c, o = gates.chunk(4, -1)
            if self.hard:
                i, f, o = (0.2 * i + 0.5).clamp(0, 1), (0.2 * f + 0.5).clamp(0, 1), (0.2 * o + 0.5).clamp(0, 1)
            else:
                i, f, o = i.sigmoid(), f.sigmoid(), o.sigmoid()
            cell = f * cell + i * c.tanh()
            hidden = o * cell.tanh()
        return hidden


def with_plain_loops(module: nn.Module) -> nn.Module:
    """The module with every `LSTM` replaced by a scripted loop; the module itself is changed."""
    for name, child in module.named_children():
        if isinstance(child, LSTM):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # TorchScript will go some day
                setattr(module, name, torch.jit.script(PlainLSTM(child)))
        else:
            with_plain_loops(child)
    return module
