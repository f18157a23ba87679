"""Keras' LSTM, with one bias.

    o, i, f = σ(x_t·W + h_{t−1}·R + b),   c̃ = tanh(x_t·W + h_{t−1}·R + b)        (each gate has columns of its own)
    c_t = f ⊙ c_{t−1} + i ⊙ c̃,   h_t = o ⊙ tanh(c_t)

(Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000). The steps are done in `lstm_scan`.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from laconic.models.lstm_scan import Scan
from laconic.parts import one_of

RECURRENT_ACTIVATIONS = ("hard-sigmoid", "sigmoid")


class LSTM(nn.Module):
    """(batch, steps, inputs) → the last h, (batch, units). Weights are laid out as Keras does: gates i, f, c̃, o.

    `recurrent_activation` is the σ of the gates: 'hard-sigmoid', clip(0.2·x + 0.5, 0, 1), the default of Keras up to
    2.2, or 'sigmoid', the logistic function.
    """

    def __init__(self, inputs: int, units: int, *, recurrent_activation: str = "hard-sigmoid") -> None:
        super().__init__()
        one_of(RECURRENT_ACTIVATIONS, recurrent_activation=recurrent_activation)
        self.hard = recurrent_activation == "hard-sigmoid"
        self.kernel = nn.Parameter(torch.empty(inputs, 4 * units))
        self.recurrent_kernel = nn.Parameter(torch.empty(units, 4 * units))
        self.bias = nn.Parameter(torch.empty(4 * units))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Keras' initial values: Glorot uniform over all gates together, orthogonal, and 0 but 1 for the forget gate.

        'Orthogonal' is said of all gates together too: the rows of the recurrent kernel (units, 4·units) are
        orthonormal.
        """
        units = len(self.recurrent_kernel)
        nn.init.xavier_uniform_(self.kernel)
        nn.init.orthogonal_(self.recurrent_kernel)
        nn.init.zeros_(self.bias)
        nn.init.ones_(self.bias[units : 2 * units])

    def forward(self, x: Tensor) -> Tensor:
        kernel, recurrent, bias = (self._arranged(w) for w in (self.kernel, self.recurrent_kernel, self.bias))
        if self.hard:
            bias = torch.cat([bias[: -len(recurrent)] + 0.5, bias[-len(recurrent) :]])
        found = Scan.apply(x.transpose(0, 1), kernel, recurrent, bias, self.hard)  # type: ignore[no-untyped-call]
        return cast(Tensor, found[0])

    def _arranged(self, weights: Tensor) -> Tensor:
        """The gates in the order o, i, f, c̃, in which the scan works on neighbours, with the hard sigmoid's 0.2."""
        i, f, c, o = weights.chunk(4, -1)
        gates = torch.cat([o, i, f], -1)
        return torch.cat([0.2 * gates if self.hard else gates, c], -1)
