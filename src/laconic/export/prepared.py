"""What comes before and after a model, as modules: pixels as bytes, the preprocessing of health records, units."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from laconic.data.ehr.features import CUT, Preprocessing
from laconic.data.ehr.outcome import Quantity
from laconic.data.ehr.schema import UNKNOWN, Numeric


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
    schema says by what. A level is its place in the list of levels; anything else is Unknown. Codes are 0 or 1, one for
    each code of the vocabulary.
    """

    shift: Tensor
    scale: Tensor
    low: Tensor
    high: Tensor
    fill: Tensor
    counts: list[int]

    def __init__(self, preprocessing: Preprocessing, model: nn.Module) -> None:
        super().__init__()
        numbers = preprocessing.schema.numeric
        constants = torch.tensor([affine(entry) for entry in numbers], dtype=torch.float64).reshape(-1, 4)
        for place, name in enumerate(("shift", "scale", "low", "high")):
            self.register_buffer(name, constants[:, place].clone())
        fills = [entry.fill if isinstance(entry.fill, float | int) else torch.nan for entry in numbers]
        self.register_buffer("fill", torch.tensor(fills, dtype=torch.float64))
        self.counts = [len(levels) for levels in levels_of(preprocessing)]
        self.model = model

    def forward(self, numbers: Tensor, levels: Tensor, codes: Tensor) -> Tensor:
        numbers = numbers.double()
        numbers = torch.where(torch.isnan(numbers), self.fill, numbers)
        parts = [((numbers - self.shift) / self.scale).clamp(self.low, self.high).float()]
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


def levels_of(preprocessing: Preprocessing) -> list[list[str]]:
    """The levels of each categorical column, in their order; Unknown comes after them."""
    return [[text for text in entry.levels or () if text != UNKNOWN] for entry in preprocessing.schema.categorical]


def codes_of(preprocessing: Preprocessing) -> list[str]:
    """'diagnoses:250' and so on, in their order."""
    return [f"{entry.name}:{code}" for entry in preprocessing.schema.codes for code in entry.vocabulary or ()]
