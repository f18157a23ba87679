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

from laconic.train.engines.engine import products_in
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
        return self._joined([part.total(factor) for part in parts]).neg_()

    def gradients(self, weights: Tensor, inputs: Tensor, targets: Tensor, share: Tensor) -> Tensor:
        """The sum of the gradients (n,), without a clip: for comparison."""
        parts = []
        for place, (x, delta) in zip(self._places, self._passed(weights, inputs, targets, share), strict=True):
            rows = x[:, :, None] if isinstance(place.module, nn.Linear) else _patches(place.module, x)
            flat = delta.flatten(2) if delta.ndim > 2 else delta[:, :, None]
            found = [torch.einsum("bol,bkl->ok", flat, rows), flat.sum((0, 2))]
            parts.append(found[: 1 + (place.bias is not None)])
        return self._joined(parts)

    def _joined(self, parts: list[list[Tensor]]) -> Tensor:
        """The flat vector of what every layer has for its weight and its bias."""
        found: list[Tensor] = [torch.empty(0)] * len(self._model.shapes)
        for place, part in zip(self._places, parts, strict=True):
            for number, values in zip((place.weight, place.bias), part, strict=False):
                if number is not None:
                    found[number] = values
        return self._model.join(found)

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

    def total(self, factor: Tensor) -> list[Tensor]:
        found = _on_grid(self.scaled, factor).t() @ self.whole
        if self.mask is not None:
            found.mul_(self.mask)
        return [found[:, :-1], found[:, -1]] if self.bias else [found]


@dataclass(frozen=True)
class _Kernel:
    """A convolution's gradients, of the kernel and of the bias (records, weights)."""

    written: list[Tensor]
    squares: Tensor
    rounding: Tensor

    def total(self, factor: Tensor) -> list[Tensor]:
        return [_on_grid(gradients, factor).sum(0) for gradients in self.written]


def _on_grid(values: Tensor, factor: Tensor) -> Tensor:
    """round(f·v) in float64, in as few passes over the values as possible. A value is NaN or infinite only where the
    factor is 0; the product is NaN then, and becomes 0."""
    return torch.mul(values, factor).round_().nan_to_num_(0.0)


def _part(
    place: _Place, inputs: Tensor, delta: Tensor, masks: Sequence[Tensor | None], grid: UnitGrid
) -> _Dense | _Kernel:
    both = [masks[number] for number in (place.weight, place.bias) if number is not None]
    kept = [mask for mask in both if mask is not None]
    if isinstance(place.module, nn.Linear):
        mask = torch.cat([some.reshape(delta.shape[1], -1) for some in kept], 1).double() if kept else None
        return _dense(inputs, delta, mask, place.bias is not None, grid)
    delta = delta.flatten(2)
    written = [torch.bmm(delta, _patches(place.module, inputs).transpose(1, 2)).flatten(1)]
    if place.bias is not None:
        written.append(delta.sum(2))
    for gradients, some in zip(written, kept, strict=False):
        gradients.mul_(some.flatten())
    squares = torch.stack([_norms(gradients).square() for gradients in written]).sum(0)
    count = sum(some.double().sum() for some in kept) if kept else sum(gradients.shape[1] for gradients in written)
    return _Kernel(written, squares, torch.ones_like(squares) * count)


def _dense(inputs: Tensor, delta: Tensor, mask: Tensor | None, bias: bool, grid: UnitGrid) -> _Dense:
    x = functional.pad(inputs, (0, 1), value=1.0).double() if bias else inputs.double()
    delta, outputs = delta.double(), delta.shape[1]
    norm = _norms(x)
    length = (_norms(delta) * norm * grid.steps).clamp_(max=grid.largest)
    balanced = length.mul_(math.sqrt(x.shape[1] / outputs)).sqrt_()
    most = balanced.clamp_(min=1.0, max=grid.largest / (64 * math.sqrt(outputs)))
    power = torch.frexp(most / norm.clamp(min=TINY))[1].sub(1).clamp_(-500, 500)  # 2^power·‖x‖ ≤ most
    scale = power_of_two(power)[:, None]
    whole = x.mul_(scale).round_().nan_to_num_(0.0, 0.0, 0.0)
    # A record without a norm gets the factor 0.
    scaled = delta.div_(scale).where(norm.isfinite()[:, None], torch.nan)
    if mask is None:
        lengths = _norms(whole).square_()
        return _Dense(whole, scaled, _norms(scaled).square_().mul_(lengths), lengths * outputs, mask, bias)
    kept = whole.square() @ mask.t()
    return _Dense(whole, scaled, scaled.square().mul_(kept).sum(1), kept.sum(1), mask, bias)


def _norms(rows: Tensor) -> Tensor:
    """(records,) in float64, where the squares of float32 neither overflow nor vanish."""
    found: Tensor = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)
    return found


def _patches(module: nn.Conv2d, inputs: Tensor) -> Tensor:
    """(records, kernel, positions). The records are taken for channels of one picture: of several pictures torch makes
    the patches one after another, with a kernel for each on a GPU."""
    kernel, stride, padding, dilation = module.kernel_size, module.stride, module.padding, module.dilation
    assert not isinstance(padding, str)
    one = inputs.reshape(1, -1, *inputs.shape[2:])
    found = functional.unfold(one, kernel, dilation=dilation, padding=padding, stride=stride)
    return found.view(len(inputs), -1, found.shape[2])


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
        # TF32 rounds a record's gradient to 10 bits, so the two would never be the same.
        with products_in("float32", model.initial.device):
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
        scale = float(alone.abs().max())
        if scale == 0 or not float((alone - found).abs().max()) <= 1e-4 * scale:
            return False
    return True


def _alone(model: FlatModel, weights: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
    """The gradient of one record by autograd, (n,)."""
    with torch.enable_grad():
        params = [value.detach().requires_grad_() for value in model.split(weights)]
        key = torch.zeros((), dtype=torch.int64, device=weights.device)
        share = torch.ones(1, device=weights.device)
        loss = model.mean_loss(dict(zip(model.names, params, strict=True)), inputs, targets, share, key)
        return model.join(torch.autograd.grad(loss, params))
