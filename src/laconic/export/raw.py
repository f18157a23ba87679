"""From raw records to outputs: what an exported file takes, as a module, and what the run itself makes of the same."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from laconic.data.ehr.features import Preprocessing
from laconic.data.ehr.schema import Numeric
from laconic.data.ehr.table import CodeLists, EhrTable, Levels
from laconic.export.plain_lstm import with_plain_loops
from laconic.export.prepared import InUnits, Pixels, PreparedRecords, affine, codes_of, levels_of
from laconic.export.real_scattering import without_complex_numbers
from laconic.export.trained import Trained
from laconic.features.base import with_head

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
    """Values inside the bounds and a little outside."""
    shift, scale, low, high = affine(number)
    return shift + scale * rng.uniform(low - (high - low) / 4, high + (high - low) / 4, count)


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
