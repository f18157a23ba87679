"""From raw records to outputs: what an exported file takes, as a module, and what the run itself makes of the same.

Before and after the model stand modules for pixels as bytes, the preprocessing of health records, and units. The LSTM
is a plain loop, which TorchScript takes; Laconic's own has its steps in an autograd function.

*Scattering* is without complex numbers, which ONNX has few operators for. The Fourier transform of an n × n picture is
two products with the matrices cos(2πjk/n) and sin(2πjk/n). A complex tensor is a pair (real, imaginary). Everything
else is as in `features/scattering.py`.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from laconic.data.ehr.features import CUT, Preprocessing
from laconic.data.ehr.outcome import Quantity
from laconic.data.ehr.schema import UNKNOWN, Numeric
from laconic.data.ehr.table import CodeLists, EhrTable, Levels
from laconic.export.trained import Trained
from laconic.features.base import with_head
from laconic.features.scattering import CHANNELS, Scattering, ScatteringFrontEnd
from laconic.models.lstm import LSTM


class PlainLSTM(nn.Module):
    """(batch, steps, inputs) → the last h, with the weights of an `LSTM`; gates i, f, c̃, o as Keras has them."""

    def __init__(self, original: LSTM) -> None:
        super().__init__()
        self.kernel, self.recurrent, self.bias = original.kernel, original.recurrent_kernel, original.bias
        self.hard = original.hard

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.zeros(x.shape[0], self.recurrent.shape[0], dtype=x.dtype)
        cell = torch.zeros_like(hidden)
        for step in range(x.shape[1]):
            gates = x[:, step] @ self.kernel + hidden @ self.recurrent + self.bias
            i, f, c, o = gates.chunk(4, -1)
            if self.hard:
                i, f, o = (0.2 * i + 0.5).clamp(0, 1), (0.2 * f + 0.5).clamp(0, 1), (0.2 * o + 0.5).clamp(0, 1)
            else:
                i, f, o = i.sigmoid(), f.sigmoid(), o.sigmoid()
            cell = f * cell + i * c.tanh()
            hidden = o * cell.tanh()
        return hidden


def with_plain_loops(module: nn.Module) -> nn.Module:
    """The module with every `LSTM` replaced by a scripted loop; the module itself is changed."""
    for name, child in module.named_children():
        if isinstance(child, LSTM):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # TorchScript will go some day
                setattr(module, name, torch.jit.script(PlainLSTM(child)))
        else:
            with_plain_loops(child)
    return module


Pair = tuple[Tensor, Tensor]


class RealScattering(nn.Module):
    """The same map as a `Scattering`, up to the rounding of floats."""

    def __init__(self, original: Scattering) -> None:
        super().__init__()
        self.original = original
        for name, height in (("fine", 1), ("half", 2)):
            for axis, size in zip(("rows", "columns"), original._padded, strict=True):
                angles = torch.arange(size // height, dtype=torch.float64)
                angles = 2 * math.pi / (size // height) * (angles[:, None] * angles[None])
                self.register_buffer(f"{name}_{axis}_cos", angles.cos().float())
                self.register_buffer(f"{name}_{axis}_sin", angles.sin().float())

    def forward(self, images: Tensor) -> Tensor:
        channels, height, width = images.shape[1:]
        x = self.original._mirrored(images.reshape(-1, height, width))
        spectrum = self._transformed((x[:, None], torch.zeros_like(x[:, None])), "fine", -1.0)
        fine = self._length(_times(spectrum, self.original._wavelets[0]), "fine")
        coarse = self._length(_every_other(spectrum, self.original._wavelets[1]), "half")
        again = self._transformed((fine, torch.zeros_like(fine)), "fine", -1.0)
        pairs = _every_other((again[0][:, :, None], again[1][:, :, None]), self.original._wavelets[1])
        second = self._length(pairs, "half").flatten(1, 2)
        blurred = self.original._blurred
        maps = torch.cat([blurred(x[:, None], 0), blurred(fine, 0), blurred(coarse, 1), blurred(second, 1)], dim=1)
        return maps.reshape(-1, channels * CHANNELS, *maps.shape[2:])

    def _transformed(self, pair: Pair, size: str, sign: float) -> Pair:
        """Σ_jk x_jk·e^(sign·2πi·(…)), rows and columns one after the other."""
        real, imaginary = pair
        cos, sin = self.get_buffer(f"{size}_columns_cos"), sign * self.get_buffer(f"{size}_columns_sin")
        real, imaginary = real @ cos - imaginary @ sin, real @ sin + imaginary @ cos
        cos, sin = self.get_buffer(f"{size}_rows_cos"), sign * self.get_buffer(f"{size}_rows_sin")
        return cos @ real - sin @ imaginary, cos @ imaginary + sin @ real

    def _length(self, spectrum: Pair, size: str) -> Tensor:
        """The absolute value of the inverse transform."""
        real, imaginary = self._transformed(spectrum, size, 1.0)
        count = real.shape[-1] * real.shape[-2]
        return (real.square() + imaginary.square()).sqrt() / count


def _times(pair: Pair, filters: Tensor) -> Pair:
    return pair[0] * filters, pair[1] * filters


def _every_other(pair: Pair, filters: Tensor) -> Pair:
    """As in `features/scattering.py`: the spectrum at every other pixel."""
    height, width = (size // 2 for size in filters.shape[-2:])
    quarters = [
        _times((pair[0][..., rows, columns], pair[1][..., rows, columns]), filters[..., rows, columns])
        for rows in (slice(0, height), slice(height, None))
        for columns in (slice(0, width), slice(width, None))
    ]
    real = (quarters[0][0] + quarters[1][0] + quarters[2][0] + quarters[3][0]) / 4
    imaginary = (quarters[0][1] + quarters[1][1] + quarters[2][1] + quarters[3][1]) / 4
    return real, imaginary


def without_complex_numbers(front_end: nn.Module) -> nn.Module:
    """The front end in real numbers; one that is not of scattering stays as it is."""
    for part in front_end.modules():
        if isinstance(part, ScatteringFrontEnd) and isinstance(part.transform, Scattering):
            part.transform = RealScattering(part.transform)  # type: ignore[assignment]
    return front_end


class Pixels(nn.Module):
    """Bytes from 0 to 255 → numbers from 0 to 1, then the model."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixels: Tensor) -> Tensor:
        found: Tensor = self.model(pixels.float() / 255)
        return found


class PreparedRecords(nn.Module):
    """Raw numbers, numbers of levels and codes → features as `Preprocessing` makes them → the model.

    A number is scaled, (x − shift)/scale, and cut at its bounds; one that is missing (NaN) is replaced, where the
    schema says by what, and marked, where it asks for that. A level is its place in the list of levels; anything else
    is Unknown. Codes are 0 or 1, one for each code of the vocabulary.
    """

    shift: Tensor
    scale: Tensor
    low: Tensor
    high: Tensor
    fill: Tensor
    gaps: list[int]
    counts: list[int]

    def __init__(self, preprocessing: Preprocessing, model: nn.Module) -> None:
        super().__init__()
        numbers = preprocessing.schema.numeric
        constants = torch.tensor([affine(entry) for entry in numbers], dtype=torch.float64).reshape(-1, 4)
        for place, name in enumerate(("shift", "scale", "low", "high")):
            self.register_buffer(name, constants[:, place].clone())
        self.register_buffer("fill", torch.tensor([_fill(entry) for entry in numbers], dtype=torch.float64))
        self.gaps = [place for place, entry in enumerate(numbers) if entry.gaps]
        self.counts = [len(levels) for levels in levels_of(preprocessing)]
        self.model = model

    def forward(self, numbers: Tensor, levels: Tensor, codes: Tensor) -> Tensor:
        numbers = numbers.double()
        missing = torch.isnan(numbers)
        numbers = torch.where(missing, self.fill, numbers)
        parts = [((numbers - self.shift) / self.scale).clamp(self.low, self.high).float()]
        if self.gaps:
            parts.append(missing[:, self.gaps].float())
        for place, count in enumerate(self.counts):
            known = (levels[:, place : place + 1] >= 0) & (levels[:, place : place + 1] < count)
            chosen = torch.where(known, levels[:, place : place + 1], count)
            parts.append((chosen == torch.arange(count + 1)).float())
        parts.append(codes)
        found: Tensor = self.model(torch.cat(parts, dim=1))
        return found


class InUnits(nn.Module):
    """A model whose outputs are a scaled quantity → the quantity in the unit of the table."""

    def __init__(self, model: nn.Module, quantity: Quantity) -> None:
        super().__init__()
        self.model = model
        self.quantity = quantity

    def forward(self, numbers: Tensor, levels: Tensor, codes: Tensor) -> Tensor:
        found: Tensor = self.quantity.restored(self.model(numbers, levels, codes))
        return found


def affine(number: Numeric) -> tuple[float, float, float, float]:
    """(shift, scale, lowest, highest) of a number's feature: see `data/ehr/features.py`."""
    if number.scale == "standard":
        return float(number.mean or 0), float(number.std or 1), -CUT, CUT
    low, high = float(number.min or 0), float(number.max or 0)
    return low, high - low, 0.0, 1.0


def _fill(number: Numeric) -> float:
    """What stands for a missing value; NaN if it stays missing."""
    if isinstance(number.fill, float | int):
        return float(number.fill)
    shift, scale, low, high = affine(number)
    return shift + scale * (low + high) / 2 if number.gaps else math.nan


def levels_of(preprocessing: Preprocessing) -> list[list[str]]:
    """The levels of each categorical column, in their order; Unknown comes after them."""
    return [[text for text in entry.levels or () if text != UNKNOWN] for entry in preprocessing.schema.categorical]


def codes_of(preprocessing: Preprocessing) -> list[str]:
    """'diagnoses:250' and so on, in their order."""
    return [f"{entry.name}:{code}" for entry in preprocessing.schema.codes for code in entry.vocabulary or ()]


Batch = tuple[Tensor, ...]


@dataclass(frozen=True)
class Raw:
    """`module` maps raw inputs to outputs. `draw` makes some of them, and `expected` is what the run says of them."""

    module: nn.Module
    inputs: dict[str, dict[str, Any]]
    """By name: type, shape after the batch, and what it means."""
    draw: Callable[[int], Batch]
    expected: Callable[[Batch], Tensor]


def raw_model(trained: Trained) -> Raw:
    """Front end and preprocessing are inside, as far as numbers go: texts stay outside."""
    reference = trained.head if trained.front_end is None else with_head(trained.front_end, trained.head)
    reference = reference.eval()
    module = _plain(trained)
    preprocessing = trained.preprocessing
    if preprocessing is not None:
        return _health_records(preprocessing, module, reference)
    record = trained.record
    shape = record.shape
    if record.pixels:
        about = {"type": "uint8", "shape": list(shape), "meaning": "pixels from 0 to 255: channels, height, width"}
        return _one_input(Pixels(module), about, _bytes(shape), lambda batch: reference(batch[0].float() / 255))
    if record.whole:
        about = {"type": "int64", "shape": list(shape), "meaning": "whole numbers, such as those of words"}
        return _one_input(module, about, _words(shape, trained), lambda batch: reference(*batch))
    what = "a picture, pixels" if record.pictures else "the features of a record"
    about = {"type": "float32", "shape": list(shape), "meaning": f"{what} on the scale of the run's own records"}
    return _one_input(module, about, _numbers(shape), lambda batch: reference(*batch))


def _plain(trained: Trained) -> nn.Module:
    """Front end and head in operations that other programs have."""
    head = with_plain_loops(copy.deepcopy(trained.head))
    if trained.front_end is None:
        return head.eval()
    return with_head(without_complex_numbers(copy.deepcopy(trained.front_end)), head).eval()


def _one_input(
    module: nn.Module, about: dict[str, Any], draw: Callable[[int], Tensor], expected: Callable[[Batch], Tensor]
) -> Raw:
    return Raw(module.eval(), {"inputs": about}, lambda count: (draw(count),), expected)


def _seeded(count: int) -> torch.Generator:
    return torch.Generator().manual_seed(count)


def _bytes(shape: tuple[int, ...]) -> Callable[[int], Tensor]:
    return lambda count: torch.randint(0, 256, (count, *shape), generator=_seeded(count)).to(torch.uint8)


def _numbers(shape: tuple[int, ...]) -> Callable[[int], Tensor]:
    return lambda count: torch.rand(count, *shape, generator=_seeded(count))


def _words(shape: tuple[int, ...], trained: Trained) -> Callable[[int], Tensor]:
    """Whole numbers that every table of words in the model knows."""
    tables = [part.num_embeddings for part in trained.head.modules() if isinstance(part, nn.Embedding)]
    least = min(tables, default=2)
    return lambda count: torch.randint(0, least, (count, *shape), generator=_seeded(count))


def _health_records(preprocessing: Preprocessing, module: nn.Module, reference: nn.Module) -> Raw:
    schema, levels, codes = preprocessing.schema, levels_of(preprocessing), codes_of(preprocessing)
    numbers = [entry.column for entry in schema.numeric]
    columns = [entry.column for entry in schema.categorical]
    inputs: dict[str, dict[str, Any]] = {
        "numbers": {"type": "float32", "shape": [len(numbers)], "meaning": "raw values", "columns": numbers},
        "levels": {
            "type": "int64",
            "shape": [len(columns)],
            "meaning": "the place of the value in the list of its column; −1: Unknown",
            "columns": columns,
            "levels": dict(zip(columns, levels, strict=True)),
        },
        "codes": {"type": "float32", "shape": [len(codes)], "meaning": "1 if the record has the code", "codes": codes},
    }

    def draw(count: int) -> Batch:
        rng = np.random.default_rng(count)
        drawn = [_around(entry, count, rng) for entry in schema.numeric]
        places = [rng.integers(-1, len(known), count) for known in levels]
        return (
            torch.from_numpy(np.stack(drawn, 1) if drawn else np.zeros((count, 0))).float(),
            torch.from_numpy(np.stack(places, 1) if places else np.zeros((count, 0), dtype=np.int64)),
            torch.from_numpy(rng.integers(0, 2, (count, len(codes)))).float(),
        )

    def expected(batch: Batch) -> Tensor:
        outputs: Tensor = reference(preprocessing.transform(_table(preprocessing, *batch)).dense())
        return outputs if quantity is None else quantity.restored(outputs)

    quantity = schema.outcome.quantity
    prepared: nn.Module = PreparedRecords(preprocessing, module)
    if quantity is not None:
        prepared = InUnits(prepared, quantity)
    return Raw(prepared.eval(), inputs, draw, expected)


def _around(number: Numeric, count: int, rng: np.random.Generator) -> np.ndarray:
    """Values inside the bounds and a little outside, and missing ones where these are marked."""
    shift, scale, low, high = affine(number)
    values = shift + scale * rng.uniform(low - (high - low) / 4, high + (high - low) / 4, count)
    return np.where(rng.random(count) < 0.25, np.nan, values) if number.gaps else values


def _table(preprocessing: Preprocessing, numbers: Tensor, levels: Tensor, codes: Tensor) -> EhrTable:
    """The raw inputs as the run reads them from a file."""
    schema, count = preprocessing.schema, len(numbers)
    listed, start = {}, 0
    for entry in schema.codes:
        texts = list(entry.vocabulary or ())
        rows, found = np.nonzero(codes[:, start : start + len(texts)].numpy())
        starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=count))])
        listed[entry.name] = CodeLists(starts, found, texts)
        start += len(texts)
    known = levels_of(preprocessing)
    return EhrTable(
        name="samples",
        patients=Levels(np.arange(count), [str(n) for n in range(count)]),
        numeric={entry.column: numbers[:, n].numpy() for n, entry in enumerate(schema.numeric)},
        categorical={e.column: Levels(levels[:, n].numpy(), known[n]) for n, e in enumerate(schema.categorical)},
        codes=listed,
    )
