"""Data sets from outside the package, as `package.module:name`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from laconic.data.inputs import Pictures
from laconic.data.population import Records
from laconic.data.sources import Source, SourceInfo

COUNT = 120


def flat_pictures() -> Source:
    """Pictures of one grey each, which no shift changes: a record tells which picture it was made from."""
    greys = torch.arange(COUNT, dtype=torch.uint8)[:, None, None, None].expand(COUNT, 1, 8, 8).contiguous()
    targets = torch.arange(COUNT) % 3
    return Source("flat", Records(Pictures(greys), targets), _test((1, 8, 8)), 3, (1, 8, 8), "flat grey pictures")


def owned(info: SourceInfo | None = None, data_dir: str | Path | None = None) -> Source:
    """Twelve owners with ten records each; the first number of a record says whose it is."""
    owners = np.repeat(np.arange(100, 112), 10)
    inputs = torch.from_numpy(np.stack([owners, np.tile(np.arange(10), 12)], 1).astype(np.float32))
    targets = torch.arange(COUNT) % 2
    test = _test((2,))
    return Source("owned", Records(inputs, targets), test, 2, (2,), "owned", owners, np.repeat([100, 101], 3))


def tokens() -> Source:
    inputs = torch.randint(2, 50, (COUNT, 6), generator=torch.Generator().manual_seed(0))
    return Source("tokens", Records(inputs, inputs[:, 0] % 2), _test((6,), whole=True), 2, (6,), "words")


def embedded_words(*, input_shape: tuple[int, ...], num_classes: int) -> torch.nn.Module:
    layers = torch.nn.Embedding(50, 4), torch.nn.Flatten(), torch.nn.Linear(4 * input_shape[0], num_classes)
    return torch.nn.Sequential(*layers)


def _test(shape: tuple[int, ...], whole: bool = False) -> Records:
    inputs = torch.full((6, *shape), 3) if whole else torch.zeros(6, *shape)
    return Records(inputs, torch.zeros(6, dtype=torch.int64))


OWNED = SourceInfo(
    name="owned",
    description="twelve owners",
    licence="none",
    origin="this test",
    num_train=COUNT,
    num_test=6,
    input_shape=(2,),
    classes=("even", "odd"),
    client="an owner",
    default_clients=12,
    natural=True,
    load=owned,
)
EMPTY = replace(OWNED, load=None)
NUMBER = 3


def needs_more(folder: str) -> Source:
    raise AssertionError(folder)


def breaks() -> Source:
    raise RuntimeError("no\nway")


def too_few_owners() -> Source:
    return replace(owned(), owners=np.arange(3))
