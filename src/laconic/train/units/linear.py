"""Units of one linear layer: the gradient of a record is an outer product, so it need not be written down.

With the residual ρ of a record, the derivative of its loss by the outputs, and its inputs x̂ = (x, 1), the gradient is
ρ·x̂ᵀ, of norm ‖ρ‖·‖x̂‖ (Goodfellow 2015). For a patient with several records it is Σ_r ρ_r·x̂_rᵀ, whose norm follows
from inner products: ‖g‖² = Σ_{r,r'} (ρ_r·ρ_r')(x̂_r·x̂_r'). Where a subset of the weights is kept, x̂ has another norm
for every output.

On the grid the layer's inputs are whole numbers X = 2^e·x̂ (`tables`), and the residuals become whole numbers by one
factor for each unit:

    s_r = −round(f_u·ρ_r),   C = Σ_r s_r·X_rᵀ,   f_u = min(F/2^e, (S·F − ½·Σ_r √(Σ_c q_rc²)) / n⁺_u).

q_rc is the norm of X_r over the weights of output c that are kept, and n⁺_u ≥ ‖Σ_r ρ_r·X_rᵀ‖. Rounding moves s_rc by ½
at most, so the unit's part of C by ½·Σ_r √(Σ_c q_rc²). So its norm is S·F at most.

The parts of a patient's records may nearly cancel, and would then be far longer than their sum. So n⁺_u is no less than
a 256th of the longest part: no s_r·X_r is longer than (2⁸ + ½)·S·F, and sums stay below 2⁵³ (`UnitSums.terms`).

All products and sums are of whole numbers, and exact: the forward pass, the norms of X, and C. The residual and f_u are
functions of the unit's own records, in operations that IEEE 754 rounds correctly. So C has the same bits for every
order, split and machine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from laconic.codecs.base import Codec, Identity
from laconic.codecs.subset import Subset
from laconic.data.population import Records
from laconic.models.networks import Squeeze
from laconic.plan import RoundPlan
from laconic.train.flat import FlatModel
from laconic.train.losses import HUBER, Loss, binary_cross_entropy, cross_entropy, huber, mean_squared_error
from laconic.train.units.groups import Groups
from laconic.train.units.rounding import TINY, UnitGrid, by_pieces, exponential, factors, norms, on_grid, whole_sum
from laconic.train.units.tables import WEIGHT_BITS, DenseTable, Table, table_of

_PAIR_BITS, _WRITTEN_BITS = 30, 20
CANCELLED_BITS = 8
"""The parts of a patient's records may be longer than their sum, by this many bits."""
_NUMBERS = 1 << 22
"""Numbers in gradients that are written down together, at most."""


@dataclass(frozen=True)
class Layer:
    """A model that is one linear layer: its sizes and its loss."""

    inputs: int
    outputs: int
    bias: bool
    loss: Loss

    @property
    def size(self) -> int:
        """How many weights it has."""
        return (self.inputs + self.bias) * self.outputs

    def matrix(self, weights: Tensor) -> Tensor:
        """(inputs and bias, outputs) from the flat weights."""
        return torch.cat([weights[: self.inputs * self.outputs].view(self.outputs, -1).t(), self._bias(weights)])

    def _bias(self, weights: Tensor) -> Tensor:
        return weights[self.inputs * self.outputs :].view(-1, self.outputs)

    def flat(self, matrix: Tensor) -> Tensor:
        """The inverse of `matrix`, of one or of several (count, inputs and bias, outputs)."""
        weights, bias = matrix[..., : self.inputs, :], matrix[..., self.inputs :, :]
        return torch.cat([weights.transpose(-1, -2).flatten(-2), bias.flatten(-2)], -1)

    def residuals(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The derivative of every record's loss by its outputs, (records, outputs)."""
        if self.loss is cross_entropy:
            powers = exponential(outputs - outputs.amax(1, keepdim=True))
            shares = powers.div_(whole_sum(powers, 1, 40)[:, None])
            return shares.scatter_add_(1, targets, torch.full_like(shares[:, :1], -1.0))
        targets = targets.reshape(outputs.shape).double()
        if self.loss is binary_cross_entropy:
            power = exponential(-outputs.abs())
            return power.where(outputs < 0, 1.0).div_(1 + power).sub_(targets)
        errors = outputs - targets
        if self.loss is huber:
            errors.clamp_(-HUBER, HUBER)
        return errors.mul_(2 / self.outputs)


def find_layer(model: FlatModel) -> Layer | None:
    """The model as one linear layer, if it is one with a loss of the library's own."""
    parts = list(model.module.children()) if type(model.module) is nn.Sequential else [model.module]
    flattened = any(type(part) is nn.Flatten and (part.start_dim, part.end_dim) == (1, -1) for part in parts)
    squeezed = bool(parts) and isinstance(parts[-1], Squeeze)
    plain = [part for part in parts if not isinstance(part, nn.Flatten | nn.Identity | Squeeze)]
    inputs, targets = model.example
    if len(plain) != 1 or not (flattened or inputs.ndim == 2):
        return None
    (layer,) = plain
    if not isinstance(layer, nn.Linear) or type(layer) is not nn.Linear:  # a subclass may compute anything
        return None
    bias = layer.bias is not None
    if model.size != sum(p.numel() for p in layer.parameters()) or model.lengths[0] != layer.weight.numel():
        return None
    if layer.in_features != math.prod(inputs.shape[1:]):
        return None
    flat_outputs = squeezed and layer.out_features == 1
    values = targets.shape[1:] == ((layer.out_features,) if not flat_outputs else ())
    fits: dict[Loss, bool] = {
        cross_entropy: not flat_outputs and not targets.is_floating_point() and targets.ndim == 1,
        binary_cross_entropy: flat_outputs,
        mean_squared_error: values,
        huber: values,
    }
    if not fits.get(model.loss, False):
        return None
    return Layer(layer.in_features, layer.out_features, bias, model.loss)


class LinearUnits:
    """One owner's records for a linear layer, prepared once for many rounds."""

    def __init__(self, layer: Layer, records: Records, groups: Groups, shares: Tensor | None) -> None:
        self._layer, self._records, self._groups = layer, records, groups
        self._targets = records.targets.reshape(len(records.targets), -1)
        self._shares = None if shares is None else shares.double()[:, None]
        self._tables: dict[int, Table] = {}
        self._encoded: tuple[tuple[object, ...], Table] | None = None
        self._lengths: tuple[Table, Tensor | None, _Lengths] | None = None
        self._shaped_by: tuple[tuple[Codec, int], dict[str, Tensor], Table | None] | None = None

    def terms(self, weights: Tensor, drawn: Tensor | None, codec: Codec, plan: RoundPlan, grid: UnitGrid) -> Tensor:
        """C as int64, (m,)."""
        bits, size = fraction_bits(grid), weights.numel()
        table = self._table(bits)
        residuals = self._residuals(table, weights, bits)
        if (shaped := self._shaped(codec, plan, bits)) is not None:
            sums, written = self._sums(shaped, None, residuals, drawn, grid, bits)
            total = self._layer.flat(sums).long()
        elif isinstance(codec, Identity | Subset):
            kept = None if isinstance(codec, Identity) else codec.kept(size, plan, weights.device)
            mask = None if kept is None else self._layer.matrix(_marks(size, kept))
            sums, written = self._sums(table, mask, residuals, drawn, grid, bits)
            flat = self._layer.flat(sums).long()
            total = flat if kept is None else flat[kept]
        elif self._layer.outputs == 1:
            encoded = self._code_table(table, bits, codec, plan)
            sums, written = self._sums(encoded, None, residuals, drawn, grid, bits)
            total = sums[:, 0].long()
        else:
            total = torch.zeros(codec.code_size(size), dtype=torch.int64, device=weights.device)
            written = self._groups.all_units(drawn)
        return total + self._written(written, table, residuals, codec, plan, grid, bits, total)

    def _table(self, bits: int) -> Table:
        """The records with so many bits after the point; those of the last grid are kept."""
        if bits not in self._tables:
            self._tables = {bits: table_of(self._records.inputs, bits, self._layer.bias)}
        return self._tables[bits]

    def _shaped(self, codec: Codec, plan: RoundPlan, bits: int) -> Table | None:
        """The records as a codec that acts on a layer's inputs makes them; None for another codec.

        Kept while they are the same: they follow from what clients were told, which does not change during training.
        """
        if self._shaped_by is not None and self._shaped_by[0] == (codec, bits) and _same(self._shaped_by[1], plan):
            return self._shaped_by[2]
        inputs = codec.of_inputs(self._records.inputs, plan) if self._layer.bias else None
        shaped = None if inputs is None else table_of(inputs, bits, False)
        self._shaped_by = (codec, bits), dict(plan.shared), shaped
        return shaped

    def _code_table(self, table: Table, bits: int, codec: Codec, plan: RoundPlan) -> Table:
        """Of a single output: the code of ρ·X is ρ·(code of X), so the records are encoded once for many rounds."""
        key = (bits, codec, plan.run_seed, plan.round_seed if codec.new_each_round else 0)
        if self._encoded is None or self._encoded[0] != key:
            count = len(self._records.targets)
            width = codec.code_size(self._layer.inputs + self._layer.bias)
            rows = torch.empty(count, width, dtype=torch.float64, device=self._records.targets.device)
            for piece in _pieces(count, max(1, _NUMBERS // (self._layer.inputs + 1))):
                some = table.some(torch.arange(count)[piece]).dense()
                rows[piece] = codec.encode_whole(some, plan).round_()
            self._encoded = key, DenseTable(rows, table.finite)
        return self._encoded[1]

    def _residuals(self, table: Table, weights: Tensor, bits: int) -> Tensor:
        """ρ (records, outputs); NaN where a record has none. The forward pass is exact."""
        matrix = self._layer.matrix(weights).double()
        shift = WEIGHT_BITS - math.frexp(float(matrix.abs().max()))[1]
        products = table.times(matrix.mul(2.0**shift).round_())
        others = [self._targets, table.finite] + ([] if self._shares is None else [self._shares])

        def residuals(products: Tensor, targets: Tensor, finite: Tensor, *shares: Tensor) -> Tensor:
            found = self._layer.residuals(products * 2.0 ** -(shift + bits), targets)
            for share in shares:
                found = found.mul_(share)
            return found.where(finite & found.isfinite().all(1, keepdim=True), torch.nan)

        return by_pieces(residuals, products, *others)

    def _sums(
        self,
        table: Table,
        mask: Tensor | None,
        residuals: Tensor,
        drawn: Tensor | None,
        grid: UnitGrid,
        bits: int,
    ) -> tuple[Tensor, np.ndarray]:
        """(C as a matrix, the drawn units that are not in it because their gradient must be written down)."""
        groups, lengths, steps = self._groups, self._lengths_of(table, mask), grid.steps * 2.0**-bits
        chosen = [] if drawn is None else [drawn[:, None]]
        some_long, long = lengths.longer_than(grid.largest / 2)
        if some_long:
            chosen.append(~long)

        def factor_of(found: Tensor, rounding: Tensor, *chosen: Tensor) -> Tensor:
            factor = factors(found, steps, grid.largest - rounding)
            for some in chosen:
                factor = factor.where(some, 0.0)
            return factor

        def whole(rows: Tensor, factor: Tensor) -> Tensor:
            return rows.nan_to_num(0.0).mul_(factor).round_().neg_()

        def of_single(rows: Tensor, lengths: Tensor, rounding: Tensor, *chosen: Tensor) -> Tensor:
            return whole(rows, factor_of(norms(rows * lengths), rounding, *chosen))

        if groups.units is None:
            values = by_pieces(of_single, residuals, lengths.norms, lengths.rounding, *chosen)
        else:
            factor = by_pieces(factor_of, lengths.unit_norms(groups, residuals), lengths.rounding, *chosen)
            values = by_pieces(lambda rows, units: whole(rows, factor[units]), residuals, groups.units)
        written = np.flatnonzero(long.cpu().numpy()) if some_long else np.zeros(0, dtype=np.int64)
        if len(written) and drawn is not None:
            written = written[drawn.cpu().numpy()[written]]
        return table.transposed_times(values), written

    def _lengths_of(self, table: Table, mask: Tensor | None) -> _Lengths:
        """The norms of the rows; those of the last table and mask are kept."""
        if self._lengths is not None and self._lengths[0] is table:
            known = self._lengths[1]
            if mask is known or (mask is not None and known is not None and torch.equal(mask, known)):
                return self._lengths[2]
        self._lengths = table, mask, _Lengths(self._groups, table, mask, self._layer.outputs)
        return self._lengths[2]

    def _written(
        self,
        units: np.ndarray,
        table: Table,
        residuals: Tensor,
        codec: Codec,
        plan: RoundPlan,
        grid: UnitGrid,
        bits: int,
        like: Tensor,
    ) -> Tensor:
        """The sum of units whose gradients are written down, encoded, clipped and put on the grid."""
        total = torch.zeros_like(like)
        size = self._layer.size
        for piece in _pieces(len(units), max(1, _NUMBERS // size)):
            gradients, scales = self._gradients(units[piece], table, residuals)
            codes = codec.encode_whole(gradients, plan) * scales.mul_(-(2.0**-bits))
            total += on_grid(codes, grid).sum(0).long()
        return total

    def _gradients(self, units: np.ndarray, table: Table, residuals: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients as whole numbers up to 2^20 (units, n) and what one of them is (units, 1), from exact sums."""
        every, scales = [], []
        one = 2.0**_WRITTEN_BITS
        for unit in units.tolist():
            rows = self._groups.rows_of(unit).to(residuals.device)
            own = residuals[rows]
            largest = own.abs().max().clamp(min=TINY)  # NaN stays NaN, and makes the code zeros
            whole = table.some(rows.cpu()).dense().t() @ (own / largest * one).round_()
            most = whole.abs().max().clamp(min=1.0)
            every.append(self._layer.flat((whole / most * one).round_()))
            scale = most / one * largest / one
            scales.append(scale)
        return torch.stack(every), torch.stack(scales)[:, None]


def fraction_bits(grid: UnitGrid) -> int:
    """e: of the bits that a unit has on the grid, the residual gets eight more than twice this leaves."""
    return max(2, min(12, (math.frexp(grid.largest)[1] - 9) // 2))


def _same(told: dict[str, Tensor], plan: RoundPlan) -> bool:
    return told.keys() == plan.shared.keys() and all(torch.equal(told[name], plan.shared[name]) for name in told)


def _marks(size: int, kept: Tensor) -> Tensor:
    marks = torch.zeros(size, dtype=torch.float64, device=kept.device)
    marks[kept] = 1
    return marks


def _pieces(count: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]


class _Lengths:
    """Norms of the rows of a table, over the weights that are kept; and inner products within units."""

    def __init__(self, groups: Groups, table: Table, mask: Tensor | None, outputs: int) -> None:
        squares = table.squares(mask)
        self.norms = squares.sqrt()
        """q (records, outputs), or (records, 1) where it is the same for all outputs."""
        whole = squares.sum(1, keepdim=True) * (outputs if mask is None else 1)
        self.rounding = whole.sqrt().div_(2)
        """(units, 1): by how much rounding may lengthen what a unit contributes."""
        self._long = groups.large
        self._longest = float(self.rounding.max())
        if groups.units is None:
            return
        # Rounded up to whole numbers, so that the sum over a unit is exact.
        zeros = squares.new_zeros(groups.num_units)
        self.rounding = zeros.index_add(0, groups.units, self.rounding[:, 0].ceil())[:, None]
        self._longest = math.inf if bool(groups.large.any()) else float(self.rounding.max())
        first, second = groups.pairs()
        device = squares.device
        self._products = table.products(first, second, mask)
        self._products.mul_(torch.from_numpy(np.where(first == second, 1.0, 2.0)).to(device)[:, None])
        self._first, self._second = torch.from_numpy(first).to(device), torch.from_numpy(second).to(device)
        self._pair_units = groups.units[self._first]
        self._most_pairs = torch.from_numpy(groups.sizes.astype(np.float64) ** 2).to(device)[:, None]

    def longer_than(self, bound: float) -> tuple[bool, Tensor]:
        """Whether there are units whose gradients must be written down, and which, (units, 1): large ones, and those
        of which rounding is more than this."""
        if self._longest <= bound:
            return False, self._long
        return True, self._long | (self.rounding > bound)

    def unit_norms(self, groups: Groups, residuals: Tensor) -> Tensor:
        """n⁺ (units, 1): the norm of a unit's gradient, or a little more; not finite where a residual is not.

        In units of the largest norm of its records, the parts of ‖g‖² are rounded to 2⁻³⁰, and their sums are exact.
        n² roundings by 2⁻³¹ and outputs are added, and as much again for those of float64. It is no less than the
        largest of the parts over 2^`CANCELLED_BITS`.
        """
        assert groups.units is not None
        lengths = by_pieces(lambda rows, norms_of_rows: norms(rows * norms_of_rows), residuals, self.norms)[:, 0]
        largest = lengths.new_zeros(groups.num_units).scatter_reduce_(0, groups.units, lengths, "amax")
        one = 2.0 ** (_PAIR_BITS / 2) / largest.clamp(min=TINY)

        def parts(products: Tensor, first: Tensor, second: Tensor, units: Tensor) -> Tensor:
            scale = one[units, None]
            found = (residuals[first] * scale).mul_(residuals[second] * scale).mul_(products).round_()
            single: Tensor = found if found.shape[1] == 1 else found.sum(1, keepdim=True)
            return single

        whole = by_pieces(parts, self._products, self._first, self._second, self._pair_units)
        total = whole.new_zeros(groups.num_units).index_add_(0, self._pair_units, whole[:, 0])[:, None]
        rounding = self._most_pairs * residuals.shape[1]
        longest: Tensor = (total + rounding).clamp_(min=0.0).sqrt_().div_(one[:, None])
        return torch.maximum(longest, largest[:, None] * 2.0**-CANCELLED_BITS)
