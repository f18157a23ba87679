"""Linear models: all clients of a block at once, without autograd, with the same bits in every cohort.

Plain SGD moves the weights W (outputs, columns) of a linear layer along the client's records. Of client k with the
records X (records, columns), targets y and batches with the shares s_tr,

    W_t = W − η·A_tᵀ·X,   A_{t+1} = A_t + s_t∘ρ(Z_t, y),   Z_t = X·W_tᵀ = X·Wᵀ − η·(X·Xᵀ)·A_t,

where ρ is the derivative of a record's loss by its outputs. So a round costs one product with X in the beginning, one
in the end, and steps on (records, outputs) numbers between them; X·Xᵀ stays the same in all rounds.

**The same bits in every cohort, on every machine.** All factors of products are rounded to whole numbers: a row of X to
22 bits or so of its largest entry, and the entries of X·Xᵀ, A and W likewise. Then every product and every sum is a
whole number below 2⁵³, which float64 has exactly in any order. All else is done entry by entry (`units.rounding`).
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from laconic.data.population import Population, gather
from laconic.guard.noise import MEAN_BITS, SAFE
from laconic.train.batches import Schedule
from laconic.train.engines.engine import Engine, Task, Updates, on_threads
from laconic.train.flat import FlatModel
from laconic.train.local import LocalSGD
from laconic.train.losses import mean_squared_error
from laconic.train.units.linear import Layer
from laconic.train.units.rounding import power_of_two

MOST_RECORDS = 64
"""Clients with more records are trained by another engine: X·Xᵀ would be large."""
_BLOCK, _PIECE = 1 << 21, 1 << 19
"""Numbers of records in a block of clients, whose steps are done at once, and in a product: that stays in a cache."""
_RECORDS = 1 << 14
"""Records in a block, at most: there is a number for each of them in every step."""
_KEPT_BYTES = 1 << 26
"""Blocks are kept from round to round up to so many bytes; their records, too, if those of all take half of it."""
_SMALLEST = -100
"""The exponent of the smallest unit of a row: float32 has no inverse of much smaller ones."""


class LinearCohort:
    """Blocks of clients of a linear model; clients with many records are left to another engine.

    Args:
        model: what is trained.
        layer: the same as one linear layer.
        others: makes the engine for clients with more than `MOST_RECORDS` records.
        chunk: clients at once; None: as many as stay in a processor's cache.
    """

    name = "linear"

    def __init__(
        self, model: FlatModel, layer: Layer, others: Callable[[], Engine], *, chunk: int | None = None
    ) -> None:
        self._model, self._layer, self._chunk = model, layer, chunk
        self._make_others = others
        self._others: Engine | None = None
        self._population: Population | None = None
        self._sizes: dict[int, int] = {}
        self._blocks: OrderedDict[bytes, _Block] = OrderedDict()
        self._block_bytes = 0

    @property
    def at_once(self) -> int:
        return self._at_once(len(self._model.example[1]))

    def _at_once(self, width: int) -> int:
        return self._chunk or max(1, min(_BLOCK // (width * self._layer.inputs), _RECORDS // width))

    def updates(self, task: Task) -> Iterator[Updates]:
        """The updates of blocks of clients with about equally many records; then those of clients with many."""
        if task.population is not self._population:  # studies ask the same engine of other records, too
            self._population, self._sizes, self._block_bytes = task.population, {}, 0
            self._blocks.clear()
        sizes = self._sizes_of(task)
        blocks, many = self._cut(task.clients, sizes), task.clients[sizes > MOST_RECORDS]
        with on_threads(1):  # others would wait, and be busy with that, at every one of many short operations
            for clients in task.own(iter(blocks)):
                yield task.then(self._trained(task, clients))
        if len(many):
            self._others = self._others or self._make_others()
            first, turn = task.part
            yield from self._others.updates(replace(task, clients=many, part=((first - len(blocks)) % turn, turn)))

    def _sizes_of(self, task: Task) -> np.ndarray:
        """How many records each client holds: asked once."""
        known, clients = self._sizes, task.clients.tolist()
        for client in clients:
            if client not in known:
                known[client] = task.population.size(client)
        return np.fromiter(map(known.__getitem__, clients), np.int64, len(clients))

    def _cut(self, clients: np.ndarray, sizes: np.ndarray) -> list[np.ndarray]:
        """Clients in blocks, those with up to 4, 8, 16, 32 and 64 records apart: little is padded."""
        blocks: list[np.ndarray] = []
        least = 0
        for width in (4, 8, 16, 32, MOST_RECORDS):
            some = (sizes > least) & (sizes <= width)
            least = width
            if some.any():
                at_once = self._at_once(int(sizes[some].max()))
                blocks += np.array_split(clients[some], -(-int(some.sum()) // at_once))
        return blocks

    def _prepared(self, task: Task, clients: np.ndarray) -> _Job:
        """The block of these clients with their records and batches; what does not change is kept."""
        key = clients.tobytes()
        with task.clock("data"):
            block = self._blocks.get(key)
            if block is None:
                inputs, targets, sizes = _gathered(task, clients)
                block = _Block.of(self._layer, clients, sizes, inputs, targets)
                if 4 * len(task.clients) * inputs[0].numel() <= _KEPT_BYTES // 2:
                    block.inputs = inputs
                self._keep(key, block)
            else:
                self._blocks.move_to_end(key)
                inputs = _gathered(task, clients)[0] if block.inputs is None else block.inputs
            return _Job(block, inputs, _shares(task, block))

    def _keep(self, key: bytes, block: _Block) -> None:
        self._blocks[key] = block
        self._block_bytes += block.num_bytes
        while self._block_bytes > _KEPT_BYTES and len(self._blocks) > 1:
            self._block_bytes -= self._blocks.popitem(last=False)[1].num_bytes

    def _trained(self, task: Task, clients: np.ndarray) -> TrainedLinear:
        assert isinstance(task.train, LocalSGD)
        job, start = self._prepared(task, clients), self._layer.matrix(task.weights).double()
        moved = _stepped(self._layer, job, start, task.train.local_lr)
        return TrainedLinear(self._layer, job.block, job.inputs, moved)


def _gathered(task: Task, clients: np.ndarray) -> tuple[Tensor, Tensor, np.ndarray]:
    """Inputs (clients, records, columns) with zeros behind a client's own, targets, and how many each client has."""
    inputs, targets, sizes = gather(task.population, clients.tolist(), task.weights.device)
    behind = np.arange(inputs.shape[1]) >= sizes[:, None]
    if behind.any():
        inputs[torch.from_numpy(behind)] = 0
    return inputs.flatten(2), targets, sizes


@dataclass
class _Block:
    """What does not change from round to round of some clients.

    `unit` (clients, records, 1) is what one of a row's whole numbers is, a power of two, and they are up to 2^`bits`.
    `kernel` (clients, records, records) is X·Xᵀ, with 1 for the bias, in whole numbers of `kernel_unit` (clients, 1,
    1). `inputs` are there where they are kept.
    """

    clients: np.ndarray
    sizes: np.ndarray
    targets: Tensor
    bits: int
    unit: Tensor
    kernel: Tensor
    kernel_unit: Tensor
    inputs: Tensor | None = None

    @classmethod
    def of(cls, layer: Layer, clients: np.ndarray, sizes: np.ndarray, inputs: Tensor, targets: Tensor) -> _Block:
        bits = min(22, (52 - math.ceil(math.log2(layer.inputs + 1))) // 2)
        unit = _unit_of(inputs, (2,), bits, least=_SMALLEST)
        products = torch.empty(*inputs.shape[:2], inputs.shape[1], dtype=torch.float64)
        for piece in _pieces(inputs):
            rows, units = _whole(inputs[piece], unit[piece]), unit[piece]
            products[piece] = torch.bmm(rows, rows.transpose(1, 2)).mul_(units).mul_(units.transpose(1, 2))
        if layer.bias:
            products += 1.0
        kernel_unit = _unit_of(products, (1, 2), _step_bits(inputs.shape[1]))
        return cls(clients, sizes, targets, bits, unit, products.div_(kernel_unit).round_(), kernel_unit)

    @property
    def num_bytes(self) -> int:
        kept = (self.targets, self.unit, self.kernel, self.inputs)
        return sum(values.nbytes for values in kept if values is not None)


def _unit_of(values: Tensor, axes: tuple[int, ...], bits: int, least: int = -900) -> Tensor:
    """A power of two, of which the largest entries along the axes are up to 2^bits; they stay as axes of length 1."""
    _, exponent = torch.frexp(values.abs().amax(axes, keepdim=True))
    return power_of_two(exponent.clamp(min=least) - bits)


def _step_bits(width: int) -> int:
    """Of each factor in a step's product, which adds up so many records."""
    return (52 - _width_bits(width)) // 2


def _width_bits(width: int) -> int:
    """log₂ of the records that products add up, rounded up: alike for clients that `_cut` may put into one block."""
    return max(2, math.ceil(math.log2(width)))


def _whole(inputs: Tensor, unit: Tensor) -> Tensor:
    """X̂ in float64. float32 has whole numbers up to 2²⁴, and multiplies by a power of two exactly."""
    return (inputs * unit.reciprocal().float()).round_().double()


def _pieces(inputs: Tensor) -> list[slice]:
    """Some clients (clients, records, columns) at a time."""
    at_once = max(1, _PIECE // inputs[0].numel())
    return [slice(start, start + at_once) for start in range(0, len(inputs), at_once)]


@dataclass(frozen=True)
class _Job:
    block: _Block
    inputs: Tensor
    shares: _Shares


@dataclass(frozen=True)
class _Shares:
    """How much each record counts (clients, records, 1) in so many steps: in each, or alike in all."""

    steps: int
    alike: Tensor | None
    each: Tensor | None

    def of(self, step: int) -> Tensor:
        if self.each is not None:
            return self.each[step]
        assert self.alike is not None
        return self.alike

    def in_units(self, bits: int) -> tuple[_Shares, Tensor]:
        """The same in units of each client, of which its largest share is up to 2^bits; and these (clients, 1, 1)."""
        if self.each is None:
            unit = _unit_of(self.of(0), (1, 2), bits)
            return _Shares(self.steps, self.of(0) / unit, None), unit
        unit = _unit_of(self.each, (0, 2, 3), bits)[0]
        return _Shares(self.steps, None, self.each / unit), unit


def _shares(task: Task, block: _Block) -> _Shares:
    """The batches of clients as shares of their records. A stream is asked for only where a batch is drawn."""
    train, sizes, width = task.train, block.sizes, block.kernel.shape[1]
    assert isinstance(train, LocalSGD)
    real = torch.from_numpy(np.arange(width) < sizes[:, None])
    whole = real.double().div_(torch.from_numpy(sizes)[:, None])[:, :, None]
    steps = train.steps_of(sizes)
    drawn = np.full(len(sizes), True) if train.balance != "none" else train.batch_of(sizes) < sizes
    if not drawn.any() and bool((steps == steps[0]).all()):
        return _Shares(int(steps[0]), whole, None)
    last = torch.from_numpy(np.where(drawn, 0, steps))
    others = np.flatnonzero(drawn)
    schedule = None
    if len(others):
        schedule, _ = task.batches(block.clients[others], sizes[others], block.targets[torch.from_numpy(others)])
    count = max(int(last.max()), 0 if schedule is None else schedule.indices.shape[1])
    each = whole * (torch.arange(count)[:, None] < last)[:, :, None, None]
    if schedule is not None:
        each[: schedule.indices.shape[1], torch.from_numpy(others), :, 0] = _scattered(schedule, width)
    return _Shares(count, None, each)


def _scattered(schedule: Schedule, width: int) -> Tensor:
    """(steps, clients, records): how much each record counts. One that is in a batch twice counts twice."""
    indices = torch.from_numpy(schedule.indices)
    if schedule.shares is not None:
        values = torch.from_numpy(schedule.shares).double()
    else:
        counts = torch.from_numpy(schedule.counts)[:, :, None]
        values = (torch.arange(indices.shape[2]) < counts).double().div_(counts.clamp(min=1))
    found = torch.zeros(*indices.shape[:2], width, dtype=torch.float64)
    return found.scatter_add_(2, indices, values).transpose(0, 1)


def _stepped(layer: Layer, job: _Job, start: Tensor, lr: float) -> Tensor:
    """−η·A (clients, records, outputs) after all steps."""
    block = job.block
    outputs = _outputs(layer, job, start)
    targets = block.targets.reshape(len(outputs) * outputs.shape[1], -1)
    bits = _step_bits(outputs.shape[1])
    shares, unit = job.shares.in_units(bits)  # |ρ| is 1 at most, unless the loss is of squares
    moved = torch.zeros_like(outputs)
    for step in range(shares.steps):
        change = layer.residuals(outputs.view(len(targets), -1), targets).view_as(outputs).mul_(shares.of(step))
        if layer.loss is mean_squared_error:
            change.mul_(unit)
            own = _unit_of(change, (1, 2), bits)
            change = change.div_(own).round_()
        else:
            own, change = unit, change.round_()
        factor = own * -lr
        moved += change * factor
        if step + 1 < shares.steps:
            outputs += torch.bmm(block.kernel, change).mul_(factor * block.kernel_unit)
    return moved


def _outputs(layer: Layer, job: _Job, start: Tensor) -> Tensor:
    """X·Wᵀ (clients, records, outputs)."""
    block, inputs = job.block, job.inputs
    count, width, columns = inputs.shape
    largest = float(start[:columns].abs().max())
    room = 52 - block.bits - math.ceil(math.log2(columns + 1))
    shift = room - (math.frexp(largest)[1] if math.isfinite(largest) else 0)
    weights = start[:columns].mul(2.0**shift).round_().t().contiguous()
    outputs = torch.empty(count, width, layer.outputs, dtype=torch.float64)
    for piece in _pieces(inputs):
        rows = _whole(inputs[piece], block.unit[piece]).view(-1, columns)
        # So turned, the product of a tall and a narrow matrix is several times as fast.
        outputs[piece] = (weights @ rows.t()).t().view(-1, width, layer.outputs)
    outputs *= block.unit * 2.0**-shift
    return outputs.add_(start[columns:]) if layer.bias else outputs


@dataclass(frozen=True)
class TrainedLinear:
    """A block's clients after their steps: `moved` is −η·A. Updates are multiplied out where they are asked for."""

    layer: Layer
    block: _Block
    inputs: Tensor
    moved: Tensor

    @property
    def clients(self) -> np.ndarray:
        return self.block.clients

    @property
    def num_records(self) -> np.ndarray:
        return self.block.sizes

    @property
    def values(self) -> Tensor:
        return self.some(slice(None))

    def some(self, rows: slice) -> Tensor:
        """The updates of some of the clients, (clients, n)."""
        places = range(len(self.clients))[rows]
        found = torch.empty(len(places), self.layer.size)
        for piece, weights, bias in self._products(self.moved, places.start, places.stop):
            own = slice(piece.start - places.start, piece.stop - places.start)
            found[own, : weights[0].numel()] = weights.flatten(1)
            found[own, weights[0].numel() :] = bias
        return found

    def weighted_sum(self, counts: Tensor) -> Tensor:
        return self._sum(self.moved * counts.double()[:, None, None], lambda part: part.sum(0)).float()

    def clipped_sum(self, clip_norm: float, units: float | None) -> Tensor:
        """Σ_k min(1, S/‖Δw_k‖)·Δw_k, (n,); with `units` on the grid of integer noise, as `Noise.terms` puts it there.

        Entries are cut towards zero, which makes no vector longer. `_norms` are no less than those of what is cut but
        for the roundings of float64, and S is lowered by 2⁻²⁰ for these.
        """
        norms, target = self._norms(), clip_norm * SAFE
        finite = norms.isfinite()
        factors = (target / norms.clamp(min=target)).where(finite, 0.0)
        clipped = self.moved * factors[:, None, None]
        without = None if bool(finite.all()) else ~finite
        if units is None:
            return self._sum(clipped, lambda part: part.sum(0), without).float()
        steps = units * 2**MEAN_BITS
        exact = torch.float32 if clip_norm * steps * len(clipped) < 2**24 else torch.float64

        def added(part: Tensor) -> Tensor:
            np.trunc(part.numpy(), out=part.numpy())  # torch.trunc() takes twenty times as long
            return part.sum(0, dtype=exact)

        return self._sum(clipped.mul_(steps), added, without).long()

    def _norms(self) -> Tensor:
        """‖Δw_k‖ or a little more, (clients,): at least the norm of what float32 makes of it.

        ‖Δw‖² = Σ_rs (a_r·a_s)(x_r·x_s). Entries of X·Xᵀ are off by half a unit, which adds (Σ‖a_r‖)² times that; those
        of X̂ by half of theirs, which adds Σ‖a_r‖·√columns times that to the norm. A product of float32 with k records
        is off by (k + 2)·2⁻²⁴·Σ‖a_r‖·‖x_r‖ at most.
        """
        block, moved = self.block, self.moved
        squares = torch.bmm(block.kernel, moved).mul_(moved).sum((1, 2))
        lengths = moved.square().sum(2).sqrt_()
        norms = (squares + lengths.sum(1).square() / 2).clamp_(min=0.0).mul_(block.kernel_unit[:, 0, 0]).sqrt_()
        rows = (block.kernel.diagonal(dim1=1, dim2=2) + 1).mul_(block.kernel_unit[:, 0]).sqrt_()
        rows.mul_(torch.from_numpy(block.sizes + 2)[:, None] * 2.0**-24)
        rows.add_(block.unit[:, :, 0], alpha=math.sqrt(self.layer.inputs) / 2)
        return norms + (lengths * rows).sum(1)

    def _sum(self, moved: Tensor, add: Callable[[Tensor], Tensor], without: Tensor | None = None) -> Tensor:
        """(n,) float64: the sum over the clients but some, in float32 within as many as `add` is given at once."""
        total = torch.zeros(self.layer.size, dtype=torch.float64)
        turned = moved.float().transpose(1, 2).contiguous()
        weights, bias = total[: self.layer.inputs * self.layer.outputs], total[-self.layer.outputs :]
        for piece in _pieces(self.inputs):
            parts = torch.bmm(turned[piece], self.inputs[piece])
            if without is not None:
                parts[without[piece]] = 0
            weights += add(parts).flatten()
        if self.layer.bias:
            bias += add(turned.sum(2) if without is None else turned.sum(2).where(~without[:, None], 0.0))
        return total

    def _products(self, moved: Tensor, first: int, end: int) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """(some clients, Aᵀ·X (clients, outputs, columns), Σ A for the bias (clients, outputs)), exact but for A."""
        block = self.block
        bits = 52 - block.bits - _width_bits(moved.shape[1])
        for piece in _pieces(self.inputs):
            piece = slice(max(first, piece.start), min(end, piece.stop, len(moved)))
            if piece.start >= piece.stop:
                continue
            scaled = moved[piece] * block.unit[piece]
            unit = _unit_of(scaled, (1, 2), bits)
            rows = _whole(self.inputs[piece], block.unit[piece])
            weights = torch.bmm(scaled.div_(unit).round_().transpose(1, 2), rows).mul_(unit)
            yield piece, weights, _added(moved[piece]) if self.layer.bias else moved[piece, 0, :0]


def _added(moved: Tensor) -> Tensor:
    """Σ over the records, one after another."""
    total = torch.zeros_like(moved[:, 0])
    for record in range(moved.shape[1]):
        total += moved[:, record]
    return total
