"""Large dense layers of many clients as shared weights W₀ plus what is each client's own. No client has a copy of W₀.

After some steps of SGD a client's layer is W₀ − η·GᵀX, where the rows of X and G are the layer's inputs and the
gradients of its outputs, step after step. With few records X and G are far smaller than W₀: no gradient of its size is
written, and all clients share one product with it. The update is put together once, at the end (`Factors`).

Where clients train few of the weights, (i_k, j_k), with the changes δ_k, the layer of a client is (`KeptWeights`)

    y_i = x·W₀ᵀ_i + b_i + Σ_{k: i_k = i} x_{j_k}·δ_k
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from laconic.train.engines.engine import Work
from laconic.train.layers.replacement import clients_first
from laconic.train.local import LocalTraining


class KeptWeights:
    """Which weights of a dense layer W₀ (out, in) are trained: `numbers`, sorted, count its entries row by row."""

    def __init__(self, shared: Tensor, numbers: Tensor) -> None:
        self.shared, self.numbers = shared, numbers
        outputs, inputs = shared.shape
        self.rows = _Groups(numbers // inputs, outputs)
        self.columns = _Groups(numbers % inputs, inputs)

    def linear(self, x: Tensor, changes: Tensor, bias: Tensor) -> Tensor:
        """The layer of one client, inside `vmap`: x (..., in), changes (kept,), bias (out,)."""
        return cast(Tensor, _KeptInVmap.apply(x, changes, bias, self))  # type: ignore[no-untyped-call]


class _Groups:
    """Numbers of rows of a matrix, some of them several times, and sums into those rows."""

    def __init__(self, numbers: Tensor, count: int) -> None:
        self.numbers = numbers
        self._order = torch.argsort(numbers, stable=True) if numbers.is_cuda else None
        each = torch.bincount(numbers, minlength=count)
        self._borders = torch.cat([each.new_zeros(1), each.cumsum(0)])

    def of(self, matrix: Tensor) -> Tensor:
        return matrix.index_select(0, self.numbers)

    def add_to(self, matrix: Tensor, values: Tensor) -> Tensor:
        """Add each row of `values` to its row of the matrix; always in the same order."""
        if self._order is None:
            return matrix.index_add_(0, self.numbers, values)
        # On a GPU `index_add_` adds in the order in which its threads come.
        sums = torch.segment_reduce(
            values.index_select(0, self._order), "sum", offsets=self._borders, axis=0, initial=0, unsafe=True
        )
        return matrix.add_(sums)


class _KeptLinear(torch.autograd.Function):
    """The layer for all clients at once: x (clients, ..., in), changes (clients, kept), bias (clients, out).

    Inside, records are columns, so that what is picked and added are contiguous rows.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, changes: Tensor, bias: Tensor, kept: KeptWeights) -> Tensor:
        columns = x.reshape(-1, x.shape[-1]).T.contiguous()
        picked = kept.columns.of(columns)
        ctx.kept, ctx.shape = kept, x.shape
        ctx.save_for_backward(picked, changes)
        y = kept.rows.add_to(kept.shared @ columns, _times_changes(picked, changes))
        return (y.T.reshape(len(x), -1, len(y)) + bias[:, None]).reshape(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor, Tensor, None]:
        kept, (picked, changes) = ctx.kept, ctx.saved_tensors
        columns = gradients[0].reshape(-1, gradients[0].shape[-1]).T.contiguous()
        at_rows = kept.rows.of(columns)
        by_change = (picked * at_rows).reshape(len(picked), len(changes), -1).sum(-1).T
        back = None
        if ctx.needs_input_grad[0]:
            back = kept.columns.add_to(kept.shared.T @ columns, _times_changes(at_rows, changes)).T.reshape(ctx.shape)
        return back, by_change, columns.reshape(len(columns), len(changes), -1).sum(-1).T, None


def _times_changes(picked: Tensor, changes: Tensor) -> Tensor:
    """(kept, clients·records) times every client's changes (clients, kept)."""
    return (picked.reshape(len(picked), len(changes), -1) * changes.T[:, :, None]).reshape(picked.shape)


class _KeptInVmap(torch.autograd.Function):
    """The way from one client's view inside `vmap` to `_KeptLinear`, which sees all clients."""

    @staticmethod
    def forward(x: Tensor, changes: Tensor, bias: Tensor, kept: KeptWeights) -> Tensor:
        raise AssertionError("only inside vmap")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        raise AssertionError("only inside vmap")

    @staticmethod
    def vmap(
        info: Any, in_dims: Any, x: Tensor, changes: Tensor, bias: Tensor, kept: KeptWeights
    ) -> tuple[Tensor, int]:
        batched = (clients_first(t, dim, info.batch_size) for t, dim in zip((x, changes, bias), in_dims, strict=False))
        return cast(Tensor, _KeptLinear.apply(*batched, kept)), 0  # type: ignore[no-untyped-call]


class FactoredLinear(nn.Linear):
    """In place of a `nn.Linear`. Until `begin` it is that layer; from then on until `end`, the factored one.

    Where few of its weights are trained, `begin_kept` makes it the shared weights plus those few (`KeptWeights`).

    `rows_per_record` says how often one record passes through it (a sequence passes once per position).
    """

    def __init__(self, linear: nn.Linear) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias
        self.rows_per_record = 0
        self.probing = self.vmapped = False
        self._shared: Tensor | None = None
        self._rates: Tensor | None = None
        self._kept: KeptWeights | None = None

    def pays(self, num_records: int) -> bool:
        """Whether the factors of so many records, all steps together, are at most half as large as the weights."""
        outputs, inputs = self.weight.shape
        rows = num_records * self.rows_per_record
        return 0 < 2 * rows * (inputs + outputs) <= inputs * outputs

    def shared_in(self, work: Work) -> bool:
        """Whether clients that do this work need no copy of the weights."""
        if work.share < 1:
            return self.keeps_few(math.ceil(work.share * self.weight.numel()), work.batch_size)
        return self.pays(work.num_records)

    def keeps_few(self, count: int, num_records: int) -> bool:
        """Whether training only so many of the weights, with so many records a step, is less work than with all."""
        rows = num_records * self.rows_per_record
        return 0 < 2 * rows * count <= self.weight.numel()

    def factors(self, num_clients: int, num_records: int) -> Factors:
        """Room for the factors of so many records per client, all steps together."""
        rows = num_records * self.rows_per_record
        outputs, inputs = self.weight.shape
        return Factors(
            self.weight.new_empty(num_clients, rows, inputs), self.weight.new_empty(num_clients, rows, outputs)
        )

    def begin(self, shared: Tensor, lr: float | Tensor, factors: Factors) -> None:
        """Be W₀ − η·GᵀX from now on, with nothing in the factors yet.

        Clients of several runs, equally many of each, one run after another, have a W₀ for each run (runs, out, in)
        and a step size for each client; η is then part of their G.
        """
        self._shared, self._past = shared, factors
        self._lr, self._rates = (1.0, lr) if isinstance(lr, Tensor) else (lr, None)
        factors.rows = 0

    def begin_kept(self, kept: KeptWeights) -> None:
        """Be W₀ plus a few changes from now on, which take the place of the weight inside `vmap`."""
        self._kept = kept

    def end(self) -> None:
        self._shared = self._kept = None

    def forward(self, x: Tensor) -> Tensor:
        if self.probing:
            self.rows_per_record += x.numel() // x.shape[-1]
            return functional.linear(x, self.weight.detach(), self.bias)
        if self._kept is not None:
            return self._kept.linear(x, self.weight, self.bias)
        if self._shared is None:
            return functional.linear(x, self.weight, self.bias)
        if self.vmapped:
            return cast(Tensor, _InVmap.apply(x, self.bias, self))  # type: ignore[no-untyped-call]
        return cast(Tensor, _Factored.apply(x[None], self.bias[None], self)[0])  # type: ignore[no-untyped-call]

    def outputs(self, x: Tensor, bias: Tensor) -> Tensor:
        """x·W₀ᵀ + b − η·(x·Xᵀ)·G for (clients, rows, in)."""
        assert self._shared is not None
        y = _times(x, self._shared.mT).add_(bias[:, None])
        inputs, gradients = self._past.so_far
        return y.baddbmm_(torch.bmm(x, inputs.mT), gradients, alpha=-self._lr) if self._past.rows else y

    def input_gradients(self, g: Tensor) -> Tensor:
        """g·W₀ − η·(g·Gᵀ)·X."""
        assert self._shared is not None
        back = _times(g, self._shared)
        inputs, gradients = self._past.so_far
        return back.baddbmm_(torch.bmm(g, gradients.mT), inputs, alpha=-self._lr) if self._past.rows else back

    def remember(self, x: Tensor, g: Tensor) -> None:
        self._past.append(x, g if self._rates is None else g * self._rates[:, None, None])


def _times(rows: Tensor, weight: Tensor) -> Tensor:
    """All clients' rows (clients, rows, in) times one weight (in, out), or times that of their run (runs, in, out)."""
    if weight.ndim == 2:
        return (rows.reshape(-1, rows.shape[-1]) @ weight).reshape(*rows.shape[:-1], -1)
    return torch.bmm(rows.reshape(len(weight), -1, rows.shape[-1]), weight).reshape(*rows.shape[:-1], -1)


@dataclass
class Factors:
    """X (clients, rows, in) and G (clients, rows, out), of which `rows` rows are there."""

    inputs: Tensor
    gradients: Tensor
    rows: int = 0

    @property
    def so_far(self) -> tuple[Tensor, Tensor]:
        return self.inputs[:, : self.rows], self.gradients[:, : self.rows]

    def of(self, clients: slice) -> Factors:
        """Those of some clients."""
        return Factors(self.inputs[clients], self.gradients[clients], self.rows)

    def append(self, x: Tensor, g: Tensor) -> None:
        place = slice(self.rows, self.rows + x.shape[1])
        self.inputs[:, place], self.gradients[:, place] = x, g
        self.rows = place.stop

    def write_change(self, out: Tensor, lr: float) -> None:
        """−η·GᵀX of the first clients into `out` (clients, in·out), whose rows may lie apart."""
        inputs, gradients = (t[: len(out)] for t in self.so_far)
        shape = (len(out), gradients.shape[-1], inputs.shape[-1])
        change = out.as_strided(shape, (out.stride(0), shape[2], 1), out.storage_offset())
        torch.baddbmm(change, gradients.mT, inputs, beta=0, alpha=-lr, out=change)

    def write_sum(self, out: Tensor, counts: Tensor, lr: float) -> None:
        """−η·Σ_k counts_k·G_kᵀX_k into `out` (in·out,): one product for all clients."""
        inputs, gradients = (t[: len(counts)] for t in self.so_far)
        scaled = (gradients * (-lr * counts)[:, None, None]).flatten(0, 1)
        torch.mm(scaled.T, inputs.reshape(-1, inputs.shape[-1]), out=out.view(scaled.shape[-1], -1))


class _Factored(torch.autograd.Function):
    """The layer for all clients at once: x (clients, ..., in), bias (clients, out)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor, layer: FactoredLinear) -> Tensor:
        ctx.layer, ctx.shape = layer, x.shape
        rows = x.reshape(len(x), -1, x.shape[-1])
        ctx.save_for_backward(rows)
        return layer.outputs(rows, bias).reshape(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor, None]:
        (x,) = ctx.saved_tensors
        rows = gradients[0].reshape(*x.shape[:2], -1)
        back = ctx.layer.input_gradients(rows).reshape(ctx.shape) if ctx.needs_input_grad[0] else None
        ctx.layer.remember(x, rows)
        return back, rows.sum(1), None


class _InVmap(torch.autograd.Function):
    """The way from one client's view inside `vmap` to `_Factored`, which sees all clients."""

    @staticmethod
    def forward(x: Tensor, bias: Tensor, layer: FactoredLinear) -> Tensor:
        raise AssertionError("only inside vmap")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        raise AssertionError("only inside vmap")

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, bias: Tensor, layer: FactoredLinear) -> tuple[Tensor, int]:
        batched = [clients_first(t, dim, info.batch_size) for t, dim in ((x, in_dims[0]), (bias, in_dims[1]))]
        return cast(Tensor, _Factored.apply(*batched, layer)), 0  # type: ignore[no-untyped-call]


def factor_large_layers(module: nn.Module, inputs: Tensor) -> dict[str, FactoredLinear]:
    """Replace the dense layers that can be factored, in place; by the name of their weight.

    A layer qualifies if its weight is used by the layer alone and both weight and bias are trained. What the module
    does is found by one pass over the records `inputs`.
    """
    owners: dict[int, int] = {}
    for layer in module.modules():
        for parameter in layer.parameters(recurse=False):
            owners[id(parameter)] = owners.get(id(parameter), 0) + 1
    found: dict[str, FactoredLinear] = {}
    for prefix, parent in list(module.named_modules()):
        for name, child in list(parent.named_children()):
            if _plain_linear(child) and owners[id(child.weight)] == 1:
                factored = FactoredLinear(child)
                setattr(parent, name, factored)
                found[f"{prefix}.{name}.weight".lstrip(".")] = factored
    if found:
        _count_rows(module, found, inputs)
    return found


def worth_factoring(
    layers: dict[str, FactoredLinear], train: LocalTraining, trained: Tensor | None, num_records: int
) -> dict[str, FactoredLinear]:
    """The layers to keep as factors: under SGD, if all weights move, where that is cheaper."""
    if train.optimizer != "sgd" or trained is not None:
        return {}
    return {name: layer for name, layer in layers.items() if layer.pays(num_records)}


def _plain_linear(layer: nn.Module) -> TypeGuard[nn.Linear]:
    if (
        type(layer) is not nn.Linear
        or not isinstance(layer.bias, Tensor)
        or layer._forward_hooks
        or layer._forward_pre_hooks
    ):
        return False
    return layer.weight.requires_grad and layer.bias.requires_grad


def _count_rows(module: nn.Module, layers: dict[str, FactoredLinear], inputs: Tensor) -> None:
    """Set `rows_per_record`; it stays 0 for a layer whose weight the module also uses behind the layer's back."""
    for layer in layers.values():
        layer.probing = True
    module.train()
    with torch.random.fork_rng(devices=[inputs.device] if inputs.is_cuda else []), torch.enable_grad():
        outputs = module(inputs)
        weights = [layer.weight for layer in layers.values()]
        gradients: Sequence[Tensor | None] = torch.autograd.grad(outputs.sum(), weights, allow_unused=True)
    for layer, gradient in zip(layers.values(), gradients, strict=True):
        layer.probing = False
        if gradient is not None or layer.rows_per_record % len(inputs):
            layer.rows_per_record = 0
        layer.rows_per_record //= len(inputs)
