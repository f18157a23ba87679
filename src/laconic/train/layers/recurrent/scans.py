"""The steps of torch's LSTM and GRU for many clients at once, and their way back.

x·Wᵀ is one product for all steps, and only h·Rᵀ has to wait for the step before. On the way back only δh (and δc) have
to wait; the gradients by W, R and the biases are one product each, instead of a sum over the steps.

Tensors are (steps, clients, batch, …): each step is one piece of memory. Gates have their rows in torch's order: i,
f, g, o, or r, z, n.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class LSTMScan(torch.autograd.Function):
    """z = x·Wᵀ + b, R and the first h and c → h of all steps, and the last c.

    i, f, o = σ(z + h·Rᵀ), g = tanh(z + h·Rᵀ);   c ← f ⊙ c + i ⊙ g,   h ← o ⊙ tanh(c)
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, recurrent: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        steps, clients, batch, width = z.shape
        units = width // 4
        gates = z.clone(memory_format=torch.contiguous_format)
        turned = recurrent.mT.contiguous()
        every = z.new_empty(steps + 1, clients, batch, units)
        cells = torch.empty_like(every)
        every[0], cells[0] = hidden, cell
        views = (gates.unbind(), gates[..., : 2 * units].unbind(), *(g.unbind() for g in gates.chunk(4, -1)))
        states = zip(every.unbind(), every[1:].unbind(), cells.unbind(), cells[1:].unbind(), strict=False)
        for (now, two, in_, forget, new, out), (h, next_h, c, next_c) in zip(
            zip(*views, strict=True), states, strict=True
        ):
            now.baddbmm_(h, turned)
            two.sigmoid_()
            out.sigmoid_()
            torch.mul(forget, c, out=next_c)
            next_c.addcmul_(in_, new.tanh_())
            torch.mul(out, torch.tanh(next_c, out=next_h), out=next_h)
        ctx.save_for_backward(recurrent, gates, every, cells)
        return every[1:], cells[-1].clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        recurrent, gates, every, cells = ctx.saved_tensors
        by_cell = gradients[1].clone()
        in_, forget, new, out = gates.chunk(4, -1)
        tanh = cells[1:].tanh()
        # By what δc (for i, f, g) and δh (for o) are multiplied to be the gradients before the activations.
        by_gates = torch.empty_like(gates)
        by_in, by_forget, by_new, by_out = by_gates.chunk(4, -1)
        torch.mul(torch.addcmul(in_, in_, in_, value=-1), new, out=by_in)
        torch.mul(torch.addcmul(forget, forget, forget, value=-1), cells[:-1], out=by_forget)
        torch.addcmul(in_, in_, new.square(), value=-1, out=by_new)
        torch.mul(torch.addcmul(out, out, out, value=-1), tanh, out=by_out)
        to_cell = torch.addcmul(out, out, tanh.square_(), value=-1)
        shaped = by_gates.view(*by_gates.shape[:-1], 4, -1)
        by_hidden, of_gates = torch.zeros_like(by_cell), by_cell[:, :, None]
        views = (by_gates, shaped[..., :3, :], by_out, to_cell, forget, gradients[0])
        for all_, others, by_o, share, kept, more in zip(*(reversed(v.unbind()) for v in views), strict=True):
            by_hidden = by_hidden.add(more)
            by_cell.addcmul_(by_hidden, share)
            others.mul_(of_gates)
            by_o.mul_(by_hidden)
            by_cell.mul_(kept)
            by_hidden = torch.bmm(all_, recurrent)
        return by_gates, _product(by_gates, every), by_hidden, by_cell


class GRUScan(torch.autograd.Function):
    """z = x·Wᵀ + b, R, the bias of n inside the product with r, and the first h → h of all steps.

    r, u = σ(z + h·Rᵀ),   n = tanh(z + r ⊙ (h·Rᵀ + b_n)),   h ← n + u ⊙ (h − n)
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, recurrent: Tensor, bias: Tensor, hidden: Tensor) -> Tensor:
        steps, clients, batch, width = z.shape
        units = width // 3
        gates = z.clone(memory_format=torch.contiguous_format)
        turned = recurrent.mT.contiguous()
        every = z.new_empty(steps + 1, clients, batch, units)
        within = torch.empty_like(every[1:])
        every[0] = hidden
        views = (gates[..., : 2 * units].unbind(), *(g.unbind() for g in gates.chunk(3, -1)), within.unbind())
        states = zip(every.unbind(), every[1:].unbind(), strict=False)
        for (two, reset, update, new, inner), (h, next_h) in zip(zip(*views, strict=True), states, strict=True):
            past = torch.bmm(h, turned)
            torch.add(past[..., 2 * units :], bias[:, None], out=inner)
            two.add_(past[..., : 2 * units]).sigmoid_()
            new.addcmul_(reset, inner).tanh_()
            torch.lerp(new, h, update, out=next_h)
        ctx.save_for_backward(recurrent, gates, every, within)
        return every[1:]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        recurrent, gates, every, within = ctx.saved_tensors
        reset, update, new = gates.chunk(3, -1)
        # By what δn (for r) and δh (for u and n) are multiplied to be the gradients before the activations.
        to_reset = within * torch.addcmul(reset, reset, reset, value=-1)
        to_update = (every[:-1] - new) * torch.addcmul(update, update, update, value=-1)
        to_new = (1 - update) * (1 - new.square())
        by_past = torch.empty_like(gates)  # by h·Rᵀ + b: those of n go through r
        by_n = torch.empty_like(to_new)
        by_hidden = torch.zeros_like(every[0])
        views = (by_past, *by_past.chunk(3, -1), by_n, to_reset, to_update, to_new, reset, update, gradients[0])
        for all_, by_r, by_u, past_n, n, to_r, to_u, to_n, r, u, more in zip(
            *(reversed(v.unbind()) for v in views), strict=True
        ):
            by_hidden = by_hidden.add(more)
            torch.mul(by_hidden, to_n, out=n)
            torch.mul(by_hidden, to_u, out=by_u)
            torch.mul(n, to_r, out=by_r)
            torch.mul(n, r, out=past_n)
            by_hidden = torch.baddbmm(by_hidden * u, all_, recurrent)
        by_recurrent, by_bias = _product(by_past, every), by_past.chunk(3, -1)[2].sum((0, 2))
        by_past.chunk(3, -1)[2].copy_(by_n)  # from here on: by z
        return by_past, by_recurrent, by_bias, by_hidden


def _product(by_gates: Tensor, every: Tensor) -> Tensor:
    """The gradient by R, (clients, gates, units): δᵀ·h over all steps, h being that of the step before."""
    z, hidden = (t.transpose(0, 1).flatten(1, 2) for t in (by_gates, every[:-1]))
    return torch.bmm(z.mT, hidden)
