"""torch's LSTM and GRU in which every client has weights of its own.

torch's kernels for them take one set of weights, and `vmap` has no rule for them. Here x·Wᵀ is one product for all
steps, and only h·Rᵀ has to wait for the step before. In the backward pass only δh (and δc) have to wait; the gradients
by W, R and the biases are one product each, instead of a sum over the steps.

Tensors are (steps, clients, batch, …): each step is one piece of memory. Gates have their rows in torch's order: i,
f, g, o, or r, z, n.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from laconic.train.layers.dropout import KeyedDropout
from laconic.train.layers.replacement import clients_first, watched


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


class _Recurrent(nn.Module):
    """In place of a `nn.LSTM` or `nn.GRU`, with the same weights, for use inside `vmap`."""

    num_layers: int
    hidden_size: int
    bias: bool
    batch_first: bool
    bidirectional: bool

    def __init__(self, layer: nn.Module) -> None:
        nn.Module.__init__(self)
        self.__dict__.update(layer.__dict__)

    def forward(self, x: Any, start: Any = None) -> tuple[Tensor, Any]:
        if not isinstance(x, Tensor):
            raise NotImplementedError("packed sequences have a length of their own for every client")
        alone = x.ndim == 2
        if alone:
            x = x[:, None]
            start = None if start is None else _each(start, lambda s: s[:, None])
        elif self.batch_first:
            x = x.transpose(0, 1)
        y, last = self._layers(x, start)
        if alone:
            return y.squeeze(1), _each(last, lambda s: s.squeeze(1))
        return y.transpose(0, 1) if self.batch_first else y, last

    def _layers(self, x: Tensor, start: Any) -> tuple[Tensor, Any]:
        """(steps, batch, inputs) → h of the last layer, and the last state of all layers."""
        ways = ("", "_reverse") if self.bidirectional else ("",)
        states: list[tuple[Tensor, ...]] = []
        for layer in range(self.num_layers):
            found = []
            for way in ways:
                place = len(states)
                first = None if start is None else tuple(s[place] for s in _tuple(start))
                y, state = self._scanned(x.flip(0) if way else x, f"_l{layer}{way}", first)
                found.append(y.flip(0) if way else y)
                states.append(state)
            x = torch.cat(found, -1) if len(found) > 1 else found[0]
            drops = getattr(self, "between", None)
            if drops is not None and layer + 1 < self.num_layers:
                x = _records_first(drops[layer], x)
        last = tuple(torch.stack(parts) for parts in zip(*states, strict=True))
        return x, last if len(last) > 1 else last[0]

    def _scanned(self, x: Tensor, name: str, start: tuple[Tensor, ...] | None) -> tuple[Tensor, tuple[Tensor, ...]]:
        weights = [getattr(self, f"{kind}{name}") for kind in ("weight_ih", "weight_hh")]
        biases = [getattr(self, f"{kind}{name}") if self.bias else None for kind in ("bias_ih", "bias_hh")]
        count = 2 if isinstance(self, nn.LSTM) else 1
        if start is None:
            start = (x.new_zeros(x.shape[1], self.hidden_size),) * count
        found = _InVmap.apply(count == 2, x, *weights, *biases, *start)  # type: ignore[no-untyped-call]
        y, state = (found[0], found[1:]) if count == 2 else (found, ())
        return cast(Tensor, y), (y[-1], *state)


class ClientLSTM(_Recurrent, nn.LSTM):  # type: ignore[misc]
    """In place of a `nn.LSTM`."""


class ClientGRU(_Recurrent, nn.GRU):  # type: ignore[misc]
    """In place of a `nn.GRU`."""


class _Scattered(nn.Module):
    """torch's own layer. cuDNN copies weights that do not lie as it likes, and here they are parts of a flat vector."""

    def __init__(self, layer: nn.Module) -> None:
        nn.Module.__init__(self)
        self.__dict__.update(layer.__dict__)

    def forward(self, x: Any, start: Any = None) -> tuple[Any, Any]:
        with _scattered_weights():
            return cast("tuple[Any, Any]", super().forward(x, start))


class ScatteredLSTM(_Scattered, nn.LSTM):
    """In place of a `nn.LSTM`."""


class ScatteredGRU(_Scattered, nn.GRU):
    """In place of a `nn.GRU`."""


@contextlib.contextmanager
def _scattered_weights() -> Iterator[None]:
    """Without torch's advice, at every call, to put them into one piece of memory."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous")
        yield


class _Stacked(nn.Module):
    """Several layers with dropout between them: torch's own kernel for each, and masks that follow from a key."""

    def __init__(self, layer: nn.LSTM | nn.GRU) -> None:
        nn.Module.__init__(self)
        self.__dict__.update(layer.__dict__)
        drops = (KeyedDropout(layer.dropout, whole_channels=False) for _ in range(layer.num_layers - 1))
        self.between = nn.ModuleList(drops)

    def forward(self, x: Any, start: Any = None) -> tuple[Any, Any]:
        with _scattered_weights():
            if not isinstance(x, Tensor) or x.ndim == 2 or not self.training:
                return cast("tuple[Any, Any]", super().forward(x, start))
            return self._masked(x, start)

    def _masked(self, x: Tensor, start: Any) -> tuple[Tensor, Any]:
        assert isinstance(self, nn.LSTM | nn.GRU)
        kernel, ways = (torch.lstm if isinstance(self, nn.LSTM) else torch.gru), 2 if self.bidirectional else 1
        if start is None:
            batch = len(x) if self.batch_first else x.shape[1]
            zeros = x.new_zeros(self.num_layers * ways, batch, self.hidden_size)
            start = (zeros, zeros) if isinstance(self, nn.LSTM) else zeros
        states = []
        for layer in range(self.num_layers):
            own = slice(layer * ways, (layer + 1) * ways)
            every: list[Tensor] = [w for way in self.all_weights[own] for w in way]
            first = _each(start, lambda s, own=own: s[own])
            settings = (self.bias, 1, 0.0, True, self.bidirectional, self.batch_first)
            x, *state = kernel(x, first, every, *settings)
            states.append(state)
            if layer + 1 < self.num_layers:
                x = self.between[layer](x) if self.batch_first else _records_first(self.between[layer], x)
        last = tuple(torch.cat(parts) for parts in zip(*states, strict=True))
        return x, last if len(last) > 1 else last[0]


class StackedLSTM(_Stacked, nn.LSTM):
    """In place of a `nn.LSTM` with dropout."""


class StackedGRU(_Stacked, nn.GRU):
    """In place of a `nn.GRU` with dropout."""


class _Cell(nn.Module):
    """In place of a cell that does one step, with the same weights: written out, so that `vmap` has rules for it."""

    def __init__(self, cell: nn.Module) -> None:
        nn.Module.__init__(self)
        self.__dict__.update(cell.__dict__)


class ClientLSTMCell(_Cell, nn.LSTMCell):
    def forward(self, x: Tensor, state: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        h, c = state or (x.new_zeros(*x.shape[:-1], self.hidden_size),) * 2
        z = functional.linear(x, self.weight_ih, self.bias_ih) + functional.linear(h, self.weight_hh, self.bias_hh)
        in_, forget, new, out = z.chunk(4, -1)
        c = forget.sigmoid() * c + in_.sigmoid() * new.tanh()
        return out.sigmoid() * c.tanh(), c


class ClientGRUCell(_Cell, nn.GRUCell):
    def forward(self, x: Tensor, h: Tensor | None = None) -> Tensor:
        h = x.new_zeros(*x.shape[:-1], self.hidden_size) if h is None else h
        mine = functional.linear(x, self.weight_ih, self.bias_ih).chunk(3, -1)
        past = functional.linear(h, self.weight_hh, self.bias_hh).chunk(3, -1)
        reset, update = ((a + b).sigmoid() for a, b in zip(mine[:2], past[:2], strict=True))
        new = (mine[2] + reset * past[2]).tanh()
        return new + update * (h - new)


_CLIENTS: dict[type, type[nn.Module]] = {
    ScatteredLSTM: ClientLSTM,
    StackedLSTM: ClientLSTM,
    ScatteredGRU: ClientGRU,
    StackedGRU: ClientGRU,
    nn.LSTMCell: ClientLSTMCell,
    nn.GRUCell: ClientGRUCell,
}


def use_client_recurrence(module: nn.Module) -> None:
    """Let the module's LSTMs, GRUs and their cells run for all clients at once inside `vmap`, in place."""
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if type(child) in _CLIENTS and not getattr(child, "proj_size", 0) and not watched(child):
                setattr(parent, name, _CLIENTS[type(child)](child))


def with_keyed_recurrence(module: nn.Module) -> None:
    """Let the module's LSTMs and GRUs have weights anywhere, and dropout that follows from keys, in place."""
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if not isinstance(child, nn.LSTM | nn.GRU) or type(child) not in (nn.LSTM, nn.GRU) or watched(child):
                continue
            if child.dropout and child.num_layers > 1:
                setattr(parent, name, StackedLSTM(child) if isinstance(child, nn.LSTM) else StackedGRU(child))
            else:
                setattr(parent, name, ScatteredLSTM(child) if isinstance(child, nn.LSTM) else ScatteredGRU(child))


class _InVmap(torch.autograd.Function):
    """The way from one client's view inside `vmap` to the scan of all clients."""

    @staticmethod
    def forward(*inputs: Any) -> Any:
        raise NotImplementedError("only inside vmap")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        raise NotImplementedError("only inside vmap")

    @staticmethod
    def vmap(info: Any, in_dims: Any, lstm: bool, *tensors: Tensor | None) -> tuple[Any, Any]:
        every = zip(tensors, in_dims[1:], strict=True)
        x, weight, recurrent, *others = (None if t is None else clients_first(t, d, info.batch_size) for t, d in every)
        bias, inner, *start = others
        assert x is not None and weight is not None and recurrent is not None
        rows = x.flatten(1, 2)
        if lstm:
            both = None if bias is None or inner is None else bias + inner
            z = _affine(rows, weight, both).view(*x.shape[:3], -1).transpose(0, 1)
            return LSTMScan.apply(z, recurrent, *start), (1, 0)  # type: ignore[no-untyped-call]
        units = recurrent.shape[-1]
        if bias is None or inner is None:
            within = recurrent.new_zeros(len(recurrent), units)
        else:  # b_n of the hidden part is multiplied by r; the others are simply added
            within = inner[:, 2 * units :]
            bias = bias + torch.cat([inner[:, : 2 * units], torch.zeros_like(within)], -1)
        z = _affine(rows, weight, bias).view(*x.shape[:3], -1).transpose(0, 1)
        return GRUScan.apply(z, recurrent, within, *start), 1  # type: ignore[no-untyped-call]


def _affine(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x·Wᵀ + b of every client."""
    return torch.bmm(rows, weight.mT) if bias is None else torch.baddbmm(bias[:, None], rows, weight.mT)


def _records_first(drop: nn.Module, x: Tensor) -> Tensor:
    """Dropout of (steps, batch, …). A record's mask must not depend on how many others there are."""
    return cast(Tensor, drop(x.transpose(0, 1))).transpose(0, 1)


def _tuple(state: Any) -> tuple[Tensor, ...]:
    return state if isinstance(state, tuple) else (state,)


def _each(state: Any, change: Any) -> Any:
    return tuple(change(s) for s in state) if isinstance(state, tuple) else change(state)
