"""Units of a network of dense and convolutional layers: one backward pass for many records.

The pass gives every layer's inputs x and the derivatives δ of the losses by its outputs, record by record. Of a dense
layer the gradient is the outer product δ·(x, 1)ᵀ, which is not written down (ghost clipping; Goodfellow 2015, Li et al.
2022). Of a convolution it is δ·Uᵀ with U the patches that the kernel sees; kernels are small, so it is.

On the grid. Of every record, X = round(a·(x, 1)) and s = −round(f/a·δ), and f·g of the kernels is rounded. The power of
two a shares the bits of s·Xᵀ between both, and is so small that ‖X‖ is about S·F/(64·√outputs) at most. With q_o the
norm of X over the kept weights of output o, and k the number of kept weights of kernels, rounding moves a unit by
½·√(Σ_o q_o² + k) at most, and

    f = min(F, (S·F − ½·√(Σ_layers Σ_o q_o² + k))/n⁺),   n⁺ ≥ √(Σ_layers Σ_o (δ_o·q_o/a)² + Σ_kernels ‖g‖²).

Sums of X and of products are exact: these are whole numbers. So the norm of what a unit contributes is S·F at most.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from laconic.train.flat import FlatModel
from laconic.train.units.rounding import TINY, UnitGrid, factors, power_of_two

_MARGIN = 1 + 2.0**-30
"""More than the roundings of a norm in float64."""


@dataclass(frozen=True)
class _Place:
    """A layer's module, and where its weight and its bias are among the model's parameters."""

    module: nn.Linear | nn.Conv2d
    weight: int
    bias: int | None


class Ghosts:
    """Clipped gradients of many records of a network at once, from one backward pass."""

    def __init__(self, model: FlatModel, places: list[_Place]) -> None:
        self._model, self._places = model, places

    def total(
        self, weights: Tensor, inputs: Tensor, targets: Tensor, share: Tensor, mask: Tensor | None, grid: UnitGrid
    ) -> Tensor:
        """Σ over the records of −f·g as whole numbers in float64, (n,); `mask` (n,) is 1 for the weights that count."""
        layers = self._passed(weights, inputs, targets, share)
        masks = [None] * len(self._model.shapes) if mask is None else [*self._model.split(mask)]
        parts = [_part(place, x, delta, masks, grid) for place, (x, delta) in zip(self._places, layers, strict=True)]
        squares = torch.stack([part.squares for part in parts]).sum(0)
        rounding = torch.stack([part.rounding for part in parts]).sum(0).sqrt().div(2)
        factor = factors(squares.sqrt().mul_(_MARGIN)[:, None], grid.steps, grid.largest - rounding[:, None])
        sums: list[Tensor] = [torch.empty(0)] * len(self._model.shapes)
        for place, part in zip(self._places, parts, strict=True):
            weight, bias = part.total(factor)
            sums[place.weight] = weight.reshape(self._model.shapes[place.weight])
            if place.bias is not None:
                sums[place.bias] = bias
        return self._model.join(sums).neg_()

    def gradients(self, weights: Tensor, inputs: Tensor, targets: Tensor, share: Tensor) -> list[Tensor]:
        """The sum of the gradients, without a clip: for comparison."""
        sums: list[Tensor] = [torch.empty(0)] * len(self._model.shapes)
        for place, (x, delta) in zip(self._places, self._passed(weights, inputs, targets, share), strict=True):
            flat = x if isinstance(place.module, nn.Linear) else _patches(place.module, x)
            sums[place.weight] = (
                delta.t() @ flat
                if isinstance(place.module, nn.Linear)
                else torch.einsum("bol,bkl->ok", delta.flatten(2), flat)
            ).reshape(self._model.shapes[place.weight])
            if place.bias is not None:
                sums[place.bias] = delta.flatten(2).sum((0, 2)) if delta.ndim > 2 else delta.sum(0)
        return sums

    def _passed(self, weights: Tensor, inputs: Tensor, targets: Tensor, share: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Every layer's inputs and the derivatives by its outputs."""
        seen: dict[nn.Module, tuple[Tensor, Tensor]] = {}

        def notice(module: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> None:
            if module in seen:
                raise RuntimeError("a layer is used twice")
            seen[module] = arguments[0].detach(), output

        handles = [place.module.register_forward_hook(notice) for place in self._places]
        self._model.module.train()
        try:
            with torch.enable_grad():
                values = self._model.split(weights.detach().requires_grad_())
                params = dict(zip(self._model.names, values, strict=True))
                outputs = functional_call(self._model.module, params, (inputs,))
                loss = (self._model.loss(outputs, targets) * share).sum()
                found = torch.autograd.grad(loss, [seen[place.module][1] for place in self._places])
        finally:
            for handle in handles:
                handle.remove()
        return [(seen[place.module][0], delta) for place, delta in zip(self._places, found, strict=True)]


@dataclass(frozen=True)
class _Dense:
    """A dense layer's gradients as outer products."""

    whole: Tensor
    """X (records, inputs and bias)."""
    scaled: Tensor
    """δ/a (records, outputs)."""
    squares: Tensor
    rounding: Tensor
    mask: Tensor | None
    bias: bool

    def total(self, factor: Tensor) -> tuple[Tensor, Tensor]:
        values = self.scaled.mul(factor).round_().where(factor > 0, 0.0)
        found = values.t() @ self.whole
        if self.mask is not None:
            found = found * self.mask
        return (found[:, :-1], found[:, -1]) if self.bias else (found, found[:, 0])


@dataclass(frozen=True)
class _Kernel:
    """A convolution's gradients (records, outputs, kernel and bias)."""

    written: Tensor
    squares: Tensor
    rounding: Tensor
    bias: bool

    def total(self, factor: Tensor) -> tuple[Tensor, Tensor]:
        found = self.written.mul(factor[:, :, None]).round_().where((factor > 0)[:, :, None], 0.0).sum(0)
        return (found[:, :-1], found[:, -1]) if self.bias else (found, found[:, 0])


def _part(
    place: _Place, inputs: Tensor, delta: Tensor, masks: Sequence[Tensor | None], grid: UnitGrid
) -> _Dense | _Kernel:
    bias = place.bias is not None
    weight_mask = masks[place.weight]
    mask = None
    if weight_mask is not None:
        mask = weight_mask.flatten(1).double()
        if place.bias is not None:
            bias_mask = masks[place.bias]
            assert bias_mask is not None
            mask = torch.cat([mask, bias_mask.double()[:, None]], 1)
    if isinstance(place.module, nn.Linear):
        return _dense(inputs, delta, mask, bias, grid)
    written = torch.bmm(delta.flatten(2), _patches(place.module, inputs).transpose(1, 2))
    if bias:
        written = torch.cat([written, delta.flatten(2).sum(2)[:, :, None]], 2)
    written = written.double()
    if mask is not None:
        written = written * mask
    kept = float(written[0].numel()) if mask is None else mask.sum()
    squares = written.flatten(1).square().sum(1)
    return _Kernel(written, squares, torch.ones_like(squares) * kept, bias)


def _dense(inputs: Tensor, delta: Tensor, mask: Tensor | None, bias: bool, grid: UnitGrid) -> _Dense:
    x = functional.pad(inputs.double(), (0, 1), value=1.0) if bias else inputs.double()
    delta, outputs = delta.double(), delta.shape[1]
    norm = x.square().sum(1, keepdim=True).sqrt()
    length = (delta.square().sum(1, keepdim=True).sqrt() * norm * grid.steps).clamp(max=grid.largest)
    balanced = length.mul(math.sqrt(x.shape[1] / outputs)).sqrt()
    most = balanced.clamp(min=1.0, max=grid.largest / (64 * math.sqrt(outputs)))
    power = torch.frexp(most / norm.clamp(min=TINY))[1].sub(1).clamp(-500, 500)  # 2^power·‖x‖ ≤ most
    scale = power_of_two(power)
    whole = x.mul(scale).round_()
    finite = whole.isfinite().all(1, keepdim=True)
    whole = whole.where(finite, 0.0)
    scaled = (delta / scale).where(finite, torch.nan)  # a record without a norm gets the factor 0
    lengths = whole.square().sum(1, keepdim=True) if mask is None else whole.square() @ mask.t()
    squares = (scaled.square() * lengths).sum(1)
    rounding = lengths.sum(1) * (outputs if mask is None else 1)
    return _Dense(whole, scaled, squares, rounding, mask, bias)


def _patches(module: nn.Conv2d, inputs: Tensor) -> Tensor:
    """(records, kernel, positions)."""
    kernel, stride, padding, dilation = module.kernel_size, module.stride, module.padding, module.dilation
    assert not isinstance(padding, str)
    return functional.unfold(inputs, kernel, dilation=dilation, padding=padding, stride=stride)


def find_ghosts(model: FlatModel) -> Ghosts | None:
    """The layers of a model that has no other parameters than theirs; None if it is not certain to be one.

    A module may do anything in `forward`, so the layers are taken for the whole model only if their gradients are those
    of single records put together, at random weights and inputs.
    """
    names = {name: number for number, name in enumerate(model.names)}
    places, found = [], 0
    for name, module in model.module.named_modules():
        if not _is_layer(module):
            continue
        prefix = f"{name}." if name else ""
        weight, bias = names.get(f"{prefix}weight"), names.get(f"{prefix}bias")
        if weight is None or (bias is None) != (module.bias is None):
            return None
        places.append(_Place(module, weight, bias))
        found += 1 + (bias is not None)
    if not places or found != len(model.names):
        return None
    ghosts = Ghosts(model, places)
    try:
        return ghosts if _same(model, ghosts) else None
    except Exception:  # a user's module may raise anything when it meets other inputs than its own
        return None


def _is_layer(module: nn.Module) -> bool:
    if type(module) is nn.Linear:
        return True
    return (
        type(module) is nn.Conv2d
        and module.groups == 1
        and module.padding_mode == "zeros"
        and not isinstance(module.padding, str)
    )


def _same(model: FlatModel, ghosts: Ghosts) -> bool:
    """Whether every record's gradient is what the layers give for it in a batch with another one."""
    inputs, targets = model.example
    if not inputs.is_floating_point():
        return False
    generator = torch.Generator().manual_seed(0)
    x = torch.randn((2, *inputs.shape[1:]), generator=generator).to(inputs.device)
    y = targets[[0, len(targets) - 1]]
    noise = torch.randn(model.size, generator=generator).to(model.initial.device)
    weights = model.initial + 0.05 * noise
    model.module.train()
    for number in range(2):
        share = torch.zeros(2, device=x.device)
        share[number] = 1
        found = ghosts.gradients(weights, x, y, share)
        alone = _alone(model, weights, x[number : number + 1], y[number : number + 1])
        scale = max(float(g.abs().max()) for g in alone)
        if scale == 0 or any(float((a - b).abs().max()) > 1e-4 * scale for a, b in zip(alone, found, strict=True)):
            return False
    return True


def _alone(model: FlatModel, weights: Tensor, inputs: Tensor, targets: Tensor) -> list[Tensor]:
    """The gradient of one record by autograd."""
    with torch.enable_grad():
        params = [value.detach().requires_grad_() for value in model.split(weights)]
        key = torch.zeros((), dtype=torch.int64, device=weights.device)
        share = torch.ones(1, device=weights.device)
        loss = model.mean_loss(dict(zip(model.names, params, strict=True)), inputs, targets, share, key)
        return list(torch.autograd.grad(loss, params))
