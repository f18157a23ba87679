"""Keras' LSTM, with one bias, for one client or for many at once.

    o, i, f = σ(x_t·W + h_{t−1}·R + b),   c̃ = tanh(x_t·W + h_{t−1}·R + b)        (each gate has columns of its own)
    c_t = f ⊙ c_{t−1} + i ⊙ c̃,   h_t = o ⊙ tanh(c_t)

(Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000). x·W is one product for all steps, and only
h·R has to wait for the step before. In the backward pass only δh and δc have to wait; the gradients by W, R, b and x
are one product each, instead of a sum over the steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from laconic.parts import one_of


class Scan(torch.autograd.Function):
    """x (steps, batch, inputs), W, R and b → the last h, and what the way back needs: x in order, gates, c and h.

    Gates have their columns in the order o, i, f, c̃. With `hard`, σ is clip(x, 0, 1).

    A leading axis is clients. `vmap` hands them over all at once, so that no step is done client by client.
    """

    @staticmethod
    def forward(
        x: Tensor, kernel: Tensor, recurrent: Tensor, bias: Tensor, hard: bool
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        if x.ndim == 4:
            return _forward(x, kernel, recurrent, bias, hard)
        last, rows, gates, cells, hidden = _forward(x[None], kernel[None], recurrent[None], bias[None], hard)
        return last[0], rows[0], gates[0], cells[0], hidden[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, kernel, recurrent, _, ctx.hard = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(kernel, recurrent, *output[1:])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, None]:
        return (*_ScanBack.apply(gradients[0], *ctx.saved_tensors, ctx.hard), None)  # type: ignore[no-untyped-call]

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> tuple[Any, Any]:
        *tensors, hard = inputs
        found = Scan.apply(*_clients_first(info.batch_size, in_dims, tensors), hard)  # type: ignore[no-untyped-call]
        return found, (0,) * 5


class _ScanBack(torch.autograd.Function):
    """The gradients by x, W, R and b, for the gradient by the last h. A function too, so that `vmap` finds it."""

    @staticmethod
    def forward(*inputs: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        *tensors, hard = inputs
        if tensors[0].ndim == 3:
            return _backward(tensors, hard)
        by_x, by_kernel, by_recurrent, by_bias = _backward([t[None] for t in tensors], hard)
        return by_x[0], by_kernel[0], by_recurrent[0], by_bias[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing is kept."""

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        raise RuntimeError("the LSTM has no second derivatives")

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> tuple[Any, Any]:
        *tensors, hard = inputs
        found = _ScanBack.apply(*_clients_first(info.batch_size, in_dims, tensors), hard)  # type: ignore[no-untyped-call]
        return found, (0,) * 4


def _clients_first(count: int, in_dims: Any, tensors: list[Tensor]) -> list[Tensor]:
    return [
        t.expand(count, *t.shape) if dim is None else t.movedim(dim, 0)
        for t, dim in zip(tensors, in_dims, strict=False)
    ]


def _forward(
    x: Tensor, kernel: Tensor, recurrent: Tensor, bias: Tensor, hard: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Clients first: the last h (clients, batch, units), and x, gates, c and h of all steps."""
    clients, steps, batch, inputs = x.shape
    units = recurrent.shape[1]
    x = x.contiguous().view(x.shape)  # an input must not be returned as it is
    z = torch.baddbmm(bias[:, None], x.view(clients, steps * batch, inputs), kernel)
    gates = z.view(clients, steps, batch, 4 * units)
    cells = gates.new_empty(clients, steps, batch, units)
    hidden = torch.empty_like(cells)
    views = (
        gates.unbind(1),
        gates[..., : 3 * units].unbind(1),
        *(gate.unbind(1) for gate in gates.chunk(4, -1)),
        cells.unbind(1),
        hidden.unbind(1),
    )
    before: tuple[Tensor, Tensor] | None = None
    for all_, sigmoids, out, in_, forget, candidate, cell, h in zip(*views, strict=True):
        if before is not None:
            all_.baddbmm_(before[1], recurrent)
        sigmoids.clamp_(0, 1) if hard else sigmoids.sigmoid_()
        torch.mul(in_, candidate.tanh_(), out=cell)
        if before is not None:
            cell.addcmul_(forget, before[0])
        torch.mul(out, torch.tanh(cell, out=h), out=h)
        before = cell, h
    return hidden[:, -1].clone(), x, gates, cells, hidden


def _backward(tensors: Sequence[Tensor], hard: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients by x, W, R and b. What does not depend on δ is done for all steps at once."""
    gradient, kernel, recurrent, x, gates, cells, hidden = tensors
    clients, steps, batch, units = cells.shape
    out, in_, forget, candidate = gates.chunk(4, -1)
    tanh = cells.tanh()
    past = torch.cat([torch.zeros_like(cells[:, :1]), cells[:, :-1]], 1)
    # By what δh (for o) and δc (for i, f, c̃) are multiplied to be the gradients before the activations.
    changes = torch.cat([tanh, candidate, past, in_], -1)
    sigmoids = gates[..., : 3 * units]
    changes[..., : 3 * units] *= (sigmoids > 0) & (sigmoids < 1) if hard else sigmoids * (1 - sigmoids)
    changes[..., 3 * units :] *= 1 - candidate.square()
    to_cell = out * (1 - tanh.square())
    by_gate = changes.view(clients, steps, batch, 4, units)
    views = (
        changes.unbind(1),
        by_gate[..., 0, :].unbind(1),
        by_gate[..., 1:, :].unbind(1),
        to_cell.unbind(1),
        forget.unbind(1),
    )
    turned, by_hidden, by_cell = recurrent.mT, gradient, torch.zeros_like(gradient)
    of_gates = by_cell[:, :, None]
    for all_, by_out, others, share, kept in zip(*(v[::-1] for v in views), strict=True):
        by_cell.addcmul_(by_hidden, share)
        by_out.mul_(by_hidden)
        others.mul_(of_gates)
        by_cell.mul_(kept)
        by_hidden = torch.bmm(all_, turned)
    z = changes.view(clients, steps * batch, 4 * units)
    by_x = torch.bmm(z, kernel.mT).view(x.shape)
    by_kernel = torch.bmm(x.view(clients, steps * batch, -1).mT, z)
    rows = (steps - 1) * batch
    by_recurrent = torch.bmm(hidden.view(clients, steps * batch, units)[:, :rows].mT, z[:, batch:])
    return by_x, by_kernel, by_recurrent, z.sum(1)


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
        return cast("Tensor", found[0])

    def _arranged(self, weights: Tensor) -> Tensor:
        """The gates in the order o, i, f, c̃, in which the scan works on neighbours, with the hard sigmoid's 0.2."""
        i, f, c, o = weights.chunk(4, -1)
        gates = torch.cat([o, i, f], -1)
        return torch.cat([0.2 * gates if self.hard else gates, c], -1)
