"""torch's LSTM and GRU in which every client has weights of its own.

torch's kernels for them take one set of weights, and `vmap` has no rule for them. The steps are those of `scans`.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from laconic.train.layers.chains import watched
from laconic.train.layers.dropout import KeyedDropout
from laconic.train.layers.kept import clients_first
from laconic.train.layers.recurrent.scans import GRUScan, LSTMScan


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


class _Stacked(nn.Module):
    """Several layers with dropout between them: torch's own kernel for each, and masks that follow from a key."""

    def __init__(self, layer: nn.LSTM | nn.GRU) -> None:
        nn.Module.__init__(self)
        self.__dict__.update(layer.__dict__)
        drops = (KeyedDropout(layer.dropout, whole_channels=False) for _ in range(layer.num_layers - 1))
        self.between = nn.ModuleList(drops)

    def forward(self, x: Any, start: Any = None) -> tuple[Any, Any]:
        if not isinstance(x, Tensor) or x.ndim == 2 or not self.training:
            return cast("tuple[Any, Any]", super().forward(x, start))
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
    nn.LSTM: ClientLSTM,
    StackedLSTM: ClientLSTM,
    nn.GRU: ClientGRU,
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
    """Let the dropout inside the module's LSTMs and GRUs follow from keys, in place."""
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if not isinstance(child, nn.LSTM | nn.GRU) or watched(child) or not child.dropout or child.num_layers == 1:
                continue
            if type(child) in (nn.LSTM, nn.GRU):
                setattr(parent, name, StackedLSTM(child) if type(child) is nn.LSTM else StackedGRU(child))


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
